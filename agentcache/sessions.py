"""Who is talking: whether a request is served for its session, and whether its completion registers (design §4.5).

The registry knows ids, generations, idle leases and session tombstones; the core keeps the references. Served
*unreferenced* means: answered like any request, but the session's references stay as they are.
"""

import itertools
from dataclasses import dataclass, replace

from agentcache.adopting import adopt, checked_parent
from agentcache.errors import CacheError, Kind
from agentcache.ids import MAX_SCOPED_BYTES, checked_id
from agentcache.judging import judge, stale
from agentcache.records import (
    NO_WORD,
    Paused,
    SessionRecord,
    SessionRecords,
    SessionRules,
    Wishes,
    Word,
    nanoseconds,
    pause,
    tell,
)
from agentcache.routed import RoutedSessions
from agentcache.session_events import Happening
from agentcache.shown import ShownSessions
from agentcache.stats import SessionCounts
from agentcache.types import ReleaseMode, SessionId, SessionState, SessionTag, Wait, WaitState
from agentcache.waits import NOTHING_TOLD, Forecast, Told, WaitKind


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request's place in its session, from arrival to its end.

    `registers` False: served unreferenced, whatever happens. True is still conditional: see `complete`.
    `parent_ignored`: the parent that the tag named is unknown, closed, malformed, cyclic or not the one on record.
    """

    number: int
    session: SessionId | None
    generation: int
    state: SessionState
    registers: bool
    superseded: bool = False
    parent_ignored: bool = False
    arrived_ns: int = 0
    placement: int = 0
    expected_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of a turn: whether it registers, and when it ended in the order of all admissions and ends."""

    registers: bool
    finish_seq: int


@dataclass(frozen=True, slots=True)
class Opening:
    """An explicit open. `ttl_s` None: the worker's own; `on_close`: what a close does that says nothing."""

    parent: str | None = None
    ttl_s: float | None = None
    fence: bool = False
    on_close: ReleaseMode = ReleaseMode.RELEASE


