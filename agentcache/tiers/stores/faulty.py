"""A store that fails on purpose, for tests: seeded faults, and gates that hold calls until a test lets them go.

    store = FaultyStore(MemoryStore(1 << 20), random.Random(7), {Fault.CORRUPT: 0.1, Fault.FAIL: 0.01})
    store.faults = {}                              # from here on all is well

    with store.hold(Call.GET) as gate:             # a store that hangs
        tier.submit_load(transfer)
        gate.wait_for(1)                           # the call is in there now; no sleeping, no guessing
        ...                                        # what the scheduler does meanwhile
        gate.open()                                # or gate.fail(): the call ends with STORE_FAILED

One seed gives one history only if one thread calls; with several, which call meets which fault is up to the threads.
"""

import random
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum

from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import Keep
from agentcache.tiers.stores.api import BlobStore, StoreStatus

PATIENCE_S = 10.0  # how long a test waits for a call to arrive before it fails
REMEMBERED_OBJECTS = 8


class Fault(StrEnum):
    """What may go wrong. The rate is per call for FAIL, else per object."""

    FAIL = "fail"  # any call: STORE_FAILED, and nothing done
    FAIL_AFTER = "fail_after"  # any call: done, but the answer is STORE_FAILED
    LYING = "lying"  # exists: there, though it is not
    HIDDEN = "hidden"  # exists: not there, though it is
    MISSING = "missing"  # get: not there, though it is
    CORRUPT = "corrupt"  # get: one bit flipped
    CUT = "cut"  # get: cut short
    LONGER = "longer"  # get: with bytes after its end
    SWAPPED = "swapped"  # get: another object's bytes
    REFUSED = "refused"  # put: no room
    LOST = "lost"  # put: accepted, but not kept


class Call(StrEnum):
    """The calls that a gate can hold."""

    EXISTS = "exists"
    GET = "get"
    PUT = "put"
    RETAIN = "retain"
    USE = "use"  # a retain without a class
    REMOVE = "remove"
    STATUS = "status"


class Moment(StrEnum):
    """Where a gate stands."""

    BEFORE = "before"  # nothing has been done yet
    AFTER = "after"  # done, and the answer is on its way


