"""The order `ert` on the whole cache: what it is told of sessions decides who goes."""

import heapq
import random

import pytest

from agentcache.tree.api import Order
from agentcache.types import FULL, WaitState
from agentcache.waits import Told, WaitKind
from tests.unit.cache.world import GRID, World, text


@pytest.fixture
def world() -> World:
    """Room for three prompts of 40 tokens, FULL attention only."""
    return World({FULL: 30}, order=Order.ERT)


def test_a_queued_request_protects_what_it_will_read(world: World) -> None:
    for number in (1, 2, 3):
        world.turn(text(number, 40), f"s{number}")
        world.wait(1)
    ticket = world.enter("s1")
    world.turn(text(4, 40))
    first, *others = [world.hit(text(number, 40)) for number in (1, 2, 3)]
    assert (first, sorted(others)) == (40, [0, 40])
    world.cache.leave(ticket)


def test_a_request_that_left_the_queue_protects_nothing(world: World) -> None:
    for number in (1, 2, 3):
        world.turn(text(number, 40), f"s{number}")
        world.wait(1)
    world.cache.leave(world.enter("s1"))
    world.cache.close_session("s1")
    world.turn(text(4, 40))
    assert [world.hit(text(number, 40)) for number in (1, 2, 3)] == [0, 40, 40]


def test_who_is_usually_back_soon_stays(world: World) -> None:
    """One session takes a second between turns, the other an hour; the quick one is the older use."""
    for _ in range(4):
        world.turn(text(2, 40), "slow")
        for _ in range(6):
            world.turn(text(1, 40), "quick")
            world.wait(1)
        world.wait(3600)
        world.turn(text(1, 40), "quick")
    world.turn(text(2, 40), "slow")
    world.turn(text(3, 40), "new")
    world.turn(text(4, 40), "newer")
    assert (world.hit(text(1, 40)), world.hit(text(2, 40))) == (40, 0)


def test_a_hint_tells_more_than_the_past(world: World) -> None:
    for number, hint_s in ((1, 10.0), (2, 10_000.0), (3, 10.0)):
        turn = world.begin(text(number, 40), f"s{number}")
        world.compute(turn, text(number, 40))
        world.cache.finish(turn, 0, Told(WaitKind.TOOL, hint_s))
    world.turn(text(4, 40))
    assert [world.hit(text(number, 40)) for number in (1, 2, 3)] == [40, 0, 40]


def test_the_core_hears_of_every_step(world: World) -> None:
    turn = world.begin(text(1, 40), "s")
    world.compute(turn, text(1, 40))
    world.finish(turn)
    heard = world.core._trie.ranking.waits.states
    assert [wait.state for wait in heard.values()] == [WaitState.IDLE]
    turn = world.begin(text(1, 40), "s")
    assert [wait.state for wait in heard.values()] == [WaitState.RUNNING]
    queued = world.enter("s")
    assert [wait.state for wait in heard.values()] == [WaitState.PENDING]
    world.finish(turn)
    assert [wait.state for wait in heard.values()] == [WaitState.PENDING]
    world.cache.leave(queued)
    assert [wait.state for wait in heard.values()] == [WaitState.IDLE]


def hits(gap_told: float | None, seed: int) -> int:
    """Tokens that one session of twelve reuses in 400 turns of all; the others say nothing."""
    world, rng = World({FULL: 50}, order=Order.ERT), random.Random(seed)
    cache, found = world.cache, 0
    cache.check = lambda: None  # type: ignore[method-assign]  # other tests look after every step
    arrivals = [(rng.random() * 30, number) for number in range(12)]
    heapq.heapify(arrivals)
    for _ in range(400):
        when, number = heapq.heappop(arrivals)
        world.clock.advance(max(0, int((when + 2000) * 1e9) - (world.clock.now_ns() - 10**12)))
        turn = world.begin(text(number, 5 * GRID), f"s{number}")
        world.compute(turn, text(number, 5 * GRID))
        cache.finish(turn, 0, Told(WaitKind.TOOL, gap_told if number == 0 else None))
        found += turn.cached_tokens * (number == 0)
        heapq.heappush(arrivals, (when + rng.lognormvariate(2, 1.3), number))
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_a_liar_gains_nothing_and_the_truth_pays(seed: int) -> None:
    """Always 0.1 s, believed once, against saying nothing; and the median of the gaps, to the same arrivals."""
    lying, silent, honest = (hits(told, seed) for told in (0.1, None, 8.0))
    assert lying <= silent + 5 * GRID
    assert honest > 1.2 * silent
