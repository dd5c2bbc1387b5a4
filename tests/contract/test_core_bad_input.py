"""Bad input of every sort: one error of the closed list, nothing changed, and the core goes on."""

import re
from array import array
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agentcache.errors import CacheError, Kind
from agentcache.keys import Key
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentName,
    Insert,
    Lease,
    Piece,
    TierName,
    full_spec,
    mamba_spec,
    swa_spec,
)
from tests.builders import HOME, MakeCore, config_of, interval, pages_of, piece, slots_of, state
from tests.contract.conftest import Drive
from tests.contract.reading import refused
from tests.contract.world import World

DEVICE, HOST, EXTERNAL = TierName.DEVICE, TierName.HOST, TierName.EXTERNAL
MOST = 2**63 - 1


# -- keys


def odd_arrays(count: int) -> dict[str, Any]:
    """`count` numbers in every form but the one that is asked for."""
    plain = np.arange(100, 100 + count, dtype=np.int32)
    return {
        "a list": plain.tolist(),
        "int64": plain.astype(np.int64),
        "uint32": plain.astype(np.uint32),
        "float": plain.astype(np.float64),
        "swapped bytes": plain.astype(">i4"),
        "every second": np.repeat(plain, 2)[::2],
        "backwards": plain[::-1],
        "a column": plain.reshape(-1, 1),
        "a row": plain.reshape(1, -1),
        "times": plain.astype("datetime64[s]"),
        "bytes": plain.tobytes(),
        "nothing": None,
    }


@pytest.mark.parametrize("form", sorted(odd_arrays(8)))
def test_a_key_is_one_flat_int32_array(world: World, form: str) -> None:
    odd = Key(odd_arrays(8)[form], HOME)
    world.refuses(Kind.BAD_REQUEST, lambda: world.core.match(odd, 8, world.now()))
    world.refuses(Kind.BAD_REQUEST, lambda: world.core.peek(odd, 8))
    offer = Insert(slots_of([130, 131]))
    world.refuses(Kind.BAD_REQUEST, lambda: world.core.insert(odd, offer, world.now()))
    world.finish()


def test_a_key_may_be_a_part_of_a_larger_array_and_read_only(world: World) -> None:
    whole = np.concatenate([np.zeros(3, np.int32), world.key.tokens])
    whole.setflags(write=False)
    assert world.core.match(Key(whole[3:], HOME), 16, world.now()).device.length == 16


def test_any_flat_int32_memory_will_do(make_core: MakeCore) -> None:
    """Arrays of the standard library and views, too: what counts is the memory."""
    core, tokens = make_core(config_of("", 4)), pages_of("ab", 4).tokens
    key = Key(memoryview(tokens), HOME)  # type: ignore[arg-type]
    slots = array("i", [5, 6])
    answer = core.insert(key, Insert(slots), 1)  # type: ignore[arg-type]
    assert answer.taken[0].slots.tolist() == [5, 6]
    assert core.peek(Key(tokens, HOME), 8).device.length == 8


@pytest.mark.parametrize("tokens", [1, 3, 5, 7])
def test_a_key_is_whole_pages(world: World, tokens: int) -> None:
    ragged = Key(world.key.tokens[:tokens], HOME)
    world.refuses(Kind.UNALIGNED, lambda: world.core.match(ragged, tokens, world.now()))
    world.refuses(Kind.UNALIGNED, lambda: world.core.peek(ragged, tokens))
    world.refuses(Kind.UNALIGNED, lambda: world.core.insert(ragged, Insert(slots_of([130])), world.now()))


# -- slots


@pytest.mark.parametrize("form", sorted(odd_arrays(2)))
def test_slots_are_one_flat_int32_array(world: World, form: str) -> None:
    key, odd, good = pages_of("pq", 4), odd_arrays(2)[form], slots_of([130, 131])
    offers = (Insert(odd), Insert(good, (Piece(SWA, 0, 8, odd),)), Insert(good, (Piece(MAMBA, 8, 8, odd),)))
    for offer in offers:
        world.refuses(Kind.BAD_INSERT, lambda offer=offer: world.core.insert(key, offer, world.now()))  # type: ignore[misc]
    landed = (Piece(FULL, 0, 8, odd),)
    world.refuses(Kind.BAD_INSERT, lambda: world.core.commit(world.job, landed, world.now()))
    world.finish()


