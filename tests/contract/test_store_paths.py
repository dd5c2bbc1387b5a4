"""What is left of a path in a full store, over every backend that keeps an order: the part that begins at the root."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from agentcache.clock import ManualClock
from agentcache.keys import object_name
from agentcache.tiers.api import JobResult, Keep, SlotBytes, Transfer
from agentcache.tiers.external import StoredTier
from agentcache.tiers.stores.faulty import Call
from agentcache.types import FULL, Job, Piece, PoolName, Slots, TierName
from tests.stores import StoreCase, data_of, name_of, store_cases
from tests.unit.tiers.external_world import PATIENCE_S, Watched, path

OBJECT_BYTES = 40_000
OTHERS = [name_of(number) for number in range(1200)]

ordered_stores = pytest.mark.parametrize("case", store_cases(lambda case: case.exact_order))
both_classes = pytest.mark.parametrize("keep", list(Keep))


class Bytes:
    """Slots whose bytes are their number."""

    layout, slot_bytes, parts = "numbers", OBJECT_BYTES, 1

    def copy_part(self, part: int, slots: Slots, target: SlotBytes, target_slots: Slots) -> None:
        raise AssertionError("an external tier reads and writes slot by slot")

    def read(self, slot: int) -> bytes:
        return slot.to_bytes(4, "little") * (OBJECT_BYTES // 4)

    def write(self, slot: int, payload: bytes | memoryview) -> None:
        assert bytes(payload) == self.read(slot)


class Paths:
    """A tier over a store that holds `fits` pages at least, and what is in the store of a path. A page is a token.

    A path of `pages` goes in easily; with `others` behind it a third of it can stay at least, and not all.
    """

    def __init__(self, case: StoreCase, folder: Path) -> None:
        self.store = Watched(case.make(folder, case.smallest_bytes))
        self.fits = case.smallest_bytes // (OBJECT_BYTES + 8192)
        self.pages = self.fits * 3 // 4
        self.others = self.fits - self.pages // 2
        self._ended = threading.Event()
        pools = {PoolName(FULL, tier): Bytes() for tier in (TierName.HOST, TierName.DEVICE)}
        self.tier = StoredTier(self.store, pools, 1, ManualClock(10**12), on_ended=self._ended.set)
        self.tier.retain(OTHERS[:1], Keep.LOOSE)  # behind the first figures, which a new tier asks for
        self.store.wait_for(Call.RETAIN, 1)
        self._uses = 0

    def put(self, hashes: Sequence[bytes], keep: Keep) -> None:
        """Store a path."""
        whole = self._piece(0, len(hashes))
        job = Job(1, TierName.DEVICE, TierName.EXTERNAL, (whole,))
        self.tier.submit_store(Transfer(job, (whole,), tuple(hashes), keep))
        self._through()

    def load(self, hashes: Sequence[bytes], start: int) -> None:
        """Load the end of a path."""
        end = self._piece(start, len(hashes))
        job = Job(-1, TierName.EXTERNAL, TierName.HOST, (end,))
        self.tier.submit_load(Transfer(job, (end,), tuple(hashes)))
        assert [(piece.start, piece.end) for piece in self._through().landed] == [(start, len(hashes))]

    def read_elsewhere(self, hashes: Sequence[bytes]) -> None:
        """Another worker reads the path, root first."""
        assert all(self.store.get(names_of(hashes)))

    def push(self, count: int, keep: Keep) -> None:
        for name in OTHERS[:count]:
            assert self.store.put([(name, data_of(name, OBJECT_BYTES))], keep) == [True]

    def there(self, hashes: Sequence[bytes]) -> list[bool]:
        return self.store.exists(names_of(hashes))

    def close(self) -> None:
        self.tier.close()

    def _piece(self, start: int, end: int) -> Piece:
        return Piece(FULL, start, end, np.arange(start, end, dtype=np.int32))

    def _through(self) -> JobResult:
        """A job has ended, and its path was used."""
        while not (results := self.tier.poll()):
            assert self._ended.wait(PATIENCE_S)
            self._ended.clear()
        self._uses += 1
        self.store.wait_for_end(Call.USE, self._uses)
        (result,) = results
        return result


@pytest.fixture
def paths(case: StoreCase, tmp_path: Path) -> Iterator[Paths]:
    with closing(Paths(case, tmp_path)) as made:
        yield made


def names_of(hashes: Sequence[bytes]) -> list[str]:
    return [object_name(page_hash, FULL) for page_hash in hashes]


def only_the_shallow(there: Sequence[bool], least: int = 1) -> bool:
    """The root and what follows it, `least` pages or more, but not all."""
    return least <= sum(there) < len(there) and list(there) == sorted(there, reverse=True)


@ordered_stores
@both_classes
def test_a_path_leaves_from_its_end(paths: Paths, keep: Keep) -> None:
    hashes = path(paths.pages)
    paths.put(hashes, keep)
    paths.push(paths.others, keep)
    assert only_the_shallow(paths.there(hashes), paths.pages // 3)


@ordered_stores
@both_classes
def test_what_was_there_already_stays_longer_than_what_is_put_behind_it(paths: Paths, keep: Keep) -> None:
    """Others came in between, so the beginning was the oldest of all."""
    hashes, half = path(paths.fits // 2), paths.fits // 4
    paths.put(hashes[:half], keep)
    paths.push(half, keep)
    paths.put(hashes, keep)
    for name in OTHERS[half : 2 * paths.fits]:
        paths.store.put([(name, data_of(name, OBJECT_BYTES))], keep)
        if not paths.there(hashes[-half // 2 :])[0]:
            break
    assert only_the_shallow(paths.there(hashes), half)


@ordered_stores
@both_classes
def test_a_path_that_is_stored_again_leaves_from_its_end(paths: Paths, keep: Keep) -> None:
    """Nothing of it is sent, and nothing asked."""
    hashes = path(paths.pages)
    paths.put(hashes, keep)
    paths.read_elsewhere(hashes)
    paths.put(hashes, keep)
    paths.push(paths.others, keep)
    assert only_the_shallow(paths.there(hashes), paths.pages // 3)


@ordered_stores
@both_classes
def test_a_path_whose_end_was_loaded_leaves_from_its_end(paths: Paths, keep: Keep) -> None:
    """Its beginning, which was nearer by, was used as well."""
    hashes = path(paths.pages)
    paths.put(hashes, keep)
    paths.read_elsewhere(hashes)
    paths.load(hashes, paths.pages // 2)
    paths.push(paths.others, keep)
    assert only_the_shallow(paths.there(hashes), paths.pages // 3)


@ordered_stores
@both_classes
def test_of_a_path_twice_as_long_as_the_store_the_beginning_is_kept(paths: Paths, keep: Keep) -> None:
    hashes = path(2 * paths.fits)
    for _ in range(2):
        paths.put(hashes, keep)
        assert only_the_shallow(paths.there(hashes), paths.fits // 2)
