"""Placement events out of the worker: taken on the engine's thread, told on a thread of their own.

engine's thread ──publish──► handover ──► mirror ──► batch ──► journal ──► PUB
                                            └── snapshot ──► replays ◄──► ROUTER
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from agentcache.clock import Clock, SystemClock
from agentcache.config import Settings
from agentcache.events import EventSink
from agentcache.kv_events import (
    OPEN,
    Batch,
    BlockEvent,
    Groups,
    Seal,
    component_card,
    encode_batch,
    topic_of,
)
from agentcache.types import ComponentSpec, Event
from agentcache.worker.kv_handover import Handover, weight
from agentcache.worker.kv_mirror import Mirror
from agentcache.worker.kv_parts import in_parts
from agentcache.worker.kv_sockets import EventSockets, open_sockets, publishes
from agentcache.worker.kv_telling import NO_COUNTS, EventCounts, Limits, Telling

log = structlog.get_logger(__name__)


DEFAULT_LIMITS = Limits()


class Publisher(EventSink, Protocol):
    """An event sink with addresses, "" where nobody can listen. `incarnation` is new with every start of a worker."""

    incarnation: str
    events_url: str
    replay_url: str

    def start(self, components: Sequence[ComponentSpec], page_tokens: int) -> None:
        """Begin to tell, once the engine has been built; what was published before then has waited."""

    def close(self) -> None:
        """Tell what is left, and let go of thread and sockets. Idempotent."""

    def counts(self) -> EventCounts: ...


class NoPublisher:
    """A worker that nobody listens to."""

    listening = False
    events_url = ""
    replay_url = ""

    def __init__(self, incarnation: str = "") -> None:
        self.incarnation = incarnation

    def publish(self, event: Event) -> None:
        """Dropped."""

    def start(self, components: Sequence[ComponentSpec], page_tokens: int) -> None:
        """Nothing begins."""

    def close(self) -> None:
        """Nothing ends."""

    def counts(self) -> EventCounts:
        return NO_COUNTS


NO_PUBLISHER = NoPublisher()


def open_publisher(
    settings: Settings,
    incarnation: str,
    now_s: Callable[[], float],
    clock: Clock | None = None,
    seal: Seal = OPEN,
) -> Publisher:
    """A publisher whose sockets are bound, or none where nobody wants events. Errors: as `open_sockets`."""
    if not publishes(settings, settings.kv_events):
        return NoPublisher(incarnation)
    sockets = open_sockets(settings, seal, incarnation, settings.kv_events)
    return KvPublisher(sockets, incarnation, now_s, clock or SystemClock())


class KvPublisher(Telling[Event]):
    """The sink and its thread. The first batch of an incarnation clears: whatever was told before it is void.

    Session events never come here: a type that a reader does not know costs it the whole batch. Should the handover
    ever overflow, what it held is dropped, and readers are told that nothing is there: they believe too little, never
    too much.
    """

    listening = True
    name = "agentcache-kv-events"

    def __init__(
        self,
        sockets: EventSockets,
        incarnation: str,
        now_s: Callable[[], float],
        clock: Clock,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(sockets, topic_of(incarnation), Handover(limits.queue, weight), clock, limits)
        self.incarnation = incarnation
        self._now_s = now_s

    def publish(self, event: Event) -> None:
        """From one thread only."""
        self._handover.put(event)

    def start(self, components: Sequence[ComponentSpec], page_tokens: int) -> None:
        self._mirror = Mirror(Groups([component_card(spec) for spec in components], page_tokens))
        self._thread.start()

    def _begin(self) -> None:
        self._tell(self._mirror.clear())

    def _tell_waiting(self) -> None:
        """All that waits as one batch; where something was dropped, nothing that was told can be vouched for."""
        events, lost = self._handover.take()
        if lost:
            log.error("kv_events.overflow", dropped=self._handover.dropped)
            self._tell(self._mirror.clear())
        self._tell([told for event in events for told in self._mirror.take(event)])

    def _tell(self, told: list[BlockEvent]) -> None:
        if not told:
            return
        self._send(encode_batch(Batch(self._now_s(), told)), len(told))

    def _snapshot(self, most: int) -> tuple[bytes, ...]:
        return in_parts(self._now_s(), self._mirror.snapshot(), most)
