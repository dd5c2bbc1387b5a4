"""When a session is expected back, where that is worth doing something for."""

import math

import pytest

from tests.unit.test_waits import World, back, tell


def due(world: World, session: str = "s") -> float | None:
    """Seconds from the beginning of the gap."""
    away = world.sessions[session]
    due_ns = away.due_ns()
    return None if due_ns is None else (due_ns - away.since_ns) / 1e9


def test_who_says_when_it_is_back_is_due_then() -> None:
    world = World()
    world.left(hint=30.0)
    assert due(world) == 30.0
    world.now_s += 10
    tell(world, 50.0)
    assert due(world) == 60.0
    back(world)
    assert due(world) is None


def test_who_says_nothing_is_due_as_usual_once_that_is_known() -> None:
    """Of gaps that differ the shorter ones count."""
    world, said = World(), []
    for _ in range(5):
        world.left()
        said.append(due(world))
        world.now_s += 20
        back(world)
    assert said == [None, None, None, pytest.approx(20), pytest.approx(20)]
    world.gap(30.0)
    world.left()
    assert due(world) == pytest.approx(20)


def test_gaps_that_are_never_alike_foretell_nothing() -> None:
    world = World()
    for number in range(12):
        world.left()
        assert due(world) is None
        world.now_s += 2.0 if number % 2 else 200.0
        back(world)


def test_whose_words_prove_wrong_is_not_expected_by_them() -> None:
    world = World()
    for number in range(8):
        world.left(hint=1.0)
        assert (due(world) is None) == (number > 0)
        world.now_s += 30.0 if number % 2 else 900.0
        back(world)


def test_who_is_called_back_is_due_now_and_that_is_held_against_it() -> None:
    world = World()
    away = world.left(hint=3000.0)
    world.now_s += 40
    world.forecast.taken_back(away, world.now)
    assert due(world) == 40
    world.now_s += 10
    world.forecast.taken_back(away, world.now)
    assert due(world) == 40, "said twice it counts from the first time"
    world.now_s += 3950
    assert back(world).mistrust.value == pytest.approx(math.log(100))
    world.forecast.taken_back(world.left(), world.now)
    assert due(world) is None
