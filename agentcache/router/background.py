"""What a router does beside requests: looks at the workers, reads receipts, sweeps; begun and ended with the app."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from agentcache.router.context import Router
from agentcache.router.lasting import Lasting, Pause
from agentcache.router.sweeper import Sweeper

ENDINGS_S: Final = 2.0
"""Seconds at the end for what is still to be told to the store."""


class Background:
    """The loops of one router process. One that ends though it should not makes the router not ready."""

    def __init__(self, router: Router, pause: Pause = asyncio.sleep) -> None:
        self._router = router
        self._pause = pause
        self._looking = Lasting("workers", pause)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first look at the workers to the last word to the store."""
        router = self._router
        await self._looking.once(self._look)
        sweeper = Sweeper(
            router.store, router.closer, router.world.jitter, router.settings.sweep_s, self._pause
        )
        loops = [
            asyncio.create_task(self._looking.run(self._look_later), name="workers"),
            asyncio.create_task(router.closer.run(), name="receipts"),
            asyncio.create_task(sweeper.run(), name="sweep"),
        ]
        for loop in loops:
            loop.add_done_callback(self._ended)
        try:
            yield
        finally:
            await router.active.idle(ENDINGS_S)
            await router.endings.drained(ENDINGS_S)
            for loop in loops:
                loop.remove_done_callback(self._ended)
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await router.closer.stop()
            await router.chooser.close()
            await router.upstream.close()

    async def _look_later(self) -> float:
        await self._pause(self._router.settings.refresh_s)
        return await self._look()

    async def _look(self) -> float:
        await self._router.chooser.refresh(self._router.store)
        return 0.0

    def _ended(self, loop: asyncio.Task[None]) -> None:
        self._router.ended_loop = loop.get_name()
        fault = None if loop.cancelled() else loop.exception()
        structlog.get_logger().error("background_ended", loop=loop.get_name(), exc_info=fault)
