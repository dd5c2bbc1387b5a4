"""Session events out of the worker, on sockets of their own; a reader that is slow, or dead, holds nobody up."""

from collections.abc import Callable
from typing import Final, Protocol

import structlog

from agentcache.clock import Clock, SystemClock
from agentcache.config import Settings
from agentcache.kv_events import OPEN, Seal
from agentcache.session_events import SessionEvent, SessionSink
from agentcache.session_feed import (
    SessionBatch,
    SessionEventsLost,
    SessionTold,
    encode_sessions,
    session_topic,
    told,
)
from agentcache.worker.kv_handover import Handover
from agentcache.worker.kv_sockets import EventSockets, open_sockets, publishes
from agentcache.worker.kv_telling import NO_COUNTS, EventCounts, Limits, Telling

log = structlog.get_logger(__name__)
MOST_TOLD: Final = 1_000
"""Events of one message: the close of a large tree must not be larger than the journal."""
SYSTEM_CLOCK = SystemClock()
DEFAULT_LIMITS = Limits(queue=100_000, journal_bytes=8 * 2**20)


class SessionPublisher(SessionSink, Protocol):
    """A sink with addresses, "" where nobody can listen."""

    events_url: str
    replay_url: str

    def start(self) -> None:
        """Begin to tell; what happened before then has waited."""

    def close(self) -> None:
        """Tell what is left, and let go of thread and sockets. Idempotent."""

    def counts(self) -> EventCounts: ...


class NoSessionPublisher:
    """A worker whose sessions nobody hears of."""

    listening = False
    events_url = ""
    replay_url = ""

    def happened(self, event: SessionEvent) -> None:
        """Dropped."""

    def start(self) -> None:
        """Nothing begins."""

    def close(self) -> None:
        """Nothing ends."""

    def counts(self) -> EventCounts:
        return NO_COUNTS


NO_SESSION_PUBLISHER = NoSessionPublisher()


def open_session_publisher(
    settings: Settings,
    incarnation: str,
    now_s: Callable[[], float],
    seal: Seal = OPEN,
) -> SessionPublisher:
    """A publisher whose sockets are bound, or none where nobody wants events. Errors: as `open_sockets`."""
    if not publishes(settings, settings.session_events):
        return NO_SESSION_PUBLISHER
    sockets = open_sockets(settings, seal, f"{incarnation[:5]}s", settings.session_events)
    return ToldSessions(sockets, incarnation, now_s, routed=bool(settings.router_dir or settings.redis_url))


class ToldSessions(Telling[SessionEvent]):
    """The sink and its thread. The first batch of an incarnation is empty.

    A replay from before the journal's beginning is answered from there on. Should the handover ever overflow, what it
    held is dropped, and readers are told how much.
    """

    listening = True
    name = "agentcache-session-events"

    def __init__(
        self,
        sockets: EventSockets,
        incarnation: str,
        now_s: Callable[[], float],
        routed: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        super().__init__(
            sockets, session_topic(incarnation), Handover(limits.queue, lambda _: 1), clock, limits
        )
        self._now_s = now_s
        self._routed = routed
        self._lost = 0

    def happened(self, event: SessionEvent) -> None:
        """From one thread only."""
        self._handover.put(event)

    def start(self) -> None:
        self._thread.start()

    def _begin(self) -> None:
        self._tell([])

    def _tell_waiting(self) -> None:
        events, lost = self._handover.take()
        if lost:
            log.error("session_events.overflow", dropped=self._handover.dropped)
            before, self._lost = self._lost, self._handover.dropped
            self._tell([SessionEventsLost(self._lost - before)])
        for first in range(0, len(events), MOST_TOLD):
            some = events[first : first + MOST_TOLD]
            self._tell([told(event, self._routed) for event in some])

    def _tell(self, said: list[SessionTold]) -> None:
        self._send(encode_sessions(SessionBatch(self._now_s(), said)), len(said))

    def _snapshot(self, most: int) -> tuple[bytes, ...]:
        """All that is in the journal, under its own numbers."""
        journal = self._journal
        return tuple(journal[seq] for seq in range(journal.first_seq, journal.next_seq))
