"""Sessions with their sub-agents, so that these begin below their parents, wherever a trace tells them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentcache.replay.client import Prompt
from agentcache.replay.spelling import Spelling
from agentcache.replay.trace import Session


@dataclass(frozen=True, slots=True)
class Member:
    """A session and its number in the trace, with its prompts."""

    ordinal: int
    session: Session
    prompts: Iterator[Prompt]


@dataclass(frozen=True, slots=True)
class Family:
    """A session and those that follow it and have their parent among these."""

    members: list[Member]

    @property
    def first(self) -> Member:
        return self.members[0]

    def begun_by(self, parent: Member, turns: int) -> dict[int, list[Member]]:
        """Whom a session of so many turns begins, by the number of turns that have ended then.

        At least one: before its first a parent is not known to the worker.
        """
        begin: dict[int, list[Member]] = {}
        for member in self.members:
            origin = member.session.origin
            if origin.parent == parent.session.name and member is not parent:
                begin.setdefault(min(max(origin.after_call, 1), turns), []).append(member)
        return begin


@dataclass(slots=True)
class Kinship:
    """Who of a trace is below whom, known from reading it once. Whose parent is not before it has none."""

    _first: list[int] = field(default_factory=list)  # of each session, the number of its family's first one
    _latest: dict[str, int] = field(default_factory=dict)

    def add(self, session: Session) -> None:
        """The next session of the trace."""
        number, parent = len(self._first), session.origin.parent
        below = parent and parent in self._latest
        self._first.append(self._first[self._latest[parent]] if below else number)
        self._latest[session.name] = number

    def together(self, sessions: Iterable[Session]) -> Iterator[Session]:
        """The sessions that were added, read again: family after family, as their first ones are told.

        Cost  what is told inside another family is held until that one has ended
        """
        left = Counter(self._first)
        firsts = iter(left)
        now = next(firsts, 0)
        held: dict[int, list[Session]] = {}
        for number, session in enumerate(sessions):
            assert number < len(self._first), "a session that was not added"
            held.setdefault(self._first[number], []).append(session)
            while members := held.pop(now, []):
                left[now] -= len(members)
                yield from members
                if not left[now]:
                    now = next(firsts, now)


def families(sessions: Iterable[Session], spelling: Spelling) -> Iterator[Family]:
    """The sessions with their sub-agents, which follow them; spelled in this order, whoever takes them."""
    members: list[Member] = []
    for ordinal, session in enumerate(sessions):
        names = {member.session.name for member in members}
        if members and not (session.origin.parent and session.origin.parent in names):
            yield Family(members)
            members = []
        members.append(Member(ordinal, session, spelling.prompts(session)))
    if members:
        yield Family(members)
