"""Loops of the background: no fault of a step ends one, and each kind of fault is said once."""

import asyncio
from collections.abc import Callable

import pytest
import structlog

from agentcache.router.lasting import FAULT_PAUSE_S, Lasting, Step

pytestmark = pytest.mark.asyncio


def steps(*told: float | Exception) -> Step:
    """Steps that wait, or fail; after the last one the loop is cancelled."""
    left = list(told)

    async def step() -> float:
        if not left:
            raise asyncio.CancelledError
        each = left.pop(0)
        if isinstance(each, Exception):
            raise each
        return each

    return step


async def ran(step: Step) -> tuple[list[float], list[str]]:
    """How long it waited, and the kinds of faults in the log."""
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    with structlog.testing.capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await Lasting("look", pause).run(step)
    assert {line["loop"] for line in lines} <= {"look"}
    return paused, [type(line["exc_info"]).__name__ for line in lines]


@pytest.mark.parametrize(
    "fault", [ValueError, OSError, RecursionError, MemoryError, AssertionError, TimeoutError]
)
async def test_no_fault_ends_a_loop(fault: Callable[[], Exception]) -> None:
    paused, said = await ran(steps(fault(), 2.0, fault(), 3.0))
    assert paused == [FAULT_PAUSE_S, 2.0, FAULT_PAUSE_S, 3.0]
    assert len(said) == 2


async def test_each_kind_of_fault_is_said_once_while_it_lasts() -> None:
    bad, worse = ValueError("a"), KeyError("b")
    _, said = await ran(steps(bad, bad, worse, bad, worse, 1.0, bad))
    assert said == ["ValueError", "KeyError", "ValueError"]


async def test_a_step_that_waits_itself_is_followed_at_once() -> None:
    paused, said = await ran(steps(0.0, 0.0, 0.5))
    assert (paused, said) == ([0.5], [])
