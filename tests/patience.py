"""How long tests wait for what must come, and how they measure what must not take long: a machine may be slow, shared
by others, or stand still for some seconds."""

import asyncio
from collections.abc import Callable
from time import process_time

PATIENCE_S = 60.0


async def until(happened: Callable[[], object]) -> None:
    """Wait until it is so. Errors: TimeoutError after `PATIENCE_S`"""
    async with asyncio.timeout(PATIENCE_S):
        while not happened():
            await asyncio.sleep(0)


async def computed_until(happened: Callable[[], object]) -> float:
    """Seconds that this process computed until it was so.

    It asks without a pause: what is measured is time on the clock, less the time in which nobody let it run.
    """
    began = process_time()
    await until(happened)
    return process_time() - began


def pass_time(seconds: float) -> None:
    """Timers of the running loop end so much earlier: what waited for an answer for so long waits no more."""
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]
