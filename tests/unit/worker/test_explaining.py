"""Moments of the clock as Unix times."""

import pytest

from agentcache.clock import ManualClock
from agentcache.worker.explaining import SET_S, UnixTimes

SECOND = 1_000_000_000


class World:
    """A clock, and a wall clock that is looked at late."""

    def __init__(self) -> None:
        self.clock = ManualClock(5 * SECOND)
        self.was_0_s = 1_800_000_000.25
        self.late_s = 0.0
        self.times = UnixTimes(self.clock, lambda: self.was_0_s + self.clock.now_ns() / 1e9 + self.late_s)


@pytest.mark.parametrize("late_s", [0.0, 0.9 * SET_S, -0.9 * SET_S])
def test_a_moment_has_the_same_time_whenever_it_is_asked(late_s: float) -> None:
    world = World()
    assert world.times.start_s() == 1_800_000_000.25
    world.clock.advance(3600 * SECOND)
    world.late_s = late_s
    assert world.times.start_s() == 1_800_000_000.25


@pytest.mark.parametrize("by_s", [-86_400, -1, 1, 86_400])
def test_a_wall_clock_that_was_set_is_followed_once(by_s: float) -> None:
    world = World()
    world.was_0_s += by_s
    world.clock.advance(SECOND)
    assert world.times.start_s() == pytest.approx(1_800_000_000.25 + by_s, abs=1e-6)
    followed = world.times.start_s()
    world.late_s = 0.5 * SET_S
    assert world.times.start_s() == followed
