"""A loop whose time jumps: everything that waits waits in its time, in order, and equal runs are equal."""

import asyncio
import random

import pytest

from agentcache.clock import SystemClock
from agentcache.replay.routed.loop import VirtualLoop, run_virtual

HOUR_S = 3600.0


async def later(seconds: float) -> None:
    """Goes on when so much of the loop's time has passed."""
    loop = asyncio.get_running_loop()
    due = loop.create_future()
    loop.call_later(seconds, due.set_result, None)
    await due


def test_hours_pass_in_no_time() -> None:
    async def main(loop: VirtualLoop) -> float:
        await later(HOUR_S)
        return loop.time()

    began_ns = SystemClock().now_ns()
    assert run_virtual(main) == HOUR_S
    assert SystemClock().now_ns() - began_ns < HOUR_S * 1e9 / 100


def test_those_that_wait_go_on_in_the_order_of_their_times() -> None:
    async def main(loop: VirtualLoop) -> list[tuple[int, float]]:
        went_on: list[tuple[int, float]] = []

        async def wait(seconds: int) -> None:
            await later(seconds)
            went_on.append((seconds, loop.time()))

        await asyncio.gather(*map(wait, (30, 10, 20)))
        return went_on

    assert run_virtual(main) == [(10, 10.0), (20, 20.0), (30, 30.0)]


def test_no_timer_is_early_and_each_is_late_by_a_nanosecond_at_most() -> None:
    chance = random.Random(1)

    async def main(loop: VirtualLoop) -> list[float]:
        late = []
        for _ in range(2_000):
            due = loop.time() + chance.expovariate(0.1)
            await later(due - loop.time())
            late.append(loop.time() - due)
        return late

    late = run_virtual(main)
    assert min(late) >= -1e-9
    assert max(late) <= 2e-9


def test_a_timeout_ends_what_takes_longer() -> None:
    async def main(loop: VirtualLoop) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await later(HOUR_S)
        return loop.time()

    assert run_virtual(main) == 5.0


def test_what_would_go_to_a_thread_runs_at_once() -> None:
    def fails() -> None:
        raise ValueError("no")

    async def main(loop: VirtualLoop) -> tuple[int, float]:
        with pytest.raises(ValueError, match="no"):
            await asyncio.to_thread(fails)
        return await asyncio.to_thread(lambda: 7), loop.time()

    assert run_virtual(main) == (7, 0.0)


def test_its_clock_is_its_time() -> None:
    async def main(loop: VirtualLoop) -> tuple[int, int]:
        loop.call_soon_threadsafe(int)
        before = loop.now_ns()
        await later(0.25)
        return before, loop.now_ns()

    assert run_virtual(main) == (0, 250_000_000)


def test_waiting_for_nothing_is_a_fault() -> None:
    async def main(_: VirtualLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="no timer will end that"):
        run_virtual(main)
