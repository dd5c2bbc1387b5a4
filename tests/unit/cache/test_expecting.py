"""The order `ert` on the whole cache: what it is told of sessions decides who goes."""

import heapq
import random
from typing import Any, cast

import pytest

from agentcache.build import CORES
from agentcache.tree.api import CoreConfig, Order
from agentcache.types import FULL, SessionId, Wait, WaitState
from agentcache.waits import Told, WaitKind
from tests.chosen import CORE
from tests.unit.cache.world import GRID, World, text

QUEUED, RUNNING, IDLE = WaitState.PENDING, WaitState.RUNNING, WaitState.IDLE


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


class Listening:
    """A core, what it was told, and whether a session could be meant: it had left a marker."""

    def __init__(self, config: CoreConfig) -> None:
        self.core = CORES[CORE](config)
        self.heard: list[tuple[WaitState, bool]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def expect(self, session: SessionId, wait: Wait, now_ns: int) -> None:
        self.heard.append((wait.state, bool(self.core.snapshot().markers)))
        self.core.expect(session, wait, now_ns)


def test_the_core_hears_of_every_step() -> None:
    world = World({FULL: 30}, make_core=Listening, order=Order.ERT)
    told = cast("Listening", world.core).heard
    turn = world.begin(text(1, 40), "s")
    world.compute(turn, text(1, 40))
    world.finish(turn)
    assert told == [(QUEUED, False), (RUNNING, False), (IDLE, True)]
    told.clear()
    turn = world.begin(text(1, 40), "s")
    queued = world.enter("s")
    world.finish(turn)
    world.cache.leave(queued)
    assert told == [(QUEUED, True), (RUNNING, True), (QUEUED, True), (QUEUED, True), (IDLE, True)]


def test_the_core_hears_nothing_of_requests_without_a_session() -> None:
    world = World({FULL: 30}, make_core=Listening, order=Order.ERT)
    world.turn(text(1, 40))
    world.cache.leave(world.enter())
    assert cast("Listening", world.core).heard == []


def test_a_request_that_never_began_leaves_the_wait_that_stood_before(world: World) -> None:
    """The hint of the last turn is still believed: five that hang up in the queue make s2 seem no nearer."""
    for number, hint_s in ((1, 10.0), (2, 10_000.0), (3, 10.0)):
        turn = world.begin(text(number, 40), f"s{number}")
        world.compute(turn, text(number, 40))
        world.cache.finish(turn, 0, Told(WaitKind.TOOL, hint_s))
    for _ in range(5):
        world.cache.leave(world.enter("s2"))
    world.turn(text(4, 40))
    assert [world.hit(text(number, 40)) for number in (1, 2, 3)] == [40, 0, 40]


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