@dataclass(frozen=True, slots=True)
class Opened:
    """The answer to an explicit open; `created` is False for an id that was open already."""

    session: SessionId
    generation: int
    created: bool


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A session whose idle lease ran out: its references up to this generation are to be released."""

    session: SessionId
    generation: int


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """One record as it is now. `idle_s` is 0 while a request is queued or running."""

    session: SessionId
    state: SessionState
    generation: int
    closed_through: int
    parent: SessionId | None
    queued: int
    running: int
    idle_s: float
    ttl_s: float
    on_close: ReleaseMode
    paused: Paused | None


class SessionRegistry:
    """Every session that this worker knows. Plain values out; time by argument (monotonic nanoseconds).

    `routed` is what a router orders, where there is one.

    Caller  calls `sweep(now_ns)` before any other call of the same moment, and releases what it names
    """

    def __init__(self, rules: SessionRules) -> None:
        self._rules = rules
        self._records = SessionRecords(rules)
        self._queued: dict[int, SessionRecord] = {}
        self._running: dict[int, SessionRecord] = {}
        self._nobody = SessionRecord(SessionId(""), 0)
        self._sequence = itertools.count(1)
        self._forecast = Forecast()
        self.routed = RoutedSessions(self._records, self._forecast, rules)
        self.shown = ShownSessions(self._records)

    def arrive(self, tag: SessionTag | None, now_ns: int) -> Ticket:
        """Take in a request: find, open or reopen its session, or serve it unreferenced. Counts it as queued.

        Errors  as `judge`, and BAD_SESSION_ID. Each changes nothing
        """
        if tag is None:
            nobody = Ticket(next(self._sequence), None, 0, SessionState.NONE, registers=False)
            return _enqueued(self._queued, self._nobody, nobody)
        record = self._records.find(_checked(tag.session))
        suspect_through = self._records.suspect_through(record, now_ns)
        verdict = judge(record, tag, self._rules, now_ns, suspect_through)
        if verdict.opens:
            self._records.open(record, verdict.opens, now_ns)
        if tag.ttl_s and verdict.registers:
            self._records.lease(record, nanoseconds(tag.ttl_s), now_ns)
        if tag.issued:
            self.routed.tagged(record, tag, verdict, now_ns)
        ignored = tag.parent is not None and not adopt(self._records, record, tag)
        ticket = Ticket(
            number=next(self._sequence),
            session=record.session,
            generation=record.current,
            state=verdict.state,
            registers=verdict.registers,
            superseded=tag.superseded,
            parent_ignored=ignored,
            arrived_ns=now_ns,
            placement=tag.placement,
            expected_s=tag.expected_s,
        )
        if verdict.opens:
            tell(self._records.events, record, Happening.OPENED)
        if verdict.registers:
            pause(self._records.events, record, None)
            record.wishes.said, record.wishes.expected_s = NO_WORD, tag.expected_s
        past = record.state is SessionState.OPEN and not verdict.registers  # of a generation that has ended
        _enqueued(self._queued, self._nobody if past or not record.known else record, ticket)
        self._records.touch(record, now_ns)  # now it is busy, and not to be forgotten
        return ticket

    def expects(self, ticket: Ticket, start_ns: int) -> None:
        """A queued request is expected to begin at `start_ns`. Errors: LEASE_REUSED unless it is queued."""
        _required(self._queued, ticket).queued[ticket.number] = start_ns

    def begin(self, ticket: Ticket, now_ns: int) -> int:
        """Admit a queued request and answer its start_seq. Errors: LEASE_REUSED unless it is queued."""
        record = _taken(self._queued, ticket)
        del record.queued[ticket.number]
        record.running += 1
        record.ended = None
        self._forecast.returned(record.away, ticket.arrived_ns)
        record.away.since_ns = now_ns
        self._records.touch(record, now_ns)
        self._running[ticket.number] = record
        return next(self._sequence)

    def leave(self, ticket: Ticket, now_ns: int) -> None:
        """End a request that never began; its session waits as it did before.

        Errors  LEASE_REUSED unless it is queued
        """
        record = _taken(self._queued, ticket)
        del record.queued[ticket.number]
        _rest(record, self._forecast)
        self._records.touch(record, now_ns)

    def complete(self, ticket: Ticket, now_ns: int, told: Told = NOTHING_TOLD) -> Completion:
        """End a running request. It registers iff its generation = current > closed_through, and was not released.

        Where `told` names no time until the next request, the request's own word counts.

        Errors  LEASE_REUSED unless it is running
        """
        record = _taken(self._running, ticket)
        record.running -= 1
        own = Word(Told(gap_s=ticket.expected_s or None), now_ns)
        record.ended = Word(told, now_ns).after(own)
        _rest(record, self._forecast)
        self._records.touch(record, now_ns)
        live = ticket.generation == record.current > record.closed_through
        live = live and (ticket.generation, ticket.placement) > record.placing.released
        return Completion(ticket.registers and live, next(self._sequence))

    def wait(self, session: SessionId) -> Wait:
        """What a session is doing: queued before running, running before idle. Cost O(its own queued requests)."""
        record = self._records.find(session)
        if record.queued:
            starts = [start_ns for start_ns in record.queued.values() if start_ns is not None]
            return Wait(WaitState.PENDING, seq=next(iter(record.queued)), eta_ns=min(starts, default=None))
        if record.running:
            return record.away.running()
        return record.away.wait()

    def is_queued(self, ticket: Ticket) -> bool:
        """Whether the ticket has neither begun nor left."""
        return ticket.number in self._queued

    def open(self, session: str, opening: Opening, now_ns: int) -> Opened:
        """Open a session, or answer the open one unchanged; a fence raises its generation. Closed ones reopen at once.

        Errors  BAD_SESSION_ID; BAD_REQUEST for a ttl that is not positive; for the parent as `checked_parent`. Each
                changes nothing
        """
        record = self._records.find(_checked(session))
        ttl_s, parent = opening.ttl_s, opening.parent
        if ttl_s is not None and not 0 < ttl_s < float("inf"):
            raise CacheError(Kind.BAD_REQUEST, "ttl_s is a positive number of seconds", ttl_s=ttl_s)
        kin = record.parent if parent is None else checked_parent(self._records, record.session, parent)
        created = record.state is not SessionState.OPEN
        if created:
            self._records.link(record, kin)
            record.ttl_ns = nanoseconds(ttl_s or self._rules.ttl_s)
            record.wishes = Wishes(opening.on_close, least_ttl_ns=nanoseconds(ttl_s or 0))
        if created or opening.fence:
            self._records.open(record, record.last + 1, now_ns)
            tell(self._records.events, record, Happening.OPENED)
        return Opened(record.session, record.current, created)

    def close(self, session: str, generation: int | None, now_ns: int) -> SessionFacts:
        """Close a session through its current generation. Again: the same answer, nothing changed.

        Errors  BAD_SESSION_ID; SESSION_UNKNOWN; SESSION_STALE when `generation` is given and not the current one
        """
        record = self._named(session, generation)
        if record.state is not SessionState.CLOSED:
            self._forecast.closed(record.away)
            record.ended = None
            self._records.close(record, now_ns)
        return _facts(record, now_ns)

    def touch(self, session: str, generation: int | None, now_ns: int) -> SessionFacts:
        """Renew the lease of an open session. Errors: as `close`, and SESSION_CLOSED for one that is not open."""
        record = self._named(session, generation)
        if record.state is not SessionState.OPEN:
            said = "the session is closed, or has idled out; open it again"
            raise CacheError(Kind.SESSION_CLOSED, said, session=session)
        self._records.touch(record, now_ns)
        return _facts(record, now_ns)

    def note(self, session: str, generation: int | None, paused: Paused | None, now_ns: int) -> SessionFacts:
        """Note what an open session waits for until its next request, None: nothing any more. It renews the lease.

        A time that it names counts from now; where it names none, the one that was said stands. Errors: as `touch`
        """
        facts = self.touch(session, generation, now_ns)
        record = self._records.find(facts.session)
        pause(self._records.events, record, _completed(paused, record.wishes))
        if paused:
            self.tell(facts.session, facts.generation, Told(WaitKind.TOOL, paused.expected_s or None), now_ns)
        else:
            record.wishes.said = NO_WORD
            self._forecast.taken_back(record.away, now_ns)
        return _facts(record, now_ns)

    def tell(self, session: SessionId, generation: int, told: Told, now_ns: int) -> bool:
        """More is known of the gap that a session is in, or that follows the turn that runs. Its times count from now.

        False: it is not open, or at another generation by now, and nothing is noted
        """
        record = self._records.find(session)
        if record.state is not SessionState.OPEN or record.current != generation:
            return False
        if record.busy:
            record.wishes.said = Word(told, now_ns).after(record.wishes.said)
        else:
            self._forecast.told(record.away, told, now_ns)
        return True

    def look(self, session: str, generation: int | None, now_ns: int) -> SessionFacts:
        """One session as it is. Errors: as `close`."""
        return _facts(self._named(session, generation), now_ns)

    def open_sessions(self, now_ns: int) -> tuple[SessionFacts, ...]:
        """Those that are open, oldest record first."""
        return tuple(_facts(record, now_ns) for record in self._records if record.state is SessionState.OPEN)

    def subtree(self, session: str) -> tuple[SessionId, ...]:
        """The session's descendants that are not closed, parents first."""
        family = self._records.descendants(_checked(session))
        return tuple(record.session for record in family if record.state is not SessionState.CLOSED)

    def sweep(self, now_ns: int) -> tuple[Lapsed, ...]:
        """Let idle leases run out: longer than `ttl_s` without a request queued, running or ended.

        Where a router is heard it is the one to say so, and none run out here.
        """
        if self.routed.heard_lately(now_ns):
            return ()
        return tuple(Lapsed(record.session, record.current) for record in self._records.expire(now_ns))

    def counts(self) -> SessionCounts:
        """Open now; opened, closed and expired since the start. Cost O(1)."""
        return self._records.counts()

    def may_hold(self, session: SessionId, generation: int) -> bool:
        """Whether references of this generation can rightly be there; for checks."""
        record = self._records.find(session)
        return record.state is SessionState.OPEN and record.closed_through < generation <= record.current

    def _named(self, session: str, generation: int | None) -> SessionRecord:
        record = self._records.find(_checked(session))
        if not record.known:
            raise CacheError(Kind.SESSION_UNKNOWN, "no such session here; open it first", session=session)
        if generation not in (None, record.current):
            raise stale(record, generation)
        return record


