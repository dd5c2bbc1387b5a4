"""Loops that outlive whatever goes wrong in one of their steps."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import structlog

Pause = Callable[[float], Awaitable[None]]
Step = Callable[[], Awaitable[float]]
"""Part of a loop's work; answers how many seconds to wait before the next one, 0 for none."""
FAULT_PAUSE_S: Final = 1.0
"""After a step that failed."""


class Lasting:
    """One loop. `name` is what the log calls it; each kind of fault is logged once until a step goes well again."""

    def __init__(self, name: str, pause: Pause = asyncio.sleep) -> None:
        self._name = name
        self._pause = pause
        self._said: set[type[Exception]] = set()

    async def run(self, step: Step) -> NoReturn:
        """Take steps until cancelled."""
        while True:
            if pause_s := await self.once(step):
                await self._pause(pause_s)

    async def once(self, step: Step) -> float:
        """Take one step; how long to wait before the next."""
        try:
            pause_s = await step()
        except Exception as fault:
            if type(fault) not in self._said:
                structlog.get_logger().error("step_failed", loop=self._name, exc_info=fault)
            self._said.add(type(fault))
            return FAULT_PAUSE_S
        self._said.clear()
        return pause_s
