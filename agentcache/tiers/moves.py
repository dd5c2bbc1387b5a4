"""What the threads of an external tier do: loads, stores, questions, a probe. Step by step, each step one or two calls.

A store may fail in any way, lie, or come back after everybody has gone; no fault leaves a step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from agentcache.clock import Clock
from agentcache.tiers.api import Keep, Presence
from agentcache.tiers.flights import Flight, Page, ends_path, trail
from agentcache.tiers.knowledge import Identity
from agentcache.tiers.rules import ExternalRules
from agentcache.tiers.standing import Standing
from agentcache.tiers.stores.api import BlobStore
from agentcache.tiers.stores.objects import pack, unpack

ONE_PATH_PERCENT = 75
"""Of a store for one path; objects take more room than their bytes."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What all work of one tier shares. `wake` tells the engine to look, `used` takes the order of use of objects."""

    store: BlobStore
    standing: Standing
    rules: ExternalRules
    clock: Clock
    wake: Callable[[], None]
    used: Callable[[Iterator[Identity]], None]


class _FlightWork(ABC):
    """A flight and its pages in walk order, one batch a step. The last batch ends the flight, or the first fault.

    The walk begins at the root, so that what a deadline cuts off can be used, and leaves the root as what was used
    first. A path that is through, or cut off, is therefore used once more, deepest first: what leaves the store next is
    its end. Between the stretches of one path that is left out.
    """

    def __init__(self, desk: Desk, flight: Flight, page_tokens: int) -> None:
        self._desk = desk
        self._flight = flight
        self._page_tokens = page_tokens
        self._pages = flight.pages(page_tokens)
        self._all = self._left = sum(len(target.slots) for target in flight.transfer.targets)

    @property
    def live(self) -> bool:
        return self._flight.open

    def step(self) -> bool:
        more = False
        try:
            more = self._left > 0 and self._desk.standing.asking and self._flight.open and self._next()
        except Exception as fault:  # whatever a store comes up with, the thread goes on
            self._failed(fault)
        else:
            if not more:
                self._use()
        if not more and self._flight.close():
            self._desk.wake()
        return more

    def _use(self) -> None:
        """Later, when nothing else is to do."""
        transfer, page = self._flight.transfer, self._page_tokens
        if self._left or ends_path(transfer, page):
            self._desk.used(trail(transfer, self._all - self._left, page))

    def _next(self) -> bool:
        batch = list(islice(self._pages, min(self._left, self._batch_pages())))
        self._left -= len(batch)
        self._move(batch)
        return self._left > 0 and self._flight.open

    def _batch_pages(self) -> int:
        """As many as go into `batch_bytes`, one at least, by the largest slot of the flight."""
        rules = self._desk.rules
        largest = max((pool.slot_bytes for pool in self._flight.pools), default=0)
        return min(rules.batch_objects, max(1, rules.batch_bytes // max(1, largest)))

    @abstractmethod
    def _move(self, batch: list[Page]) -> None:
        """Take one batch across. Errors: whatever the store raises."""

    def _calls(self, pages: Sequence[Page]) -> None:
        """The store is about to be asked for these."""
        self._flight.calling = tuple(page.identity for page in pages)

    def _called(self) -> None:
        """A call came back. In time, it speaks for the store, though the flight may have been cancelled meanwhile."""
        self._flight.calling = ()
        if self._desk.clock.now_ns() < self._flight.terms.deadline_ns:
            self._desk.standing.succeeded()

    def _failed(self, fault: Exception) -> None:
        """A flight that ended late has been counted already."""
        self._flight.calling = ()
        if not self._flight.late:
            self._desk.standing.failed(f"{type(fault).__name__}: {fault}")


class LoadWork(_FlightWork):
    """Objects to slots. Each is verified before its slot is touched; what is not what was asked for is removed."""

    def _move(self, batch: list[Page]) -> None:
        found = self._get(batch)
        missing = [page for page, raw in found if raw is None]
        refused: list[Page] = []
        landed: list[Page] = []
        for page, raw in found:
            if raw is not None:
                self._place(page, raw, landed, refused)
        if self._flight.open:
            standing = self._desk.standing
            standing.learn([page.identity for page in landed], Presence.HIT)
            standing.learn([page.identity for page in missing + refused], Presence.MISS)
            standing.count(loaded=len(landed), missed=len(missing), refused=len(refused))
            self._remove(refused)

    def _get(self, batch: list[Page]) -> list[tuple[Page, bytes | None]]:
        """A read that fails is believed to be a miss for a while: what cannot be read is not asked for again."""
        self._calls(batch)
        try:
            found = list(zip(batch, self._desk.store.get([page.name for page in batch]), strict=True))
        except Exception:
            self._desk.standing.learn([page.identity for page in batch], Presence.MISS)
            raise
        self._called()
        return found

    def _place(self, page: Page, raw: bytes, landed: list[Page], refused: list[Page]) -> None:
        """Write an object to its slot if it is what was asked for. Neither, once the flight is closed."""
        component, _ = page.identity
        payload = unpack(page.name, component, page.pool.layout, page.pool.slot_bytes, raw)
        if payload is None:
            refused.append(page)
        elif self._flight.write(page, payload):
            landed.append(page)

    def _remove(self, pages: list[Page]) -> None:
        if pages:
            self._calls(pages)
            self._desk.store.remove([page.name for page in pages])
            self._called()


class StoreWork(_FlightWork):
    """Slots to objects. What is there already, as far as is remembered or as the store says, is not read or sent.

    Of a path that is longer than the store the end is left out: it would push out the beginning.
    """

    def __init__(self, desk: Desk, flight: Flight, page_tokens: int) -> None:
        super().__init__(desk, flight, page_tokens)
        held = desk.standing.status()
        if held.capacity_bytes and held.used_bytes is not None:  # else it is one of several that lend room
            self._all = self._left = _fitting(flight, held.capacity_bytes * ONE_PATH_PERCENT // 100)

    def _move(self, batch: list[Page]) -> None:
        marks = self._desk.standing.marked(page.identity for page in batch)
        unknown = [page for page, marked in zip(batch, marks, strict=True) if not marked]
        there = [page for page, marked in zip(batch, marks, strict=True) if marked]
        if unknown:
            found = self._exist(unknown)
            there += [page for page, present in found if present]
            unknown = [page for page, present in found if not present]
        self._land_present(there)
        self._put(unknown)

    def _exist(self, pages: list[Page]) -> list[tuple[Page, bool]]:
        self._calls(pages)
        found = list(zip(pages, self._desk.store.exists([page.name for page in pages]), strict=True))
        self._called()
        self._desk.standing.learn([page.identity for page, present in found if present], Presence.HIT)
        return found

    def _land_present(self, pages: list[Page]) -> None:
        keep = self._flight.transfer.keep
        if pages and keep is Keep.REFERENCED and self._flight.open:
            self._calls(pages)
            self._desk.store.retain([page.name for page in pages], keep)
            self._called()
        self._flight.land(pages)

    def _put(self, pages: list[Page]) -> None:
        packed = list(self._packed(pages))
        if not packed or not self._flight.open:
            return
        self._calls([page for page, _ in packed])
        objects = [(page.name, raw) for page, raw in packed]
        kept = self._desk.store.put(objects, self._flight.transfer.keep)
        stored = [page for (page, _), held in zip(packed, kept, strict=True) if held]
        self._called()
        self._desk.standing.learn([page.identity for page in stored], Presence.HIT)
        self._desk.standing.count(stored=len(stored))
        self._flight.land(stored)

    def _packed(self, pages: list[Page]) -> Iterator[tuple[Page, bytes]]:
        """Objects of the pages, up to where the flight was closed."""
        for page in pages:
            payload = self._flight.read(page)
            if payload is None:
                return
            component, _ = page.identity
            yield page, pack(page.name, component, page.pool.layout, payload)


def _fitting(flight: Flight, room_bytes: int) -> int:
    """How many slots of a walk have bytes for so much room."""
    fitting = 0
    for target, pool in zip(flight.transfer.targets, flight.pools, strict=True):
        slots = min(len(target.slots), room_bytes // max(1, pool.slot_bytes))
        fitting, room_bytes = fitting + slots, room_bytes - slots * pool.slot_bytes
        if slots < len(target.slots):
            break
    return fitting