class Gate:
    """Holds calls as they come in until it is opened; several threads may wait in it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._held = 0
        self._passes = 0
        self._is_open = False
        self._fails = False

    def wait_for(self, calls: int, patience_s: float = PATIENCE_S) -> None:
        """Return once so many calls are held at the same time.

        Errors  TimeoutError when they do not come
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._held >= calls, patience_s):
                raise TimeoutError(f"{self._held} of {calls} calls came within {patience_s} s")

    @property
    def held(self) -> int:
        """How many calls stand in the gate now."""
        with self._changed:
            return self._held

    def step(self) -> None:
        """Let one call through, the one held now or the next to come."""
        with self._changed:
            self._passes += 1
            self._changed.notify_all()

    def open(self) -> None:
        """Let every call through, from now on."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def fail(self) -> None:
        """Let every call through, from now on, to end with STORE_FAILED."""
        with self._changed:
            self._fails = True
        self.open()

    def enter(self) -> None:
        """Stand in the gate until it lets this call through.

        Errors  CacheError(STORE_FAILED) after `fail`
        """
        with self._changed:
            self._held += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_open or self._passes > 0)
            self._held -= 1
            self._passes -= not self._is_open
            self._changed.notify_all()
            if self._fails:
                raise CacheError(Kind.STORE_FAILED, "the store broke off, on purpose")


class FaultyStore:
    """Another store with faults. `store` may be replaced: one that was restarted empty is a new one.

    `happened` counts the faults that were dealt, so that a test can say that it met some.
    """

    def __init__(
        self, store: BlobStore, chance: random.Random, faults: Mapping[Fault, float] | None = None
    ) -> None:
        self.store = store
        self.faults: Mapping[Fault, float] = dict(faults or {})
        self.happened: Counter[Fault] = Counter()
        self._chance = chance
        self._lock = threading.Lock()
        self._gates: list[tuple[Gate, Moment, frozenset[Call]]] = []
        self._seen: OrderedDict[str, bytes] = OrderedDict()

    @property
    def name(self) -> str:
        return self.store.name

    @contextmanager
    def hold(self, *calls: Call, moment: Moment = Moment.BEFORE) -> Iterator[Gate]:
        """A gate for these calls (all of them if none is named); leaving the block opens it."""
        gate = Gate()
        entry = (gate, moment, frozenset(calls or Call))
        with self._lock:
            self._gates.append(entry)
        try:
            yield gate
        finally:
            with self._lock:
                self._gates.remove(entry)
            gate.open()

    def exists(self, names: Sequence[str]) -> list[bool]:
        with self._call(Call.EXISTS):
            return [self._answer(there) for there in self.store.exists(names)]

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        with self._call(Call.GET):
            found = zip(names, self.store.get(names), strict=True)
            return [self._spoil(name, data) if data else data for name, data in found]

    def put(self, objects: Sequence[tuple[str, bytes]], keep: Keep) -> list[bool]:
        with self._call(Call.PUT):
            for name, data in objects:
                self._remember(name, data)
            return [self._put(name, data, keep) for name, data in objects]

    def retain(self, names: Sequence[str], keep: Keep | None) -> None:
        with self._call(Call.RETAIN if keep else Call.USE):
            self.store.retain(names, keep)

    def remove(self, names: Sequence[str]) -> None:
        with self._call(Call.REMOVE):
            self.store.remove(names)

    def status(self) -> StoreStatus:
        with self._call(Call.STATUS):
            return self.store.status()

    def close(self) -> None:
        """Open every gate, so that no thread stays behind, and close the store."""
        with self._lock:
            gates = [gate for gate, _, _ in self._gates]
        for gate in gates:
            gate.open()
        self.store.close()

    @contextmanager
    def _call(self, call: Call) -> Iterator[None]:
        self._stand(call, Moment.BEFORE)
        if self._deals(Fault.FAIL):
            raise CacheError(Kind.STORE_FAILED, "the store failed, on purpose", call=str(call))
        yield
        self._stand(call, Moment.AFTER)
        if self._deals(Fault.FAIL_AFTER):
            raise CacheError(Kind.STORE_FAILED, "the store failed after the fact, on purpose", call=str(call))

    def _stand(self, call: Call, moment: Moment) -> None:
        with self._lock:
            gates = [gate for gate, at, calls in self._gates if at == moment and call in calls]
        for gate in gates:
            gate.enter()

    def _deals(self, fault: Fault) -> bool:
        with self._lock:
            dealt = self._chance.random() < self.faults.get(fault, 0.0)
            if dealt:
                self.happened[fault] += 1
            return dealt

    def _answer(self, there: bool) -> bool:
        return not self._deals(Fault.HIDDEN) if there else self._deals(Fault.LYING)

    def _put(self, name: str, data: bytes, keep: Keep) -> bool:
        if self._deals(Fault.REFUSED):
            return False
        if self._deals(Fault.LOST):
            return True
        return self.store.put([(name, data)], keep)[0]

    def _spoil(self, name: str, data: bytes) -> bytes | None:
        self._remember(name, data)
        if self._deals(Fault.MISSING):
            return None
        if self._deals(Fault.CORRUPT):
            data = self._flip(data)
        if self._deals(Fault.CUT):
            data = data[: self._below(len(data))]
        if self._deals(Fault.LONGER):
            data += data[:1] or b"\0"
        return self._other(name) if self._deals(Fault.SWAPPED) else data

    def _flip(self, data: bytes) -> bytes:
        spoilt = bytearray(data)
        spoilt[self._below(len(data))] ^= 1 << self._below(8)
        return bytes(spoilt)

    def _below(self, limit: int) -> int:
        with self._lock:
            return self._chance.randrange(limit)

    def _remember(self, name: str, data: bytes) -> None:
        with self._lock:
            self._seen[name] = data
            self._seen.move_to_end(name)
            if len(self._seen) > REMEMBERED_OBJECTS:
                self._seen.popitem(last=False)

    def _other(self, name: str) -> bytes | None:
        """The bytes of another object; nothing where none was seen yet."""
        with self._lock:
            others = [data for seen, data in self._seen.items() if seen != name]
            return self._chance.choice(others) if others else None
