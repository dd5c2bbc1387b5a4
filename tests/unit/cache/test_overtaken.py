"""Prefetches whose path somebody else computes or brings meanwhile: what is there is not loaded again."""

import pytest

from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.types import ComponentName
from tests.unit.cache.tiered import HOST, TieredWorld
from tests.unit.cache.world import GRID, text

A = text(1, 65)
STEPWISE = PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, stretch_tokens=GRID)


@pytest.mark.parametrize("host", [HOST, {}], ids=["host", "direct"])
@pytest.mark.parametrize("end", [GRID, 3 * GRID, 8 * GRID])
def test_stretches_that_another_request_has_computed_meanwhile_are_left_out(
    host: dict[ComponentName, int], end: int
) -> None:
    world = TieredWorld(host=host, prefetch=STEPWISE)
    world.stored(A)
    world.far.prompt = False
    ticket, prompt = world.expect(A)
    world.look()
    world.turn(A[: end + 1])
    world.far.land_all()
    world.look()
    loads = [transfer.job for transfer in world.far.waiting if transfer.job.number < 0]
    assert [job.pieces[0].start for job in loads] == ([] if end == 64 else [end])
    world.far.prompt = True
    while not world.cache.tiers.arrived(ticket):
        world.look()
    assert world.end(world.go(ticket, prompt)).cached_tokens == 64
    world.at_rest()
