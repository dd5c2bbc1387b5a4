"""Paths that are longer than the host, which come from outside to the device, whatever the host has of them."""

import pytest

from agentcache.keys import Key, object_name, page_hashes
from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.stats import CachedTokens
from agentcache.types import FULL, MAMBA, SWA, TierName
from tests.unit.cache.tiered import TieredWorld
from tests.unit.cache.world import DEVICE, GRID, HOME, PAGE, text

A = text(1, 65)
NEAR = 2 * GRID
SMALL = {FULL: 8, SWA: 8, MAMBA: 2}
STEPWISE = PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, stretch_tokens=GRID)


def partly_on_the_host(prefetch: PrefetchRules) -> TieredWorld:
    """All of A lies outside, its beginning on the host, and nothing on the device."""
    world = TieredWorld(host=SMALL, prefetch=prefetch)
    world.stored(A)
    world.turn(A[: NEAR + 1])
    world.settle()
    assert world.cache._executor.make_room(DEVICE, world.cache._ledger)
    assert (world.slots_on(TierName.DEVICE)[FULL], world.slots_on(TierName.HOST)[FULL]) == (0, NEAR // PAGE)
    return world


@pytest.mark.parametrize("prefetch", [STEPWISE, PrefetchRules(PrefetchPolicy.WAIT_COMPLETE)])
def test_what_only_the_host_has_is_no_ground_to_file_on(prefetch: PrefetchRules) -> None:
    world = partly_on_the_host(prefetch)
    assert world.hit_of(A) == CachedTokens(external=64)
    world.at_rest()


def test_what_the_host_has_is_taken_where_outside_there_is_no_more() -> None:
    world = partly_on_the_host(STEPWISE)
    near = [object_name(page, name) for page in page_hashes(Key(A[:NEAR], HOME), PAGE) for name in SMALL]
    world.far.objects = {name: mark for name, mark in world.far.objects.items() if name in near}
    assert world.hit_of(A) == CachedTokens(host=NEAR)
    world.at_rest()


def test_what_the_host_has_is_kept_until_all_has_come() -> None:
    """A load that is cut off leaves the request what it would have had without it."""
    world = partly_on_the_host(STEPWISE)
    world.far.prompt = False
    ticket, prompt = world.expect(A)
    world.look(2)
    world.far.land(0)
    world.look()
    for number in range(10, 14):
        world.turn(text(number, 25))
    assert world.end(world.go(ticket, prompt)).cached == CachedTokens(host=NEAR - GRID, external=GRID)
    world.far.prompt = True
    world.at_rest()
