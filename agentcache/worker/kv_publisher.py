"""Placement events out of the worker: taken on the engine's thread, told on a thread of their own.

engine's thread ──publish──► handover ──► mirror ──► batch ──► journal ──► PUB
                                            └── snapshot ──► replays ◄──► ROUTER
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
import zmq

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
    pack_seq,
    topic_of,
)
from agentcache.types import ComponentSpec, Event
from agentcache.worker.kv_handover import Handover
from agentcache.worker.kv_mirror import Mirror
from agentcache.worker.kv_parts import in_parts
from agentcache.worker.kv_replay import Journal, Replays
from agentcache.worker.kv_sockets import EventSockets, open_sockets, publishes

log = structlog.get_logger(__name__)
RETRY_MS: Final = 10


@dataclass(frozen=True, slots=True)
class KvEventCounts:
    """Since the start: events told, batches, replays asked for, snapshots sent, events dropped."""

    events: int = 0
    batches: int = 0
    replays: int = 0
    snapshots: int = 0
    dropped: int = 0


NO_COUNTS = KvEventCounts()


@dataclass(frozen=True, slots=True)
class Limits:
    """What may pile up. `gather_s` is how long a batch waits for more of the same step.

    `queue` counts tokens, and 16 for a page.
    """

    gather_s: float = 0.002
    queue: int = 4_000_000
    journal_batches: int = 10_000
    journal_bytes: int = 32 * 2**20


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

    def counts(self) -> KvEventCounts: ...


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

    def counts(self) -> KvEventCounts:
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
    if not publishes(settings):
        return NoPublisher(incarnation)
    sockets = open_sockets(settings, seal, incarnation)
    return KvPublisher(sockets, incarnation, now_s, clock or SystemClock())


class KvPublisher:
    """The sink and its thread. The first batch of an incarnation clears: whatever was told before it is void.

    Session events never come here: a type that a reader does not know costs it the whole batch. Should the handover
    ever overflow, what it held is dropped, and readers are told that nothing is there: they believe too little, never
    too much.
    """

    listening = True

    def __init__(
        self,
        sockets: EventSockets,
        incarnation: str,
        now_s: Callable[[], float],
        clock: Clock,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.incarnation = incarnation
        self.events_url = sockets.events_url
        self.replay_url = sockets.replay_url
        self._sockets = sockets
        self._now_s = now_s
        self._gather_s = limits.gather_s
        self._topic = topic_of(incarnation)
        self._journal = Journal(limits.journal_batches, limits.journal_bytes)
        self._replays = Replays(sockets.replay, self._journal, self._snapshot, self._topic, clock)
        self._handover = Handover(limits.queue)
        self._counted = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agentcache-kv-events", daemon=True)

    def publish(self, event: Event) -> None:
        """From one thread only."""
        self._handover.put(event)

    def start(self, components: Sequence[ComponentSpec], page_tokens: int) -> None:
        self._mirror = Mirror(Groups([component_card(spec) for spec in components], page_tokens))
        self._thread.start()

    def close(self) -> None:
        if self._sockets.closed:
            return
        self._closing.set()
        self._handover.ring()
        if self._thread.ident:
            self._thread.join()
        self._sockets.close()
        self._handover.close()

    def counts(self) -> KvEventCounts:
        replays = self._replays
        batches, dropped = self._journal.next_seq, self._handover.dropped
        return KvEventCounts(self._counted, batches, replays.asked, replays.snapshots, dropped)

    def _run(self) -> None:
        try:
            self._tell(self._mirror.clear())
            self._serve()
        except Exception:
            log.exception("kv_events.failed")

    def _serve(self) -> None:
        poller = zmq.Poller()
        poller.register(self._handover.bell, zmq.POLLIN)
        poller.register(self._sockets.replay, zmq.POLLIN)
        while not self._closing.is_set():
            poller.poll(RETRY_MS if self._replays.busy else None)
            if self._handover.waiting:
                self._closing.wait(self._gather_s)
            self._tell_waiting()
            self._replays.take_requests()
            self._replays.pump()
        self._tell_waiting()

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
        payload = encode_batch(Batch(self._now_s(), told))
        seq = self._journal.add(payload)
        self._sockets.events.send_multipart([self._topic, pack_seq(seq), payload])
        self._counted += len(told)

    def _snapshot(self, most: int) -> tuple[bytes, ...]:
        return in_parts(self._now_s(), self._mirror.snapshot(), most)
