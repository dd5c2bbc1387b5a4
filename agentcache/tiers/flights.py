"""A transfer on its way to or from a store, and the one lock behind which its slots are touched."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, repeat

from agentcache.keys import object_name
from agentcache.tiers.api import JobResult, SlotBytes, Transfer
from agentcache.tiers.knowledge import Identity
from agentcache.types import FULL, ComponentName, Piece


@dataclass(frozen=True, slots=True)
class Page:
    """One slot of a transfer: the `place`-th of its `target`-th piece, a page or a state, and the object it is."""

    target: int
    place: int
    slot: int
    identity: Identity
    name: str
    pool: SlotBytes


@dataclass(frozen=True, slots=True)
class Terms:
    """What was admitted: until when, after how many calls that had succeeded, and its size in the queue of stores."""

    deadline_ns: int
    successes: int
    queued_bytes: int = 0


class Flight:
    """A transfer that a thread works on and the engine's thread may end at any time.

    Slots are read and written under the lock, and only while the flight is open. Whoever closes it first, the thread at
    its end or the engine at a deadline, makes it report its result, under the lock too: a flight found closed has
    reported. From then on no slot of it is touched, however late a thread comes back from the store.

    `pools` are those of the transfer's targets, one each; `calling` is what the store is being asked for now, empty
    while the flight waits for a thread; `late` is true once it was closed for its deadline.
    """

    def __init__(
        self,
        transfer: Transfer,
        pools: Sequence[SlotBytes],
        terms: Terms,
        report: Callable[[JobResult], None],
    ) -> None:
        self.transfer = transfer
        self.pools = pools
        self.terms = terms
        self.calling: tuple[Identity, ...] = ()
        self.late = False
        self._report = report
        self._landed: list[list[int]] = [[] for _ in transfer.targets]
        self._open = True
        self._lock = threading.Lock()

    @property
    def open(self) -> bool:
        return self._open

    def pages(self, page_tokens: int) -> Iterator[Page]:
        """The slots of the transfer in walk order. Lazy: naming an object takes time that the engine has not."""
        hashes = self.transfer.hashes
        for number, (target, pool) in enumerate(zip(self.transfer.targets, self.pools, strict=True)):
            named = zip(identities(target, hashes, page_tokens), target.slots.tolist(), strict=True)
            for place, ((component, page_hash), slot) in enumerate(named):
                name = object_name(page_hash, component)
                yield Page(number, place, slot, (component, page_hash), name, pool)

    def read(self, page: Page) -> bytes | None:
        """The bytes of a slot; None once the flight is closed."""
        with self._lock:
            return page.pool.read(page.slot) if self._open else None

    def write(self, page: Page, payload: memoryview) -> bool:
        """Fill a slot, which has landed then. False, and nothing is touched, once the flight is closed."""
        with self._lock:
            if self._open:
                page.pool.write(page.slot, payload)
                self._landed[page.target].append(page.place)
            return self._open

    def land(self, pages: Sequence[Page]) -> None:
        """These are in the store. Changes nothing any more once the flight is closed: it has reported."""
        with self._lock:
            for page in pages:
                self._landed[page.target].append(page.place)

    def close(self, late: bool = False) -> bool:
        """End the flight and report it. True for the first who does. Waits for one page's copy at most."""
        with self._lock:
            first, self._open = self._open, False
            if first:
                self.late = late
                self._report(JobResult(self.transfer.job, tuple(self._pieces())))
            return first

    def _pieces(self) -> Iterator[Piece]:
        for target, places in zip(self.transfer.targets, self._landed, strict=True):
            yield from parts(target, sorted(places))


def identities(piece: Piece, hashes: Sequence[bytes], page_tokens: int) -> Iterator[Identity]:
    """The objects that the slots of a piece are, in order, by the hashes of its path's pages."""
    first = _first(piece, page_tokens)
    return zip(repeat(piece.component), hashes[first : first + len(piece.slots)], strict=False)


def trail(transfer: Transfer, moved: int, page_tokens: int) -> Iterator[Identity]:
    """The path behind the first `moved` slots of a transfer, and what else of it moved, deepest first.

    In this order things are used that leave a store by age: what is left then can be reached from the root.

    Cost  O(path)
    """
    pages, beside = 0, defaultdict[int, list[ComponentName]](list)
    for target in transfer.targets:
        first, count = _first(target, page_tokens), min(moved, len(target.slots))
        moved -= count
        pages = max(pages, first + count) if count else pages
        if target.component != FULL:
            for page in range(first, first + count):
                beside[page].append(target.component)
    hashes = transfer.hashes[:pages]
    if not beside:
        return zip(repeat(FULL), reversed(hashes), strict=False)
    return (
        (component, page_hash)
        for page, page_hash in reversed(list(enumerate(hashes)))
        for component in (*beside.get(page, ()), FULL)
    )


def ends_path(transfer: Transfer, page_tokens: int) -> bool:
    """Whether a transfer reaches as far as its path does; else there is more to come."""
    return any(target.end == len(transfer.hashes) * page_tokens for target in transfer.targets)


def _first(piece: Piece, page_tokens: int) -> int:
    """The number of the first page of a piece, or of the page at whose end the state is."""
    return piece.end // page_tokens - 1 if piece.start == piece.end else piece.start // page_tokens


def parts(piece: Piece, places: list[int]) -> Iterator[Piece]:
    """A piece's slots at these places, ascending, as pieces: one for each run."""
    for first, last in _runs(places):
        yield _part(piece, first, last)


def _runs(places: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive numbers."""
    firsts = [place for before, place in pairwise([-2, *places]) if place != before + 1]
    lasts = [place for place, after in pairwise([*places, -2]) if after != place + 1]
    yield from zip(firsts, lasts, strict=True)


def _part(target: Piece, first: int, last: int) -> Piece:
    """Slots `[first, last]` of a piece; a state is one slot, and whole."""
    page_tokens = (target.end - target.start) // len(target.slots)
    start = target.start + first * page_tokens
    end = target.start + (last + 1) * page_tokens
    return Piece(target.component, start, end, target.slots[first : last + 1])
