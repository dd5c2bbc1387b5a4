"""The sweep: idle sessions run out, capped closes go on, old tombstones are forgotten. Every router does it."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from agentcache.errors import CacheError
from agentcache.router.lasting import Lasting, Pause
from agentcache.store.api import ClosedOne, Swept

EVERY_S: Final = 0.5
MORE_S: Final = 0.02
"""Between two sweeps while there is more to do: room for everybody else."""
LIMIT: Final = 500
"""Sessions that one sweep looks at: a few milliseconds of the store's time."""


class Endings(Protocol):
    """Who hears of sessions that a sweep has ended."""

    def closed(self, one: ClosedOne) -> None: ...

    def lapsed(self, one: ClosedOne) -> None: ...


class SweepStore(Protocol):
    """What a sweep asks of the session store."""

    async def sweep(self, limit: int) -> Swept: ...


class Sweeper:
    """Sweeps until cancelled, every `every_s` to twice as long: `jitter` answers numbers in [0, 1), so that routers
    do not sweep together. A store that fails is asked again the next time."""

    def __init__(
        self,
        store: SweepStore,
        endings: Endings,
        jitter: Callable[[], float],
        every_s: float = EVERY_S,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._store = store
        self._endings = endings
        self._jitter = jitter
        self._every_s = every_s
        self._loop = Lasting("sweep", pause)
        self._failing = False

    async def run(self) -> None:
        """Sweep, wait, and again; hardly waiting while there is more to do."""
        await self._loop.run(self._step)

    async def _step(self) -> float:
        return MORE_S if await self.once() else self._every_s * (1.0 + self._jitter())

    async def once(self) -> bool:
        """One sweep; whether there is more to do at once."""
        try:
            swept = await self._store.sweep(LIMIT)
        except CacheError as error:
            if not self._failing:
                structlog.get_logger().warning("sweep_failed", why=error.message)
            self._failing = True
            return False
        self._failing = False
        for one in swept.closed:
            self._endings.closed(one)
        for one in swept.lapsed:
            self._endings.lapsed(one)
        if swept.offered or swept.expired or swept.closed:
            structlog.get_logger().info(
                "swept", offered=swept.offered, expired=swept.expired, closed=len(swept.closed)
            )
        return swept.again
