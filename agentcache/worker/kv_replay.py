"""What late readers are told: the last batches, or all that is there."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import zmq

from agentcache.clock import Clock
from agentcache.errors import CacheError
from agentcache.kv_events import END_SEQ, pack_seq, unpack_seq

BURST: Final = 64
"""Messages that one reader gets before others, and new batches, have their turn."""
PATIENCE_NS: Final = 5_000_000_000
MAX_READERS: Final = 32
ANOTHER_LIFE: Final = -2


class Journal:
    """The last batches by sequence number, bounded in number and bytes. Numbers begin at 0."""

    def __init__(self, max_batches: int, max_bytes: int) -> None:
        self._max_batches = max_batches
        self._max_bytes = max_bytes
        self._payloads: deque[bytes] = deque()
        self._bytes = 0
        self.next_seq = 0

    @property
    def first_seq(self) -> int:
        """The oldest batch that is still here."""
        return self.next_seq - len(self._payloads)

    def add(self, payload: bytes) -> int:
        """Keep a batch; its number. The oldest make room."""
        self._payloads.append(payload)
        self._bytes += len(payload)
        self.next_seq += 1
        while len(self._payloads) > self._max_batches or self._bytes > self._max_bytes:
            self._bytes -= len(self._payloads.popleft())
        return self.next_seq - 1

    def __getitem__(self, seq: int) -> bytes:
        return self._payloads[seq - self.first_seq]


@dataclass(slots=True)
class _Reader:
    """One who asked for a replay: the next number for it, when it last took something, and what it has not got yet of
    a snapshot."""

    next_seq: int
    since_ns: int
    parts: deque[tuple[int, bytes]] = field(default_factory=deque)


class Replays:
    """Answers `start sequence` with every batch from there on and an end marker, as fast as each reader takes them.

    A start that is not in the journal any more, or never was, is answered by batches that clear and then tell of
    everything; they have the last numbers up to that of the last batch that they include. So is one of another
    incarnation, where the request names the topic that it has followed (a frame that only ours know). Who takes nothing
    for five seconds is left.
    """

    def __init__(
        self,
        router: "zmq.Socket[bytes]",
        journal: Journal,
        snapshot: Callable[[int], Sequence[bytes]],
        topic: bytes,
        clock: Clock,
    ) -> None:
        self._router = router
        self._journal = journal
        self._snapshot = snapshot
        self._topic = topic
        self._clock = clock
        self._readers: dict[bytes, _Reader] = {}
        self._kept: tuple[int, Sequence[bytes]] = (END_SEQ, ())
        self.asked = 0
        self.snapshots = 0

    @property
    def busy(self) -> bool:
        """Somebody has not got all yet."""
        return bool(self._readers)

    def take_requests(self) -> None:
        """Read requests that wait. What is none is dropped: this protocol has no word for it."""
        for _ in range(BURST):
            if not self._router.poll(0):
                return
            self._take(*self._router.recv_multipart())

    def _take(self, reader: bytes, *frames: bytes) -> None:
        if len(frames) not in (2, 3) or not (reader in self._readers or len(self._readers) < MAX_READERS):
            return
        try:
            seq = unpack_seq(frames[1])
        except CacheError:
            return
        if frames[2:] not in ((), (self._topic,)):
            seq = ANOTHER_LIFE
        self.asked += 1
        self._readers[reader] = _Reader(seq, self._clock.now_ns())

    def pump(self) -> None:
        """Send what the readers take now. Never waits."""
        now_ns = self._clock.now_ns()
        for identity, reader in list(self._readers.items()):
            if not self._serve(identity, reader, now_ns) or now_ns - reader.since_ns > PATIENCE_NS:
                del self._readers[identity]
        if not self._readers:
            self._kept = (END_SEQ, ())

    def _serve(self, identity: bytes, reader: _Reader, now_ns: int) -> bool:
        """False: it has got everything, or is gone."""
        for _ in range(BURST):
            topic, seq, payload = self._next(reader)
            try:
                self._router.send_multipart([identity, b"", topic, pack_seq(seq), payload], zmq.NOBLOCK)
            except zmq.Again:
                return True
            except zmq.ZMQError:
                return False
            if seq == END_SEQ:
                return False
            if reader.parts:
                reader.parts.popleft()
            reader.next_seq, reader.since_ns = seq + 1, now_ns
        return True

    def _next(self, reader: _Reader) -> tuple[bytes, int, bytes]:
        journal, seq = self._journal, reader.next_seq
        if reader.parts:
            return self._topic, *reader.parts[0]
        if seq == journal.next_seq:
            return b"", END_SEQ, b""
        if journal.first_seq <= seq < journal.next_seq:
            return self._topic, seq, journal[seq]
        last = journal.next_seq - 1
        if self._kept[0] != last:
            self._kept = (last, self._snapshot(journal.next_seq))
        parts = self._kept[1]
        reader.parts.extend(enumerate(parts, journal.next_seq - len(parts)))
        self.snapshots += 1
        return self._topic, *reader.parts[0]
