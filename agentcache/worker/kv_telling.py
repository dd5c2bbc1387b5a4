"""What all publishers are: a thread that tells what another one hands over, and replays it to whoever asks.

another thread ──► handover ──► batch ──► journal ──► PUB
                                             └── replays ◄──► ROUTER
"""

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog
import zmq

from agentcache.clock import Clock
from agentcache.kv_events import pack_seq
from agentcache.worker.kv_handover import Handover
from agentcache.worker.kv_replay import Journal, Replays
from agentcache.worker.kv_sockets import EventSockets

log = structlog.get_logger(__name__)
RETRY_MS: Final = 10
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EventCounts:
    """Since the start: events told, batches, replays asked for, snapshots sent, events dropped."""

    events: int = 0
    batches: int = 0
    replays: int = 0
    snapshots: int = 0
    dropped: int = 0


NO_COUNTS = EventCounts()


@dataclass(frozen=True, slots=True)
class Limits:
    """What may pile up. `gather_s` is how long a batch waits for more of the same step.

    `queue` counts, of placement events, tokens, and 16 for a page; of session events these.
    """

    gather_s: float = 0.002
    queue: int = 4_000_000
    journal_batches: int = 10_000
    journal_bytes: int = 32 * 2**20


class Telling(ABC, Generic[T]):
    """A thread over bound sockets. What differs between publishers is how a batch is made of what was handed over.

    Implementer  `_begin`, `_tell_waiting` and `_snapshot`, all on this thread
    """

    name: str = "agentcache-events"

    def __init__(
        self, sockets: EventSockets, topic: bytes, handover: Handover[T], clock: Clock, limits: Limits
    ) -> None:
        self.events_url = sockets.events_url
        self.replay_url = sockets.replay_url
        self._sockets = sockets
        self._gather_s = limits.gather_s
        self._topic = topic
        self._journal = Journal(limits.journal_batches, limits.journal_bytes)
        self._replays = Replays(sockets.replay, self._journal, self._snapshot, topic, clock)
        self._handover = handover
        self._counted = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def close(self) -> None:
        """Tell what is left, and let go of thread and sockets. Idempotent."""
        if self._sockets.closed:
            return
        self._closing.set()
        self._handover.ring()
        if self._thread.ident:
            self._thread.join()
        self._sockets.close()
        self._handover.close()

    def counts(self) -> EventCounts:
        replays = self._replays
        batches, dropped = self._journal.next_seq, self._handover.dropped
        return EventCounts(self._counted, batches, replays.asked, replays.snapshots, dropped)

    @abstractmethod
    def _begin(self) -> None:
        """Tell the first batch of an incarnation: there is one always."""

    @abstractmethod
    def _tell_waiting(self) -> None:
        """Tell all that waits."""

    @abstractmethod
    def _snapshot(self, most: int) -> tuple[bytes, ...]:
        """The payloads of `most` messages at most, for who asks for what is not in the journal any more."""

    def _run(self) -> None:
        try:
            self._begin()
            self._serve()
        except Exception:
            log.exception("kv_events.failed", thread=self.name)

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

    def _send(self, payload: bytes, events: int) -> None:
        """Publish one message, and keep it for replays."""
        seq = self._journal.add(payload)
        self._sockets.events.send_multipart([self._topic, pack_seq(seq), payload])
        self._counted += events