def _completed(paused: Paused | None, wishes: Wishes) -> Paused | None:
    """A pause with the time that its client has named, in it or before; a resume takes that back."""
    if paused and paused.learned:
        return paused
    wishes.expected_s = (paused.expected_s or wishes.expected_s) if paused else 0.0
    return paused and replace(paused, expected_s=wishes.expected_s)


def _enqueued(queued: dict[int, SessionRecord], record: SessionRecord, ticket: Ticket) -> Ticket:
    record.queued[ticket.number] = None
    queued[ticket.number] = record
    return ticket


def _required(tickets: dict[int, SessionRecord], ticket: Ticket) -> SessionRecord:
    if ticket.number not in tickets:
        said = "a ticket is used once: begin and complete, or leave"
        raise CacheError(Kind.LEASE_REUSED, said, ticket=ticket.number)
    return tickets[ticket.number]


def _taken(tickets: dict[int, SessionRecord], ticket: Ticket) -> SessionRecord:
    _required(tickets, ticket)
    return tickets.pop(ticket.number)


def _rest(record: SessionRecord, forecast: Forecast) -> None:
    """With nothing queued or running a session is idle since its last turn's end, unless it is closed or nobody's."""
    if record.state is SessionState.OPEN and not record.busy and record.ended:
        forecast.left(record.away, record.ended.told, record.ended.at_ns)
        forecast.told(record.away, record.wishes.said.told, record.wishes.said.at_ns)
        record.ended = None


def _facts(record: SessionRecord, now_ns: int) -> SessionFacts:
    return SessionFacts(
        session=record.session,
        state=record.state,
        generation=record.current,
        closed_through=record.closed_through,
        parent=record.parent,
        queued=len(record.queued),
        running=record.running,
        idle_s=0.0 if record.busy else (now_ns - record.used_ns) / 1e9,
        ttl_s=record.ttl_ns / 1e9,
        on_close=record.wishes.on_close,
        paused=record.wishes.paused,
    )


def _checked(session: str) -> SessionId:
    """An id as it is here; a tenant's, with the tenant before it, is longer than those of the edges."""
    return checked_id(session, MAX_SCOPED_BYTES)
