"""An external tier in a test: pools that hold real bytes and know who may touch them, paths of pages, and a tier."""

import hashlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from agentcache.clock import ManualClock
from agentcache.tiers.api import JobResult, Keep, Presence, SlotBytes, Transfer
from agentcache.tiers.external import ExternalRules, StoredTier
from agentcache.tiers.stores.api import BlobStore, StoreStatus
from agentcache.tiers.stores.faulty import Call, FaultyStore
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.types import FULL, MAMBA, SWA, ComponentName, Job, Piece, PoolName, Slots, TierName

PAGE = 4
SLOT_BYTES = {FULL: 48, SWA: 32, MAMBA: 100}
PATIENCE_S = 60.0
PATIENT = ExternalRules(deadline_s=PATIENCE_S)
"""`drain` waits as long in real time as deadlines leave by the clock."""


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"


class GuardedBytes:
    """Slots of bytes, each open to the tier from its submission to its report; every other touch is written down."""

    parts = 1

    def __init__(self, layout: str, slot_bytes: int, slots: int) -> None:
        self.layout = layout
        self.slot_bytes = slot_bytes
        self.data = [bytes([255]) * slot_bytes for _ in range(slots)]
        self.allowed: set[int] = set()
        self.trespasses: list[int] = []

    def copy_part(self, part: int, slots: Slots, target: SlotBytes, target_slots: Slots) -> None:
        raise AssertionError("an external tier reads and writes slot by slot")

    def read(self, slot: int) -> bytes:
        self._enter(slot)
        return self.data[slot]

    def write(self, slot: int, payload: bytes | memoryview) -> None:
        self._enter(slot)
        assert len(payload) == self.slot_bytes
        self.data[slot] = bytes(payload)

    def _enter(self, slot: int) -> None:
        if slot not in self.allowed:
            self.trespasses.append(slot)


