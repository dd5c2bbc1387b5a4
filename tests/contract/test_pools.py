"""The contract of a pool, over every implementation."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentcache.errors import CacheError, Kind
from agentcache.pools.api import Pool
from agentcache.pools.slots import SlotPool
from agentcache.types import FULL, MAMBA, NO_SLOTS, PoolName, TierName

MakePool = Callable[[int], Pool]


def pages(size: int) -> Pool:
    return SlotPool(PoolName(FULL, TierName.DEVICE), size)


def states(size: int) -> Pool:
    return SlotPool(PoolName(MAMBA, TierName.HOST), size)


@pytest.fixture(params=[pages, states])
def make_pool(request: pytest.FixtureRequest) -> MakePool:
    return request.param  # type: ignore[no-any-return]


def test_pool_new_is_free(make_pool: MakePool) -> None:
    pool = make_pool(5)
    assert (pool.size, pool.free_slots, pool.used().tolist()) == (5, 5, [])


def test_pool_alloc_hands_out_each_slot_once(make_pool: MakePool) -> None:
    pool = make_pool(6)
    first, second = pool.alloc(4), pool.alloc(2)
    assert first is not None
    assert second is not None
    assert sorted([*first.tolist(), *second.tolist()]) == [0, 1, 2, 3, 4, 5]
    assert first.dtype == np.int32
    assert pool.free_slots == 0


def test_pool_alloc_beyond_free_is_none_and_takes_nothing(make_pool: MakePool) -> None:
    pool = make_pool(3)
    pool.alloc(2)
    assert pool.alloc(2) is None
    assert pool.free_slots == 1


def test_pool_alloc_none_of_a_full_pool_is_empty(make_pool: MakePool) -> None:
    pool = make_pool(1)
    pool.alloc(1)
    nothing = pool.alloc(0)
    assert nothing is not None
    assert nothing.size == 0
    pool.free(NO_SLOTS)


def test_pool_slots_are_no_views(make_pool: MakePool) -> None:
    """A stored handful of slots must not keep the free list alive, nor change under it."""
    pool = make_pool(8)
    slots = pool.alloc(3)
    assert slots is not None
    assert slots.base is None
    before = slots.tolist()
    pool.free(slots)
    pool.alloc(8)
    assert slots.tolist() == before


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param([2], id="free"),
        pytest.param([0, 0], id="twice in one call"),
        pytest.param([0, 9], id="beyond the pool"),
        pytest.param([-1], id="negative"),
    ],
)
def test_pool_free_misuse_changes_nothing(make_pool: MakePool, bad: list[int]) -> None:
    pool = make_pool(3)
    pool.alloc(2)
    with pytest.raises(CacheError) as refused:
        pool.free(np.array(bad, dtype=np.int32))
    assert refused.value.kind is Kind.SLOT_MISUSE
    assert (pool.free_slots, pool.used().tolist()) == (1, [0, 1])


def test_pool_double_free_is_refused(make_pool: MakePool) -> None:
    pool = make_pool(3)
    slots = pool.alloc(2)
    assert slots is not None
    pool.free(slots)
    with pytest.raises(CacheError, match="freed twice"):
        pool.free(slots)
    assert pool.free_slots == 3


def test_pool_negative_count_is_refused(make_pool: MakePool) -> None:
    with pytest.raises(CacheError, match="fewer than 0"):
        make_pool(3).alloc(-1)


@pytest.mark.parametrize("make", [pages, states])
def test_pool_without_slots_is_refused(make: MakePool) -> None:
    with pytest.raises(CacheError, match="at least one slot"):
        make(0)


@given(st.lists(st.integers(0, 7), max_size=60), st.randoms(use_true_random=False))
def test_pool_any_history_keeps_free_and_used_apart(counts: list[int], random: object) -> None:
    """Alloc and free in any order: every slot is free or used, never both, never lost."""
    pool, held = pages(16), set[int]()
    for count in counts:
        slots = pool.alloc(count)
        if slots is None:
            back = random.sample(sorted(held), max(1, len(held) // 2))  # type: ignore[attr-defined]
            pool.free(np.array(back, dtype=np.int32))
            held -= set(back)
        else:
            assert not held & set(slots.tolist())
            held |= set(slots.tolist())
        assert pool.used().tolist() == sorted(held)
        assert pool.free_slots == 16 - len(held)
