"""Allocation that fails at each step of each move: less is reused, nothing is lost, nobody reads another's slot."""

import numpy as np
import pytest

from agentcache.controller import HybridCacheController
from agentcache.pools.slots import SlotPool
from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.tiers.null import NullTier
from agentcache.tree.api import WritePolicy
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentName,
    Job,
    Piece,
    PoolName,
    Slots,
    TierName,
)
from tests.moving import ScriptedTier, nothing
from tests.unit.cache.tiered import HOST, RULES, TieredWorld
from tests.unit.cache.world import GRID, text

COMPONENTS = [FULL, SWA, MAMBA]
A = text(1, 65)
BIG = {name: 4 * slots for name, slots in HOST.items()}


class StingyPool(SlotPool):
    """Gives `gives` more times, then nothing; an honest one says that it has nothing, too."""

    gives: int = 10**9
    honest: bool = True

    def alloc(self, count: int) -> Slots | None:
        if count and not self.gives:
            return None
        self.gives -= count > 0
        return super().alloc(count)

    @property
    def free_slots(self) -> int:
        return super().free_slots if self.gives or not self.honest else 0

    def recover(self) -> None:
        self.gives = 10**9


def world_of(policy: WritePolicy = WritePolicy.WRITE_THROUGH, prefetch: PrefetchRules = RULES) -> TieredWorld:
    return TieredWorld(BIG, policy, prefetch, make_pool=StingyPool)


def stingy(world: TieredWorld, name: PoolName, gives: int, honest: bool = True) -> StingyPool:
    pool = world.pools[name]
    assert isinstance(pool, StingyPool)
    pool.gives, pool.honest = gives, honest
    return pool


def push_out(world: TieredWorld) -> None:
    """What was there leaves the device."""
    for number in range(10, 14):
        world.turn(text(number, 65))
    world.look(2)


@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.parametrize("component", COMPONENTS)
def test_a_load_from_the_host_that_finds_no_slots_goes_without(
    component: ComponentName, honest: bool
) -> None:
    """R006, R057, R139: one allocation of three fails; the turn goes on from what is whole on the device."""
    world = world_of()
    world.turn(A)
    push_out(world)
    turn = world.begin(A)
    assert turn.loading
    pool = stingy(world, PoolName(component, TierName.DEVICE), 0, honest)
    while not world.cache.ready(turn, alone=True):
        """Another look."""
    pool.recover()
    world.cache.check()
    world.verify(turn)
    assert turn.cached_tokens == 0
    world.compute(turn, A)
    world.finish(turn)
    assert world.hit(A[:64]) == 64
    world.at_rest()


@pytest.mark.parametrize("policy", [WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK])
@pytest.mark.parametrize("gives", range(9))
@pytest.mark.parametrize("component", COMPONENTS)
def test_copies_to_a_host_without_slots_are_left_out(
    component: ComponentName, gives: int, policy: WritePolicy
) -> None:
    """R065: after any number of allocations; what is not on the host is not said to be there."""
    world = world_of(policy)
    pool = stingy(world, PoolName(component, TierName.HOST), gives, honest=False)
    world.turn(A)
    push_out(world)
    pool.recover()
    turn = world.begin(A)
    while not world.cache.ready(turn, alone=True):
        world.cache.check()
    world.verify(turn)
    world.compute(turn, A)
    world.finish(turn)
    assert world.hit(A[:64]) == 64
    world.at_rest()


@pytest.mark.parametrize("host", [BIG, {}], ids=["host", "direct"])
@pytest.mark.parametrize("gives", range(5))
@pytest.mark.parametrize("component", COMPONENTS)
def test_a_prefetch_that_finds_no_slots_waits_as_long_as_it_may(
    component: ComponentName, gives: int, host: dict[ComponentName, int]
) -> None:
    """R058: after any number of stretches; the request begins in time, with what has landed."""
    rules = PrefetchRules(PrefetchPolicy.TIMEOUT, timeout_s=1, stretch_tokens=2 * GRID)
    world = TieredWorld(host, prefetch=rules, make_pool=StingyPool)
    world.stored(A)
    ticket, prompt = world.expect(A)
    pool = stingy(world, PoolName(component, TierName.HOST if host else TierName.DEVICE), gives)
    for _ in range(10):
        world.wait(1)
        world.cache.tiers.step()
        arrived = world.cache.tiers.arrived(ticket)
    assert arrived
    pool.recover()
    turn = world.go(ticket, prompt)
    assert turn.cached_tokens == min(64, 2 * GRID * gives)
    world.compute(turn, A)
    world.finish(turn)
    assert world.hit_of(A).total == 64
    world.at_rest()


@pytest.mark.parametrize("gives", range(4))
@pytest.mark.parametrize("component", COMPONENTS)
def test_a_turn_that_gets_no_more_slots_ends_with_what_it_published(
    component: ComponentName, gives: int
) -> None:
    world = world_of()
    turn = world.begin(A)
    pool = stingy(world, PoolName(component, TierName.DEVICE), gives)
    got = 0
    for end in range(GRID, 65, GRID):
        leased = world.cache.reserve(turn, {FULL: 2, SWA: 2, MAMBA: 1})
        if leased is None:
            break
        got = end
        pool.gives, kept = 10**9, pool.gives
        world.publish(turn, A[:end], leased)
        pool.gives = kept
    pool.recover()
    assert got == gives * GRID
    world.finish(turn)
    assert world.hit(A[:64]) == got
    world.at_rest()


def test_a_job_goes_with_the_pieces_that_found_slots() -> None:
    """R121: after any number of allocations, to the host and to the device; the others' slots are nobody's."""
    pieces = (
        Piece(FULL, 0, 12, np.arange(3, dtype=np.int32)),
        Piece(SWA, 4, 12, np.arange(2, dtype=np.int32)),
        Piece(MAMBA, 12, 12, np.arange(1, dtype=np.int32)),
    )
    for source, target in ((TierName.DEVICE, TierName.HOST), (TierName.HOST, TierName.DEVICE)):
        for lacking in range(1 << len(pieces)):
            names = [PoolName(name, target) for name in COMPONENTS]
            pools = {name: StingyPool(name, 4) for name in names}
            for at, name in enumerate(names):
                pools[name].gives = 0 if lacking >> at & 1 else 1
            near = ScriptedTier(TierName.HOST, 4, {})
            controller = HybridCacheController(near, NullTier(TierName.EXTERNAL), pools)
            controller.submit(Job(7, source, target, pieces))
            if target is TierName.DEVICE:
                controller.start(7)
            sent = [piece.component for piece in near.waiting[0].targets]
            assert sent == [name for at, name in enumerate(COMPONENTS) if not lacking >> at & 1]
            near.land(0, nothing)
            assert [result.landed for result in controller.poll()] == [()]
            assert controller.jobs_out == 0
            for pool in pools.values():
                pool.recover()
                assert pool.free_slots == pool.size
