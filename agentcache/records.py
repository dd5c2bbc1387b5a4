"""The records behind the session registry: their states, idle leases, bounded memory and kinship.

    (unknown) ──request, open──► open ──idle──► expired ──request, open──► open, next generation
                                  ├────close──► closed ──open, late request──► open, next generation
                                  └────moved──► away ──request with a later placement──► open again

Open records live as long as their idle lease, which does not run out while a child is open. Closed ones (session
tombstones), expired ones and those that moved to another worker are remembered in bounded numbers, least recently used
forgotten first; a record with a request queued or running is never forgotten. Generations never repeat: a forgotten
record leaves its number in the floor from which unknown ids start.
"""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from agentcache.families import Families
from agentcache.session_events import NOBODY, Happening, SessionEvent, SessionSink
from agentcache.stats import SessionCounts
from agentcache.types import ReleaseMode, SessionId, SessionState
from agentcache.waits import NOTHING_TOLD, Away, Told, WaitKind

NEVER_NS: Final = -(2**62)
AWAY: Final = SessionState.NONE
"""The state of what is remembered of a session that this worker does not have (any more)."""

_ENDINGS: Final = {
    SessionState.CLOSED: Happening.CLOSED,
    SessionState.EXPIRED: Happening.EXPIRED,
    AWAY: Happening.MOVED,
}
_BEFORE_AN_END: Final = (SessionState.OPEN, SessionState.EXPIRED)

Claim = tuple[int, int]
"""A generation and a placement in it; later ones are larger."""


@dataclass(frozen=True, slots=True)
class SessionRules:
    """Times and bounds of the registry; `tombstones` bounds closed, expired and moved records, each."""

    ttl_s: float = 1800.0
    reopen_after_s: float = 60.0
    tag_ttl_s: float = 120.0
    tombstones: int = 8192


@dataclass(frozen=True, slots=True)
class Word:
    """What was told of a session's next gap, and when: at the end of a turn, or by whoever knew better meanwhile."""

    told: Told
    at_ns: int

    def after(self, earlier: "Word") -> "Word":
        """This word, with what it leaves open as an earlier one had it."""
        kind, gap_s = self.told.kind, self.told.gap_s
        if kind is WaitKind.UNKNOWN:
            kind = earlier.told.kind
        if gap_s is None and earlier.told.gap_s is not None:
            gap_s = earlier.told.gap_s - (self.at_ns - earlier.at_ns) / 1e9
        return Word(Told(kind, gap_s), self.at_ns)


NO_WORD: Final = Word(NOTHING_TOLD, 0)


@dataclass(slots=True)
class Placing:
    """What routers said: the highest placement in a tag of the current generation, and what they had released."""

    placement: int = 0
    released: Claim = (0, 0)


@dataclass(frozen=True, slots=True)
class Paused:
    """A session that waits for a tool, as its client said; `expected_s` 0: for how long is not known.

    `learned`: nobody said so, a router expects it.
    """

    tool: str
    expected_s: float = 0.0
    learned: bool = False


@dataclass(slots=True)
class Wishes:
    """What its client said of a session: what a close does that says nothing, and what it waits for.

    `said` is what is known of the gap after the turn that still runs, `expected_s` the time that its client named last
    for that gap or this one, 0: none. `least_ttl_ns`: the lease that it was opened with, 0 for the usual one; no
    request makes it shorter.
    """

    on_close: ReleaseMode = ReleaseMode.RELEASE
    paused: Paused | None = None
    said: Word = NO_WORD
    least_ttl_ns: int = 0
    expected_s: float = 0.0


@dataclass(slots=True)
class SessionRecord:
    """One session. `last` is the highest generation used: `current`, or for an unknown id the floor.

    `closed_ns` is when it was closed, or released by a router's order. `ended` is the end of the last turn while it is
    not known whether a gap follows: another request is queued. `queued` has the numbers of those that wait, oldest
    first, and the start that is expected of each, if any.
    """

    session: SessionId
    ttl_ns: int
    last: int = 0
    state: SessionState = SessionState.NONE
    current: int = 0
    closed_through: int = 0
    closed_ns: int = NEVER_NS
    used_ns: int = 0
    parent: SessionId | None = None
    queued: dict[int, int | None] = field(default_factory=dict)
    running: int = 0
    ended: Word | None = None
    away: Away = field(default_factory=Away)
    placing: Placing = field(default_factory=Placing)
    wishes: Wishes = field(default_factory=Wishes)

    @property
    def busy(self) -> bool:
        """A request is queued or running."""
        return bool(self.queued) or self.running > 0

    @property
    def known(self) -> bool:
        return self.state is not SessionState.NONE


