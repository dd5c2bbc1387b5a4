"""The sessions of a worker behind a router: what a tag adds to a record, and what the router's orders let go of.

The router issues generations and placements (the count of a session's moves between workers). It orders a close, offers
an expiry, or says that a session moved; each order may come late, twice, or before the request that it is about, so
each leaves a memory, and what it lets go of is only what was registered before it.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from agentcache.judging import Verdict
from agentcache.records import (
    AWAY,
    NEVER_NS,
    Claim,
    SessionRecord,
    SessionRecords,
    SessionRules,
    nanoseconds,
)
from agentcache.types import SessionId, SessionState, SessionTag
from agentcache.waits import Forecast

LAST_PLACEMENT: Final = 2**63 - 1
UNCONFIRMED: Final = 8192
"""At most so many wait to be confirmed; the oldest of more are with the next offer of everything."""


@dataclass(frozen=True, slots=True)
class Parting:
    """What an order changed: what was registered through generation `releases` is to be released (0: nothing).

    `current` is the generation that the worker knows now. `known` False: it had nothing of the session; `busy`: a
    request of it is queued or running, and the order was not followed.
    """

    session: SessionId
    current: int
    releases: int = 0
    known: bool = True
    busy: bool = False


@dataclass(frozen=True, slots=True)
class KnownSession:
    """A session that is open here, as the worker would offer it. `idle_s` is 0 while `busy`.

    `lost`: its tag is of a store that has lost its data since, or of one that is not known yet.
    """

    session: SessionId
    generation: int
    placement: int
    idle_s: float
    ttl_s: float
    parent: SessionId | None
    busy: bool
    lost: bool = False


class RoutedSessions:
    """A router's side of the registry. Ids are those of `ids.scoped`; time by argument (monotonic nanoseconds).

    A session is confirmed once: when a tag makes it known here, the store may have ended it since, and the order may
    have gone to a worker before this one had it, or have been lost. So it is offered to the store.
    """

    def __init__(self, records: SessionRecords, forecast: Forecast, rules: SessionRules) -> None:
        self._records = records
        self._forecast = forecast
        self._lease_ns = nanoseconds(rules.ttl_s)
        self._alone_from_ns = NEVER_NS
        self.highest = 0
        """The highest generation that a router has named."""
        self.epoch = ""
        """The store's, as it was last heard."""
        self._unconfirmed: OrderedDict[SessionId, str] = OrderedDict()

    def heard(self, now_ns: int) -> None:
        """A router was there then: it watches over idle sessions."""
        self._alone_from_ns = max(self._alone_from_ns, now_ns + self._lease_ns)

    def heard_lately(self, now_ns: int) -> bool:
        """Whether a router was heard within `ttl_s`."""
        return now_ns <= self._alone_from_ns

    def tagged(self, record: SessionRecord, tag: SessionTag, verdict: Verdict, now_ns: int) -> None:
        """Note what a tag says, as it was judged."""
        generation = tag.generation or 0
        self.heard(now_ns)
        self.highest = max(self.highest, generation)
        if record.state is SessionState.OPEN and generation == record.current:
            record.placing.placement = max(record.placing.placement, tag.placement)
        if verdict.registers and (verdict.opens or tag.epoch != self.epoch):
            self._unconfirmed[record.session] = tag.epoch
            if len(self._unconfirmed) > UNCONFIRMED:
                self._unconfirmed.popitem(last=False)

    def close(self, session: SessionId, generation: int, now_ns: int) -> Parting:
        """Close through a generation; an unknown session leaves a tombstone too. A later generation stays open."""
        record = self._ordered(session, generation, now_ns)
        known = record.known
        if generation < record.current:
            record.closed_through = max(record.closed_through, generation)
            return Parting(session, record.current, releases=generation, known=known)
        if record.state is SessionState.CLOSED:
            if generation > record.current:
                record.current = record.last = record.closed_through = generation
            self._records.touch(record, now_ns)
            return Parting(session, record.current, known=known)
        self._forecast.closed(record.away)
        record.ended = None
        record.current = generation
        self._records.close(record, now_ns)
        return Parting(session, generation, releases=generation, known=known)

    def expire(self, session: SessionId, generation: int, now_ns: int, even_busy: bool = False) -> Parting:
        """Let go through a generation unless the session is busy. It leaves no tombstone: a later one opens it."""
        record = self._ordered(session, generation, now_ns)
        if record.busy and not even_busy:
            return Parting(session, record.current, busy=True)
        return self._part(record, (generation, LAST_PLACEMENT), SessionState.EXPIRED, now_ns)

    def moved(self, session: SessionId, generation: int, placement: int, now_ns: int) -> Parting:
        """Let go of what was registered before `placement`, unless a tag with it or a later one says it is back."""
        record = self._ordered(session, generation, now_ns)
        back = record.state is SessionState.OPEN and record.placing.placement >= placement
        if back and record.current == generation:
            return Parting(session, generation, busy=True)
        return self._part(record, (generation, placement - 1), AWAY, now_ns)

    def unconfirmed(self, now_ns: int) -> Iterator[KnownSession]:
        """The sessions that were made known since the last call, while they are open; each is told once."""
        while self._unconfirmed:
            session, epoch = self._unconfirmed.popitem(last=False)
            record = self._records.find(session)
            if record.state is SessionState.OPEN:
                yield replace(_known(record, now_ns), lost=epoch != self.epoch)

    def known(self, now_ns: int) -> Iterator[KnownSession]:
        """The sessions that are open here, oldest record first."""
        for record in self._records:
            if record.state is SessionState.OPEN:
                yield _known(record, now_ns)

    def _ordered(self, session: SessionId, generation: int, now_ns: int) -> SessionRecord:
        self.heard(now_ns)
        self.highest = max(self.highest, generation)
        record = self._records.find(session)
        suspect_through = self._records.suspect_through(record, now_ns)
        if suspect_through:  # it will be remembered now, but what was forgotten of it will not come back
            record.placing.released = (suspect_through, LAST_PLACEMENT)
        return record

    def _part(self, record: SessionRecord, through: Claim, state: SessionState, now_ns: int) -> Parting:
        """Release through a claim; a session that is at a later generation by now stays as it is."""
        generation, _ = through
        known = record.known
        record.placing.released = max(record.placing.released, through)
        record.last = max(record.last, generation)
        if generation < record.current:
            return Parting(record.session, record.current, releases=generation, known=known)
        if record.state is not SessionState.CLOSED:
            record.placing.placement = 0
            record.ended = None
            self._records.part(record, generation, state if known else AWAY, now_ns)
        return Parting(record.session, record.current, releases=generation, known=known)


def _known(record: SessionRecord, now_ns: int) -> KnownSession:
    return KnownSession(
        session=record.session,
        generation=record.current,
        placement=record.placing.placement,
        idle_s=0.0 if record.busy else max(0.0, (now_ns - record.used_ns) / 1e9),
        ttl_s=record.ttl_ns / 1e9,
        parent=record.parent,
        busy=record.busy,
    )
