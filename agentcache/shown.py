"""What is shown of sessions beyond their facts, and who hears of what happens to them."""

from dataclasses import dataclass
from itertools import takewhile

from agentcache.records import SessionRecord, SessionRecords
from agentcache.session_events import SessionSink
from agentcache.types import SessionId, SessionState, WaitState
from agentcache.waits import WaitKind

CHILDREN = 100
"""Children that are named of one session."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a session is doing. Times in seconds; None: not known.

    `since_s`: idle or running for so long. `expected_s`: how long the gap is expected to take in all; `hint_s` is what
    somebody said of it, and `believed` whether that counts.
    """

    state: WaitState
    kind: WaitKind = WaitKind.UNKNOWN
    since_s: float | None = None
    expected_s: float | None = None
    hint_s: float | None = None
    believed: bool = False


class ShownSessions:
    """A registry's records, as whoever asks sees them. Time by argument (monotonic nanoseconds)."""

    def __init__(self, records: SessionRecords) -> None:
        self._records = records

    def tell(self, sink: SessionSink) -> None:
        """From now on it hears what happens to sessions."""
        self._records.events = sink

    def children(self, session: SessionId) -> tuple[tuple[SessionId, ...], int]:
        """Those that are open, oldest first, `CHILDREN` at most; and how many there are."""
        below = takewhile(lambda one: one.parent == session, self._records.descendants(session))
        found = [one.session for one in below if one.state is SessionState.OPEN]
        return tuple(found[:CHILDREN]), len(found)

    def waiting(self, session: SessionId, now_ns: int) -> Waiting:
        """What a session is doing, or, of one that is not open, nothing that is known."""
        record = self._records.find(session)
        if record.queued:
            return Waiting(WaitState.PENDING)
        if record.running:
            return Waiting(WaitState.RUNNING, since_s=_seconds(now_ns - record.away.since_ns))
        return _idle(record, now_ns)

    def due_ns(self, session: SessionId) -> int | None:
        """When an idle session is expected back, where that is trusted (see `Away.due_ns`)."""
        record = self._records.find(session)
        return None if record.busy else record.away.due_ns()


def _idle(record: SessionRecord, now_ns: int) -> Waiting:
    away = record.away
    if record.state is not SessionState.OPEN or not away.idle:
        return Waiting(WaitState.IDLE)
    believed = away.wait().hint_ns is not None
    return Waiting(
        WaitState.IDLE,
        away.kind,
        _seconds(now_ns - away.since_ns),
        round(away.hint_s if believed else away.gap_s, 3),
        round(away.hint_s, 3) or None,
        believed,
    )


def _seconds(nanoseconds: int) -> float:
    return round(max(0, nanoseconds) / 1e9, 3)