class SessionRecords:
    """All records, each in one state. Time by argument (monotonic nanoseconds)."""

    def __init__(self, rules: SessionRules) -> None:
        self._rules = rules
        self._records: dict[SessionId, SessionRecord] = {}
        self._resting: dict[SessionState, OrderedDict[SessionId, None]] = {
            SessionState.CLOSED: OrderedDict(),
            SessionState.EXPIRED: OrderedDict(),
            AWAY: OrderedDict(),
        }
        self._families = Families()
        self._leases: list[tuple[int, SessionId, int]] = []
        self._floor = 0
        self._suspect_until_ns = 0
        self._population: Counter[SessionState] = Counter()
        self.events: SessionSink = NOBODY
        self._tally: Counter[str] = Counter()

    def find(self, session: SessionId) -> SessionRecord:
        """The record, or a blank one that is not kept unless opened."""
        blank = SessionRecord(session, nanoseconds(self._rules.ttl_s), last=self._floor)
        return self._records.get(session, blank)

    def __iter__(self) -> Iterator[SessionRecord]:
        return iter(self._records.values())

    def suspect_through(self, record: SessionRecord, now_ns: int) -> int:
        """The generation through which an unknown id may have ended less than `tag_ttl_s` ago and been forgotten.

        0 for a known one, and while nothing was forgotten that early.
        """
        unknown = record.session not in self._records
        return self._floor if unknown and now_ns < self._suspect_until_ns else 0

    def open(self, record: SessionRecord, generation: int, now_ns: int) -> None:
        """Make a generation the current one, from any state."""
        self._tally["opened"] += record.state is not SessionState.OPEN
        self._records[record.session] = record
        if generation != record.current:
            record.placing.placement = 0
        record.current = generation
        record.last = max(record.last, generation)
        record.used_ns = now_ns
        if not record.away.turns and not record.busy:  # it waits for its first turn since now
            record.away.since_ns = now_ns
        self._enter_state(record, SessionState.OPEN, now_ns)
        self._hold_lease(record, now_ns)

    def part(self, record: SessionRecord, generation: int, state: SessionState, now_ns: int) -> None:
        """A session is not this worker's through `generation`: expired, or away. Remembered as a tombstone is."""
        self._records[record.session] = record
        record.current = max(record.current, generation)
        record.last = max(record.last, generation)
        record.closed_ns = now_ns
        self._enter_state(record, state, now_ns)

    def close(self, record: SessionRecord, now_ns: int) -> None:
        """Leave a session tombstone."""
        self._records[record.session] = record
        record.last = max(record.last, record.current)
        record.closed_through = max(record.closed_through, record.current)
        record.closed_ns = now_ns
        self._tally["closed"] += 1
        self._enter_state(record, SessionState.CLOSED, now_ns)

    def expire(self, now_ns: int) -> list[SessionRecord]:
        """Let idle leases run out. Cost O(log records) for each one due."""
        expired: list[SessionRecord] = []
        while self._leases and self._leases[0][0] < now_ns:
            _, session, generation = heapq.heappop(self._leases)
            record = self.find(session)
            if record.state is not SessionState.OPEN or record.current != generation:
                continue
            if self._in_use(record) or record.used_ns + record.ttl_ns >= now_ns:
                self._hold_lease(record, now_ns)  # or renewed meanwhile
                continue
            self._tally["expired"] += 1
            self._enter_state(record, SessionState.EXPIRED, now_ns)
            expired.append(record)
        return expired

    def lease(self, record: SessionRecord, ttl_ns: int, now_ns: int) -> None:
        """Change how long an open session may idle: as a request wishes, and never less than it was opened with."""
        ttl_ns = max(ttl_ns, record.wishes.least_ttl_ns)
        shorter, record.ttl_ns = ttl_ns < record.ttl_ns, ttl_ns
        if shorter:
            self._hold_lease(record, now_ns)

    def touch(self, record: SessionRecord, now_ns: int) -> None:
        """A use: renews the idle lease, and for a closed or expired record the memory of it."""
        record.used_ns = now_ns
        self._place(record, now_ns)

    def counts(self) -> SessionCounts:
        """Open now; opened, closed and expired since the start. Cost O(1)."""
        return SessionCounts(
            open=self._population[SessionState.OPEN],
            tombstones=self._population[SessionState.CLOSED],
            **self._tally,
        )

    def link(self, record: SessionRecord, parent: SessionId | None) -> None:
        """Set or clear the parent."""
        is_open = record.state is SessionState.OPEN
        self._families.move(record.session, record.parent, parent, is_open)
        record.parent = parent

    def descendants(self, session: SessionId) -> Iterator[SessionRecord]:
        """Children, their children and so on, parents first; closed ones lead to theirs."""
        return (self._records[child] for child in self._families.below(session))

    def ancestors(self, session: SessionId) -> Iterator[SessionId]:
        """The session itself, its parent and so on."""
        upward: SessionId | None = session
        while upward is not None:
            yield upward
            upward = self.find(upward).parent

    def _enter_state(self, record: SessionRecord, state: SessionState, now_ns: int) -> None:
        self._population[record.state] -= 1
        self._population[state] += 1
        for resting in self._resting.values():
            resting.pop(record.session, None)
        if record.parent is not None:
            self._count_in_family(record.parent, record.state, state, now_ns)
        if state in _ENDINGS and record.state in _BEFORE_AN_END:
            tell(self.events, record, _ENDINGS[state])
            record.wishes.paused = None
        record.state = state
        self._place(record, now_ns)

    def _count_in_family(
        self, parent: SessionId, before: SessionState, state: SessionState, now_ns: int
    ) -> None:
        """A child was opened, or has ended: then its parent's lease starts anew."""
        if before is not SessionState.OPEN and state is SessionState.OPEN:
            self._families.opened(parent)
        if before is SessionState.OPEN and state is not SessionState.OPEN:
            self._families.ended(parent)
            above = self._records.get(parent)
            if above is not None and above.state is SessionState.OPEN:
                above.used_ns = now_ns

    def _in_use(self, record: SessionRecord) -> bool:
        """It, or a child of it."""
        return record.busy or self._families.is_wanted(record.session)

    def _place(self, record: SessionRecord, now_ns: int) -> None:
        """Keep idle records that are not open in the order of their use, and the oldest of them few."""
        if record.state not in self._resting or record.session not in self._records:
            return
        resting = self._resting[record.state]
        resting.pop(record.session, None)
        if not record.busy:
            resting[record.session] = None
        while len(resting) > self._rules.tombstones:
            oldest, _ = resting.popitem(last=False)
            self._forget(self._records[oldest], now_ns)

    def _forget(self, record: SessionRecord, now_ns: int) -> None:
        """Drop a record. What ended too lately for that makes every unknown id suspect until it is old enough."""
        self._floor = max(self._floor, record.last)
        old_enough_ns = record.closed_ns + nanoseconds(self._rules.tag_ttl_s)
        if now_ns < old_enough_ns:
            self._suspect_until_ns = max(self._suspect_until_ns, old_enough_ns)
        self.link(record, None)
        self._population[record.state] -= 1
        del self._records[record.session]

    def _hold_lease(self, record: SessionRecord, now_ns: int) -> None:
        used_ns = now_ns if self._in_use(record) else record.used_ns
        heapq.heappush(self._leases, (used_ns + record.ttl_ns, record.session, record.current))
        if len(self._leases) > 64 + 4 * len(self._records):  # long leases that ended early pile up
            live = {(r.session, r.current) for r in self if r.state is SessionState.OPEN}
            first = {lease[1:]: lease for lease in sorted(self._leases, reverse=True) if lease[1:] in live}
            self._leases = sorted(first.values())


def pause(events: SessionSink, record: SessionRecord, paused: Paused | None) -> None:
    """Note what a session waits for; None: it goes on. Of what a router expects nothing is told."""
    before, record.wishes.paused = record.wishes.paused, paused
    if paused and not paused.learned:
        tell(events, record, Happening.PAUSED)
    elif before and not paused and not before.learned:
        tell(events, record, Happening.RESUMED)


def tell(events: SessionSink, record: SessionRecord, what: Happening) -> None:
    """Whoever listens hears what has happened to a session."""
    paused = record.wishes.paused if what is Happening.PAUSED else None
    said = (paused.tool, paused.expected_s) if paused else ("", 0.0)
    events.happened(SessionEvent(what, record.session, record.current, record.parent, *said))


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds of a number of seconds."""
    return int(seconds * 1e9)