def payload(component: ComponentName, page_hash: bytes) -> bytes:
    """What the page or state of that name is, always."""
    size = SLOT_BYTES[component]
    return (hashlib.sha256(page_hash + component.encode()).digest() * (size // 32 + 1))[:size]


def path(pages: int, seed: int = 0) -> tuple[bytes, ...]:
    return tuple(hashlib.sha256(f"{seed}/{page}".encode()).digest() for page in range(pages))


def piece(component: ComponentName, start: int, end: int, slots: Sequence[int]) -> Piece:
    return Piece(component, start, end, np.array(slots, dtype=np.int32))


def full(pages: int, first_slot: int = 0) -> Piece:
    return piece(FULL, 0, pages * PAGE, range(first_slot, first_slot + pages))


def extents(result: JobResult) -> list[tuple[str, int, int, list[int]]]:
    """Landed pieces in plain values."""
    return [(part.component, part.start, part.end, part.slots.tolist()) for part in result.landed]


def ends(part: Piece) -> Iterator[tuple[int, int]]:
    """Slot and end of each page of a piece, or of its state."""
    for place, slot in enumerate(part.slots.tolist()):
        yield slot, part.end if part.start == part.end else part.start + (place + 1) * PAGE


class Watched:
    """Another store, and how often each of its calls has begun and ended."""

    def __init__(self, store: BlobStore) -> None:
        self.store = store
        self.retained: list[list[str]] = []
        self.used: list[list[str]] = []
        self._begun: Counter[Call] = Counter()
        self._ended: Counter[Call] = Counter()
        self._changed = threading.Condition()

    @property
    def name(self) -> str:
        return self.store.name

    def begun(self, call: Call) -> int:
        with self._changed:
            return self._begun[call]

    def wait_for(self, call: Call, begun: int) -> None:
        """Return once this call has begun so often: what an earlier one of the same job led to is done by then."""
        self._wait(self._begun, call, begun)

    def wait_for_end(self, call: Call, ended: int) -> None:
        self._wait(self._ended, call, ended)

    def _wait(self, counts: Counter[Call], call: Call, so_often: int) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: counts[call] >= so_often, PATIENCE_S)
            assert done, f"{call} came {counts[call]} times, not {so_often}"

    def exists(self, names: Sequence[str]) -> list[bool]:
        with self._counted(Call.EXISTS):
            return self.store.exists(names)

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        with self._counted(Call.GET):
            return self.store.get(names)

    def put(self, objects: Sequence[tuple[str, bytes]], keep: Keep) -> list[bool]:
        with self._counted(Call.PUT):
            return self.store.put(objects, keep)

    def retain(self, names: Sequence[str], keep: Keep | None) -> None:
        call = Call.RETAIN if keep else Call.USE
        with self._counted(call):
            (self.retained if keep else self.used).append(list(names))
            self.store.retain(names, keep)

    def remove(self, names: Sequence[str]) -> None:
        with self._counted(Call.REMOVE):
            self.store.remove(names)

    def status(self) -> StoreStatus:
        with self._counted(Call.STATUS):
            return self.store.status()

    def close(self) -> None:
        self.store.close()

    @contextmanager
    def _counted(self, call: Call) -> Iterator[None]:
        self._count(self._begun, call)
        try:
            yield
        finally:
            self._count(self._ended, call)

    def _count(self, counts: Counter[Call], call: Call) -> None:
        with self._changed:
            counts[call] += 1
            self._changed.notify_all()


class World:
    """Host pools of three components around one external tier. `ended` is set whenever the tier says so."""

    def __init__(
        self, store: BlobStore | None = None, rules: ExternalRules | None = None, slots: int = 64
    ) -> None:
        self.memory = MemoryStore(1 << 24)
        self.store = FaultyStore(store or self.memory, random.Random(1))
        self.watched = Watched(self.store)
        self.clock = ManualClock(10**12)
        self.pools = {name: GuardedBytes(f"{name}-v1", size, slots) for name, size in SLOT_BYTES.items()}
        self.ended = threading.Event()
        self.numbers = iter(range(1, 1 << 30))
        named: Mapping[PoolName, SlotBytes] = {
            PoolName(name, tier): pool
            for name, pool in self.pools.items()
            for tier in (TierName.HOST, TierName.DEVICE)
        }
        self.rules = rules or ExternalRules(deadline_s=5.0, deadline_per_mib_s=0.01)
        self.tier = StoredTier(self.watched, named, PAGE, self.clock, self.rules, self.ended.set)
        self.upkept()  # the first figures, which a new tier asks for

    def fill(self, parts: Sequence[Piece], hashes: Sequence[bytes]) -> None:
        """The right bytes in the slots of these pieces."""
        for part in parts:
            for slot, end in ends(part):
                self.pools[part.component].data[slot] = payload(part.component, hashes[end // PAGE - 1])

    def holds(self, parts: Sequence[Piece], hashes: Sequence[bytes]) -> bool:
        """The slots of these pieces have the right bytes."""
        return all(
            self.pools[part.component].data[slot] == payload(part.component, hashes[end // PAGE - 1])
            for part in parts
            for slot, end in ends(part)
        )

    def allow(self, parts: Sequence[Piece]) -> None:
        for part in parts:
            self.pools[part.component].allowed.update(part.slots.tolist())

    def forbid(self, parts: Sequence[Piece]) -> None:
        for part in parts:
            self.pools[part.component].allowed.difference_update(part.slots.tolist())

    def submit_store(self, parts: Sequence[Piece], hashes: Sequence[bytes], keep: Keep = Keep.LOOSE) -> int:
        job = Job(next(self.numbers), TierName.HOST, TierName.EXTERNAL, tuple(parts))
        self.fill(parts, hashes)
        self.allow(parts)
        self.tier.submit_store(Transfer(job, tuple(parts), tuple(hashes), keep))
        return job.number

    def submit_load(self, parts: Sequence[Piece], hashes: Sequence[bytes]) -> int:
        bare = tuple(Piece(part.component, part.start, part.end) for part in parts)
        job = Job(-next(self.numbers), TierName.EXTERNAL, TierName.HOST, bare)
        self.allow(parts)
        self.tier.submit_load(Transfer(job, tuple(parts), tuple(hashes)))
        return job.number

    def hang(self, call: Call, jobs: int = 1, seed: int = 100) -> list[int]:
        """So many jobs, each with a thread that stands in this call. The caller holds the gate."""
        begun = self.watched.begun(call)
        submit = self.submit_load if call is Call.GET else self.submit_store
        numbers = []
        for k in range(jobs):
            numbers.append(submit([full(1, 40 + k)], path(1, seed + k)))
            self.watched.wait_for(call, begun + k + 1)
        return numbers

    def advance_s(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1e9))

    def wait(self, jobs: int = 1) -> list[JobResult]:
        """Poll until so many jobs were reported, woken by the tier alone."""
        results: list[JobResult] = []
        while True:
            self.ended.clear()
            results += self.tier.poll()
            if len(results) >= jobs:
                return results
            assert self.ended.wait(PATIENCE_S), f"{len(results)} of {jobs} jobs ended"

    def stored(self, parts: Sequence[Piece], hashes: Sequence[bytes], keep: Keep = Keep.LOOSE) -> JobResult:
        """Store and wait."""
        self.submit_store(parts, hashes, keep)
        (result,) = self.wait()
        self.forbid(parts)
        return result

    def loaded(self, parts: Sequence[Piece], hashes: Sequence[bytes]) -> JobResult:
        """Load into slots of junk, and wait."""
        self.submit_load(parts, hashes)
        (result,) = self.wait()
        self.forbid(parts)
        return result

    def presence(self, hashes: Sequence[bytes], component: ComponentName = FULL) -> tuple[Presence, ...]:
        """Look up until nothing is PENDING, woken by the tier alone."""
        wanted = [(component, one) for one in hashes]
        while True:
            self.ended.clear()
            answers = self.tier.lookup(wanted)
            if Presence.PENDING not in answers:
                return answers
            assert self.ended.wait(PATIENCE_S), "the question never ended"

    def upkept(self) -> None:
        """Return once no thread has upkeep to do, which each job leaves behind."""
        until(lambda: not self.tier._upkeep._queued)

    def settle(self) -> None:
        """No thread is at anything any more: nothing is left, and nothing was touched that was not to be."""
        self.tier.close()
        self.tier.poll()
        assert self.tier._flights == {}
        assert self.tier._queued_bytes == 0
        assert [pool.trespasses for pool in self.pools.values()] == [[], [], []]
