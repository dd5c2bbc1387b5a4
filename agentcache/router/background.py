"""What a router does beside requests: looks at the workers, reads receipts, sweeps; begun and ended with the app."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog

from agentcache.errors import CacheError
from agentcache.router.context import Router
from agentcache.router.sweeper import Sweeper

ENDINGS_S: Final = 2.0
"""Seconds at the end for what is still to be told to the store."""


class Background:
    """The loops of one router process."""

    def __init__(self, router: Router) -> None:
        self._router = router

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first look at the workers to the last word to the store."""
        router = self._router
        await self._looked()
        sweeper = Sweeper(router.store, router.closer, router.world.jitter, every_s=router.settings.sweep_s)
        loops = [asyncio.ensure_future(each) for each in (self._look(), router.closer.run(), sweeper.run())]
        for loop in loops:
            loop.add_done_callback(_must_not_end)
        try:
            yield
        finally:
            await router.active.idle(ENDINGS_S)
            await router.endings.drained(ENDINGS_S)
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await router.closer.stop()
            await router.chooser.close()
            await router.upstream.close()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(self._router.settings.refresh_s)
            await self._looked()

    async def _looked(self) -> None:
        try:
            await self._router.chooser.refresh(self._router.store)
        except (CacheError, OSError) as error:
            structlog.get_logger().warning("workers_unseen", why=str(error))


def _must_not_end(loop: asyncio.Future[None]) -> None:
    if not loop.cancelled() and (fault := loop.exception()):
        structlog.get_logger().error("background_ended", exc_info=fault)
