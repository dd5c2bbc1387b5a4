"""What is still to be told to the store after an answer has ended; no client waits for it, and none can cancel it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeVar

import structlog

from agentcache.errors import CacheError, Kind

RETRY_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0)
"""Pauses while the store does not answer. After that its own lease on a request (`in_flight_s`) ends it."""
PENDING: Final = 20_000
"""Requests that may wait for a store that is down; what comes beyond them is left to that lease."""

Told = TypeVar("Told")
Pause = Callable[[float], Awaitable[None]]


class Endings:
    """Background work of one router process, in one loop."""

    def __init__(self, pause: Pause = asyncio.sleep) -> None:
        self._pause = pause
        self._tasks: set[asyncio.Task[None]] = set()
        self._retrying = 0

    @property
    def pending(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[object, object, None]) -> None:
        """Run `work` to its end, whatever becomes of the caller."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def insist(self, call: Callable[[], Awaitable[Told]]) -> tuple[Told, ...]:
        """Repeat a call of the store that may be sent again, until it answers; () if it never did."""
        for pause_s in (*RETRY_S, 0.0):
            try:
                return (await call(),)
            except CacheError as error:
                if error.kind is not Kind.STORE_FAILED or not pause_s or self._retrying >= PENDING:
                    return ()
            await self._wait(pause_s)
        return ()

    async def drained(self, timeout_s: float) -> None:
        """Wait for what is left, at most so long; then drop it."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=timeout_s)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self, pause_s: float) -> None:
        self._retrying += 1
        try:
            await self._pause(pause_s)
        finally:
            self._retrying -= 1

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()):
            structlog.get_logger().error("ending failed", exc_info=fault)
