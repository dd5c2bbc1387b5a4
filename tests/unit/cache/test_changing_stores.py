"""A store that comes, goes or is closed in the middle of everything: what was on its way ends, nothing is left."""

import pytest

from agentcache.cache import Prompt, Ticket
from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.stats import CachedTokens
from agentcache.tiers.api import Presence
from agentcache.tiers.null import NullTier
from agentcache.types import FULL, ComponentName, Job, Piece, TierName
from tests.moving import ScriptedTier
from tests.unit.cache.tiered import HOST, TieredWorld
from tests.unit.cache.world import GRID, PAGE, text

A, B = text(1, 65), text(2, 65)
WAYS = pytest.mark.parametrize("host", [HOST, {}], ids=["host", "direct"])
STRETCHES = PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, stretch_tokens=2 * GRID)
Host = dict[ComponentName, int]


def another(world: TieredWorld) -> ScriptedTier:
    """An empty store takes over."""
    world.far = ScriptedTier(TierName.EXTERNAL, PAGE, world.marks, prompt=True)
    world.cache.tiers.attach(world.far)
    world.cache.check()
    return world.far


def halfway(host: Host, looks: int, landed: bool) -> tuple[TieredWorld, tuple[Ticket, Prompt]]:
    """A request whose prefetch has come so far, and a turn whose pages are being stored."""
    world = TieredWorld(host=host, prefetch=STRETCHES)
    world.stored(A)
    world.far.prompt = False
    world.turn(B)
    waiting = world.expect(A)
    for _ in range(looks):
        world.look()
        if landed:
            world.far.land_all()
    return world, waiting


@WAYS
@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("looks", range(5))
def test_another_store_may_take_over_at_any_moment(host: Host, looks: int, landed: bool) -> None:
    """What has landed counts; the request does not wait for the rest; the new store is used from then on."""
    world, (ticket, prompt) = halfway(host, looks, landed)
    first = world.far
    another(world)
    assert first.closed
    assert world.cache.tiers.arrived(ticket)
    turn = world.go(ticket, prompt)
    assert turn.cached_tokens % (2 * GRID) == 0
    world.compute(turn, A)
    world.finish(turn)
    world.settle()
    if turn.published:  # what was reused only is not written again
        world.cache.flush()
        assert world.hit_of(A) == CachedTokens(external=64)
    world.at_rest()


@WAYS
@pytest.mark.parametrize("looks", range(5))
def test_a_store_may_be_taken_away_at_any_moment(host: Host, looks: int) -> None:
    world, (ticket, prompt) = halfway(host, looks, landed=True)
    world.cache.tiers.attach(NullTier(TierName.EXTERNAL))
    assert world.cache.tiers.arrived(ticket)
    turn = world.go(ticket, prompt)
    world.compute(turn, A)
    world.finish(turn)
    assert world.hit_of(A).total == 64
    world.at_rest()


@WAYS
@pytest.mark.parametrize("looks", range(5))
def test_a_flush_waits_for_what_is_on_its_way(host: Host, looks: int) -> None:
    world, (ticket, prompt) = halfway(host, looks, landed=False)
    world.cache.flush()
    world.cache.check()
    assert all(pool.free_slots == pool.size for pool in world.pools.values())
    assert world.cache.tiers.arrived(ticket)
    world.far.prompt = True
    assert world.end(world.go(ticket, prompt)).cached_tokens == 0
    world.at_rest()


@WAYS
@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("looks", range(5))
def test_tiers_may_close_at_any_moment(host: Host, looks: int, landed: bool) -> None:
    """Nothing is in flight then, no prefetch stands, and every slot is the tree's or free."""
    world, (ticket, _) = halfway(host, looks, landed)
    world.cache.tiers.close()
    world.cache.check()
    assert world.cache.tiers.idle
    world.cache.leave(ticket)
    stats = world.cache.stats()
    assert stats.jobs_in_flight == 0
    assert all(pool.in_flight == pool.leased == pool.protected == 0 for pool in stats.pools)


@pytest.mark.parametrize("then", ["finish", "close", "flush later"])
def test_a_turn_may_end_while_its_load_from_the_host_runs(then: str) -> None:
    """R138: the copy's slots stay its own until it has ended, whoever has gone."""
    world = TieredWorld({name: 4 * slots for name, slots in HOST.items()})
    world.turn(A)
    for number in range(10, 14):
        world.turn(text(number, 65))
    world.settle()
    world.near.prompt = False
    turn = world.begin(A, "s")
    assert not world.cache.ready(turn)
    assert world.cache.stats().jobs_in_flight == 1
    if then == "close":
        world.cache.close_session("s")
    world.finish(turn)
    world.turn(B)
    world.near.land_all()
    world.look()
    assert world.hit(A[:64]) == 64
    world.near.prompt = True
    world.at_rest()


def test_a_lookup_that_stays_pending_is_asked_again_and_ends() -> None:
    world = TieredWorld()
    world.stored(A)
    world.far.answer = lambda _name: Presence.PENDING
    ticket, prompt = world.expect(A)
    world.look(5)
    assert not world.cache.tiers.arrived(ticket)
    world.far.answer = None
    world.look(3)
    assert world.cache.tiers.arrived(ticket)
    assert world.end(world.go(ticket, prompt)).cached.external == 64
    world.at_rest()


def test_numbers_that_have_ended_are_cancelled_without_effect() -> None:
    world = TieredWorld()
    world.turn(A)
    world.settle()
    for number in (-1, 0, 1, 99):
        world.controller.cancel(number)
        assert not world.controller.is_out(number)
    assert world.controller.held(1) is None
    assert world.controller.jobs_out == 0
    world.at_rest()


def test_a_held_load_ends_when_everything_is_drained() -> None:
    world = TieredWorld()
    pieces = (Piece(FULL, 0, PAGE),)
    world.controller.submit(Job(10**6, TierName.HOST, TierName.DEVICE, pieces))
    world.controller.drain()
    assert [result.landed for result in world.controller.poll()] == [()]
    world.at_rest()