TWO = slots_of([130, 131])
BAD_SLOTS: dict[str, tuple[Kind, Insert]] = {
    "below 0": (Kind.BAD_INSERT, Insert(slots_of([130, -1]))),
    "a window's below 0": (Kind.BAD_INSERT, Insert(TWO, (interval(0, 8, [-5, 131]),))),
    "a state's below 0": (Kind.BAD_INSERT, Insert(TWO, (state(8, -1),))),
    "one slot twice": (Kind.BAD_INSERT, Insert(slots_of([130, 130]))),
    "one slot twice in a window": (Kind.BAD_INSERT, Insert(TWO, (interval(0, 8, [131, 131]),))),
    "one slot in two pieces": (Kind.BAD_INSERT, Insert(TWO, (interval(0, 4, [131]), interval(4, 8, [131])))),
    "one page twice": (Kind.BAD_INSERT, Insert(TWO, (interval(0, 8, [130, 131]), interval(4, 8, [129])))),
    "one state twice": (Kind.BAD_INSERT, Insert(TWO, (state(8, 130), state(8, 131)))),
    "FULL as a piece": (Kind.BAD_INSERT, Insert(TWO, (piece(FULL, 0, 8, [128, 129]),))),
    "an interval that ends before it starts": (Kind.BAD_INSERT, Insert(TWO, (interval(8, 4, []),))),
    "an interval from below 0": (Kind.BAD_INSERT, Insert(TWO, (interval(-4, 4, [130, 131]),))),
    "an empty interval beyond the key": (Kind.BAD_INSERT, Insert(TWO, (interval(12, 12, []),))),
    "a state below 0": (Kind.BAD_INSERT, Insert(TWO, (state(-4, 130),))),
    "a state at 0": (Kind.UNALIGNED, Insert(TWO, (state(0, 130),))),
    "an interval of 2^31 pages": (Kind.BAD_INSERT, Insert(TWO, (interval(0, 2**33, [130]),))),
    "an interval beyond 64 bits": (Kind.BAD_INSERT, Insert(TWO, (interval(0, 2**70, [130]),))),
    "a state beyond 64 bits": (Kind.BAD_INSERT, Insert(TWO, (state(2**70, 130),))),
    "a lease beyond 64 bits": (Kind.LEASE_REUSED, Insert(TWO, after=Lease(2**70))),
    "a priority beyond 64 bits": (Kind.BAD_REQUEST, Insert(TWO, priority=2**63)),
    "no tier of the tree": (Kind.BAD_INSERT, Insert(TWO, tier=EXTERNAL)),
}


@pytest.mark.parametrize("name", sorted(BAD_SLOTS))
def test_an_offer_has_one_free_slot_for_each_place(world: World, name: str) -> None:
    kind, offer = BAD_SLOTS[name]
    world.refuses(kind, lambda: world.core.insert(pages_of("pq", 4), offer, world.now()))
    world.finish()


def test_the_same_offer_without_a_fault_is_taken(make_core: MakeCore) -> None:
    core = make_core(config_of("SM", 4))
    offer = Insert(TWO, (interval(0, 8, [130, 131]), state(4, 130), state(8, 131)), priority=MOST)
    assert core.insert(pages_of("pq", 4), offer, 1).frontier.length == 8
    core.check()


def test_a_slot_of_the_tree_is_not_offered_again(world: World) -> None:
    owned = next(slot for page in world.core.snapshot().pages for name, _, slot in page.slots if name == SWA)
    offer = Insert(TWO, (interval(4, 8, [owned]),))
    world.refuses(Kind.BAD_INSERT, lambda: world.core.insert(pages_of("pq", 4), offer, world.now()))


def test_slots_may_be_any_int32_from_0(make_core: MakeCore) -> None:
    core, key = make_core(config_of("SM", 4)), pages_of("ab", 4)
    most = 2**31 - 1
    pieces = (interval(4, 8, [most]), state(8, most))
    answer = core.insert(key, Insert(slots_of([0, most]), pieces), 1)
    assert answer.taken[0].slots.tolist() == [0, most]
    core.check()
    freed = core.clear(None, 2).effects
    assert sorted(slot for effect in freed for slot in effect.slots.tolist()) == [0, most, most, most]  # type: ignore[union-attr]


# -- commits

BAD_LANDINGS: dict[str, tuple[Kind, tuple[Piece, ...]]] = {
    "below 0": (Kind.BAD_INSERT, (piece(FULL, 0, 8, [130, -1]),)),
    "one slot twice": (Kind.BAD_INSERT, (piece(FULL, 0, 8, [130, 130]),)),
    "one slot in two pieces": (Kind.BAD_INSERT, (piece(FULL, 0, 4, [130]), piece(FULL, 4, 8, [130]))),
    "one page twice": (Kind.BAD_INSERT, (piece(FULL, 0, 8, [130, 131]), piece(FULL, 4, 8, [129]))),
    "one state twice": (Kind.BAD_INSERT, (state(16, 130), state(16, 131))),
    "too few slots": (Kind.BAD_INSERT, (piece(FULL, 0, 8, [130]),)),
    "too many slots": (Kind.BAD_INSERT, (piece(FULL, 0, 8, [129, 130, 131]),)),
    "a page that the job has not": (Kind.BAD_INSERT, (piece(SWA, 0, 4, [130]),)),
    "a page below the job": (Kind.BAD_INSERT, (piece(FULL, 16, 20, [130]),)),
    "off the page": (Kind.BAD_INSERT, (piece(FULL, 2, 6, [130]),)),
    "a state as an interval": (Kind.BAD_INSERT, (piece(MAMBA, 12, 16, [130]),)),
    "from below 0": (Kind.BAD_INSERT, (piece(FULL, -4, 4, [130, 131]),)),
    "that ends before it starts": (Kind.BAD_INSERT, (piece(FULL, 8, 4, []),)),
    "2^31 pages": (Kind.BAD_INSERT, (piece(FULL, 0, 2**33, [130]),)),
    "beyond 64 bits": (Kind.BAD_INSERT, (piece(FULL, 0, 2**70, [130]), state(2**70, 130))),
    "no such component": (Kind.UNKNOWN_COMPONENT, (piece(ComponentName("CONV"), 0, 4, [130]),)),
}


