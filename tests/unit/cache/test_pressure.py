"""Pressure, flush, moves to a host tier, events, counters; and everything at once."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from agentcache.cache import ActiveTurn
from agentcache.errors import Kind
from agentcache.keys import Namespace
from agentcache.tiers.null import NullTier
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentName,
    EventKind,
    ReleaseMode,
    TierName,
    Tokens,
)
from agentcache.why import Why
from tests.unit.cache.world import DEVICE, HOME, OPEN, AccountingTier, World, refused, text

# pressure


def test_pressure_takes_the_unreferenced_first(world: World) -> None:
    world.turn(text(1, 40), "kept")
    world.turn(text(2, 40))  # newer, but nobody's
    world.turn(text(3, 64), "third")
    assert (world.hit(text(1, 40)), world.hit(text(2, 40))) == (40, 0)
    assert world.cache.stats().turns.evicted_slots[FULL] == 10


def test_pressure_takes_the_referenced_too_rather_than_stop(world: World) -> None:
    for number in range(12):
        assert world.turn(text(number, 64), f"s{number}") == 0
    assert world.hit(text(11, 64)) == 64


def test_flush_drops_data_and_keeps_sessions(world: World) -> None:
    world.turn(text(1, 24), "s")
    turn = world.begin(text(2, 16))
    with refused(Kind.IN_USE):
        world.cache.flush()
    assert world.hit(text(1, 24)) == 24
    world.finish(turn)
    world.cache.flush(Namespace(model="another"))
    assert world.used()[FULL] == 6
    world.cache.flush(HOME)
    world.cache.check()
    assert world.used() == {FULL: 0, SWA: 0, MAMBA: 0}
    assert (world.cache.session("s").state, world.cache.session("s").generation) == (OPEN, 1)
    assert world.cache.stats().open_references == 0
    assert world.turn(text(1, 24), "s") == 0


# a host tier, as the core may have one already


@pytest.mark.parametrize("landing", [True, False])
def test_moves_are_carried_out_or_committed_empty(landing: bool) -> None:
    tier = AccountingTier() if landing else NullTier()
    world = World(host=16, tier=tier)
    world.turn(text(1, 64))
    world.turn(text(2, 64))
    world.turn(text(3, 40))
    on_host = {
        name: pool.size - pool.free_slots for name, pool in world.pools.items() if name.tier is TierName.HOST
    }
    assert (sum(on_host.values()) > 0) is landing
    world.cache.flush()
    world.cache.check()
    assert all(pool.free_slots == pool.size for pool in world.pools.values())


def test_moves_in_flight_keep_their_slots() -> None:
    tier = AccountingTier()
    world = World(host=16, tier=tier)
    world.turn(text(1, 64))
    world.turn(text(2, 64))
    tier.held_back = True
    turn = world.begin(text(3))
    assert world.cache.reserve(turn, {FULL: 10}) is None, "the room is still being copied away"
    world.cache.check()
    jobs = len(tier.waiting)
    assert world.cache.reserve(turn, {FULL: 17}) is None, "not even with all that is not being copied"
    assert len(tier.waiting) == jobs
    assert sum(use.in_flight for use in world.cache.stats().pools) > 0
    tier.drain()
    assert world.cache.reserve(turn, {FULL: 10}) is not None
    world.cache.check()
    world.finish(turn)
    assert world.hit(text(2, 64)) == 64, "the room that came free was enough"


# events and counters


def test_events_reach_the_sink_in_order() -> None:
    world = World(emit_events=True)
    world.turn(text(1, 16))
    world.cache.flush()
    kinds = [event.kind for event in world.heard.events]
    assert kinds[0] is EventKind.STORED
    assert kinds[-1] is EventKind.CLEARED
    stored: Counter[str] = Counter()
    for event in world.heard.events:
        stored[event.component] += len(event.hashes) if event.kind is EventKind.STORED else 0
    assert stored == {FULL: 4, SWA: 2, MAMBA: 1}


def test_stats_count_turns_misses_and_slots(world: World) -> None:
    world.turn(text(1, 24), "s")
    world.turn(text(1, 33), "s")
    stats = world.cache.stats()
    turns = stats.turns
    assert (turns.turns, turns.hits, turns.prompt_tokens, turns.cached_tokens) == (2, 1, 57, 24)
    assert stats.hit_rate == 24 / 57
    assert turns.misses == {(FULL, Why.NEVER_STORED): 2}
    assert (stats.sessions.open, stats.sessions.opened, stats.open_references) == (1, 1, 1)
    for use in stats.pools:
        assert use.free + use.cached + use.leased + use.in_flight == use.size
    assert {use.pool.component: use.referenced for use in stats.pools} == {FULL: 8, SWA: 2, MAMBA: 1}


# everything at once


@pytest.mark.parametrize("device", [DEVICE, {FULL: 24}, {FULL: 24, SWA: 8}, {FULL: 24, MAMBA: 4}], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_soak_leaks_nothing(device: Mapping[ComponentName, int], seed: int) -> None:
    """Forks, aborts at any point, closes in the middle, idling, tiny pools: at the end every slot is free."""
    world, random = World(device), np.random.default_rng(seed)
    running: list[tuple[ActiveTurn, Tokens]] = []
    for _ in range(150):
        session = f"s{random.integers(4)}"
        step = random.integers(8)
        if step <= 2 and len(running) < 3:
            shared, length = int(random.integers(0, 5)) * 8, int(random.integers(1, 60))
            tokens = np.append(text(int(random.integers(2)), shared), text(int(random.integers(3)), length))
            running.append((world.begin(tokens.astype(np.int32), session), tokens.astype(np.int32)))
        elif step <= 4 and running:
            turn, tokens = running[int(random.integers(len(running)))]
            end = min(len(tokens) // 8 * 8, turn.boundary_tokens + 8 * int(random.integers(1, 4)))
            leased = world.reserve(turn, end) if end > turn.boundary_tokens else None
            if leased is not None and random.random() < 0.8:
                world.publish(turn, tokens[:end], leased)
        elif step == 5 and running:
            turn, tokens = running.pop(int(random.integers(len(running))))
            world.finish(turn, int(random.integers(len(tokens))))
        elif step == 6 and session in {view.session for view in world.cache.sessions()}:
            world.cache.close_session(session, mode=list(ReleaseMode)[random.integers(4)])
        elif step == 7:
            world.wait(float(random.choice([1.0, 70.0, 1900.0])))
        world.cache.check()
    for turn, _ in running:
        world.finish(turn)
    for view in world.cache.sessions():
        world.cache.close_session(view.session)
    stats = world.cache.stats()
    assert (stats.open_references, stats.active_turns, world.core.stats().leases) == (0, 0, 0)
    world.cache.flush()
    assert set(world.used().values()) == {0}
