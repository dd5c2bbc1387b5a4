"""What the machine knows because it was told: turns that ended well, closes that were acknowledged."""

from collections import Counter
from dataclasses import dataclass, field

Words = tuple[str, tuple[int, ...]]
"""Who speaks, and how the speech begins."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a worker, and of the store's data: what happened in another one proves nothing now.

    `used_ms`: when the session was surely in use, on the store's clock: when the turn began, as time may have jumped
    between its end and the moment when that was read.
    """

    worker: str
    starts: int
    losses: int
    used_ms: int


@dataclass(frozen=True, slots=True)
class Close:
    """A close that was acknowledged. `losses` and `backs`: before it.

    `parent` is whose close it was, if not its own. `firm`: every holder has answered, and the store's clock had
    reached the generation.
    """

    through: int
    firm: bool
    losses: int
    backs: int
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Shut:
    """A session was closed and nobody opens it: `at_ms` of the store's clock, after so many losses and backs."""

    at_ms: int
    losses: int
    backs: int


@dataclass(slots=True)
class Known:
    """One session as its agent saw it. `doubt`: a call ended without an answer since the last good turn.

    `opens` explicit opens were begun, and `opening` of them run now, or may still. `parent` is what the session was
    last opened below, under `child_generation`. `uncertain`: it may have ended.
    """

    turns: int = 0
    last_generation: int = 0
    registered: Life | None = None
    registered_generation: int = 0
    doubt: bool = False
    uncertain: bool = False
    opens: int = 0
    opening: int = 0
    shut: Shut | None = None
    parent: str = ""
    child_generation: int = 0
    child_losses: int = 0
    closes: list[Close] = field(default_factory=list)

    def ended_well(self, life: Life, generation: int) -> None:
        """A turn of an open session ended whole, on this worker."""
        self.last_generation = max(self.last_generation, generation)
        self.registered, self.registered_generation, self.doubt = life, generation, False

    def was_closed(self, generation: int) -> bool:
        return any(close.through >= generation for close in self.closes)

    def closed(self, close: Close) -> None:
        self.closes = [*self.closes[-8:], close]
        if close.through >= self.registered_generation:
            self.registered = None


@dataclass(slots=True)
class Truth:
    """All sessions, and what was counted."""

    sessions: dict[str, Known] = field(default_factory=dict)
    losses: int = 0
    backs: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    lengths: dict[Words, Counter[int]] = field(default_factory=dict)

    def sent(self, words: Words, length: int) -> None:
        """A tenant has sent a prompt of so many tokens."""
        self.lengths.setdefault(words, Counter())[length] += 1

    def most_sent(self, words: Words, own: int) -> int:
        """The longest that the same tenant has sent beside this one of `own` tokens."""
        told = self.lengths[words] - Counter({own: 1})
        return max(told, default=0)

    def of(self, session: str) -> Known:
        return self.sessions.setdefault(session, Known())

    def children(self, session: str) -> dict[str, int]:
        """What was opened below a session, and under which generations, as far as the store can know it."""
        return {
            name: known.child_generation
            for name, known in self.sessions.items()
            if known.parent == session and known.child_losses == self.losses
        }

    def rested(self) -> None:
        """Nothing comes any more of what was begun until now."""
        for known in self.sessions.values():
            known.opening, known.uncertain = 0, False

    def idle(self) -> None:
        """From now on every session may be let go of, until its next turn."""
        for known in self.sessions.values():
            known.registered = None

    def close_in_doubt(self, session: str) -> None:
        """Whether a session, and whoever may be below it, was closed or will be is not known."""
        self.of(session).registered = None
        self.all_in_doubt(session.split("/")[0])

    def all_in_doubt(self, tenant: str = "") -> None:
        """Sessions of a tenant, or all, may have ended."""
        for name, known in self.sessions.items():
            known.uncertain = known.uncertain or name.startswith(tenant)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def fault(self, what: str) -> None:
        """Something that must not be; the machine stops at the next check."""
        self.wrong.append(what)

    def closed_through(self, session: str) -> int:
        """The highest generation that must not be open again, whatever happened since.

        A store that lost its data knows of no close: workers that have not answered may offer a session back to life.
        One whose clock went back, before or after, may issue a generation that only the lost data knew of.
        """
        known = self.of(session).closes
        holds = [
            close.through
            for close in known
            if close.losses == self.losses or (close.firm and close.backs == self.backs)
        ]
        return max(holds, default=0)