@pytest.mark.parametrize("name", sorted(BAD_LANDINGS))
def test_what_landed_is_a_part_of_the_job_in_slots_of_its_own(world: World, name: str) -> None:
    """The job stays in flight, and may still be committed."""
    kind, landed = BAD_LANDINGS[name]
    world.refuses(kind, lambda: world.core.commit(world.job, landed, world.now()))
    world.finish()


def test_nothing_lands_in_a_slot_of_the_tree(world: World) -> None:
    world.driver.insert(pages_of("pq", 4), tier=HOST)
    owned = next(slot for page in world.core.snapshot().pages for _, tier, slot in page.slots if tier is HOST)
    landed = (piece(FULL, 0, 4, [owned]),)
    world.refuses(Kind.BAD_INSERT, lambda: world.core.commit(world.job, landed, world.now()))
    world.finish()


# -- routes


def test_routes_that_are_none_are_refused(world: World) -> None:
    core, at = world.core, world.boundary
    for source, target in ((HOST, DEVICE), (DEVICE, DEVICE), (EXTERNAL, HOST), (EXTERNAL, EXTERNAL)):
        call = lambda s=source, t=target: core.plan_backup(at, s, t, world.now())  # noqa: E731
        world.refuses(Kind.BAD_INSERT, call)
    for source, target in ((DEVICE, HOST), (HOST, HOST), (EXTERNAL, DEVICE), (EXTERNAL, HOST)):
        call = lambda s=source, t=target: core.plan_load(at, s, t, world.now())  # noqa: E731
        world.refuses(Kind.BAD_INSERT, call)


def test_without_a_host_tier_nothing_is_planned_there(drive: Drive) -> None:
    driver, key = drive("S", page=4), pages_of("ab", 4)
    driver.insert(key)
    at, before = driver.peek(key).device, driver.core.snapshot()
    core, plan = driver.core, driver.core.plan_backup
    assert refused(lambda: plan(at, DEVICE, HOST, driver.tick())) is Kind.BAD_INSERT
    assert refused(lambda: plan(at, HOST, EXTERNAL, driver.tick())) is Kind.BAD_INSERT
    assert refused(lambda: core.plan_load(at, HOST, DEVICE, driver.tick())) is Kind.BAD_INSERT
    answer = core.evict(FULL, HOST, 3, {}, driver.tick())
    assert (answer.freed, answer.moving, answer.short) == (0, 0, 3)
    assert core.snapshot() == before


# -- configs


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"page_tokens": 0}, "a page has at least one token, not 0"),
        ({"page_tokens": -4, "grid_tokens": -4}, "a page has at least one token, not -4"),
        ({"page_tokens": 2**32, "grid_tokens": 0}, "grid_tokens lie below 2^32"),
        ({"specs": ()}, "first component is FULL"),
        ({"specs": (swa_spec(4), full_spec())}, "first component is FULL"),
        ({"specs": (replace(full_spec(), name=SWA),)}, "first component is FULL"),
        ({"specs": (full_spec(), swa_spec(4), swa_spec(8))}, "names are unique, unlike FULL, SWA, SWA"),
        ({"specs": (full_spec(), swa_spec(0))}, "the window of SWA has at least one token, not 0"),
        ({"specs": (full_spec(), swa_spec(-4))}, "the window of SWA has at least one token, not -4"),
        ({"specs": (full_spec(), swa_spec(2**32))}, "SWA's rule lie below 2^32"),
        ({"specs": (full_spec(), mamba_spec(0))}, "the grid of MAMBA, 0, is not a multiple"),
        ({"specs": (full_spec(), mamba_spec(-4))}, "the grid of MAMBA, -4, is not a multiple"),
        ({"specs": (full_spec(), mamba_spec(6))}, "the grid of MAMBA, 6, is not a multiple"),
        ({"grid_tokens": 6}, "grid_tokens 6 is not a multiple of page_tokens 4"),
        ({"grid_tokens": -4}, "grid_tokens -4 is not a multiple"),
        ({"order": "mru"}, "no eviction order is called 'mru'"),
        ({"base": "fifo"}, "no base of the session order is called 'fifo'"),
        ({"unclaimed_ns": -1}, "unclaimed_ns is a time from 0 to below 2^62 ns, unlike -1"),
        ({"unclaimed_ns": 2**62}, "unclaimed_ns is a time from 0"),
    ],
)
def test_no_core_is_made_of_what_cannot_be_a_tree(
    make_core: MakeCore, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(CacheError, match=re.escape(says)) as refused:
        make_core(replace(config_of("SM", 4), **change))
    assert refused.value.kind is Kind.BAD_CONFIG
