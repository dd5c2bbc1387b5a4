"""What a session is said to wait for: a pause that names no time leaves the one that was said."""

import pytest

from agentcache.records import Paused
from agentcache.waits import Told, WaitKind
from tests.unit.sessions.test_waiting import hint_s
from tests.unit.sessions.world import World


def paused(world: World, tool: str, expected_s: float = 0.0, learned: bool = False) -> Paused | None:
    """What stands after a pause, as it is answered and as it is seen."""
    said = Paused(tool, expected_s, learned)
    answer = world.registry.note("s", None, said, world.now)
    assert answer.paused == world.registry.look("s", None, world.now).paused
    return answer.paused


def test_a_second_pause_keeps_the_time_that_it_does_not_name(world: World) -> None:
    """And it still counts from where it was said."""
    world.turn()
    assert paused(world, "pytest") == Paused("pytest")
    world.now_s += 10
    assert paused(world, "pytest", 90.0) == Paused("pytest", 90.0)
    world.now_s += 10
    assert paused(world, "pytest") == Paused("pytest", 90.0)
    assert paused(world, "approval") == Paused("approval", 90.0)
    assert hint_s(world) == 100.0
    assert paused(world, "approval", 7.0) == Paused("approval", 7.0)
    assert hint_s(world) == 27.0


@pytest.mark.parametrize("runs", [True, False])
def test_a_time_that_came_with_the_request_stands_for_a_pause_that_names_none(
    world: World, runs: bool
) -> None:
    ticket = world.begin(world.request(expected_s=90.0))
    if not runs:
        world.end(ticket)
    world.now_s += 5
    assert paused(world, "pytest") == Paused("pytest", 90.0)
    if runs:
        world.end(ticket)
    assert hint_s(world) == 90.0


@pytest.mark.parametrize("back", ["resume", "request"])
def test_a_session_that_is_back_has_said_nothing_of_its_next_wait(world: World, back: str) -> None:
    world.turn(expected_s=30.0)
    assert paused(world, "pytest", 90.0) == Paused("pytest", 90.0)
    if back == "resume":
        world.registry.note("s", None, None, world.now)
    else:
        world.turn()
    assert paused(world, "pytest") == Paused("pytest")
    assert hint_s(world) is None


def test_what_was_learned_is_nobody_s_word(world: World) -> None:
    world.registry.complete(world.begin(world.request()), world.now, Told(WaitKind.TOOL))
    assert paused(world, "pytest", 90.0, learned=True) == Paused("pytest", 90.0, learned=True)
    assert paused(world, "pytest") == Paused("pytest")
    assert paused(world, "pytest", 5.0, learned=True) == Paused("pytest", 5.0, learned=True)
