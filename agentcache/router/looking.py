"""Looks at the fleet while a worker owes something, so that nobody waits for ever for one that froze or vanished."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from agentcache.router.context import Router

SILENT_LOOKS: Final = 4
"""Looks at the fleet in a row at which a worker that owes something is not alive, before it is given up."""


class Looking:
    """Looks now and then, and ends `limit` once nobody hears the worker while it owes something.

    What comes from the worker itself counts as much as a heartbeat: a worker that only lost its store goes on.
    """

    def __init__(self, router: Router, worker: str, limit: asyncio.Timeout) -> None:
        self._router = router
        self._worker = worker
        self._limit = limit
        self._silent = 0
        self._owes = True
        self._loop = asyncio.get_running_loop()
        self._next = self._later()

    def end(self) -> None:
        self._next.cancel()

    def came(self) -> None:
        """Something came from the worker, which owes nothing while that is passed on to a client, however slow."""
        self._silent, self._owes = 0, False

    def owes(self) -> None:
        """The worker owes the next part."""
        self._owes = True

    def _later(self) -> asyncio.TimerHandle:
        return self._loop.call_later(self._router.settings.refresh_s, self._look)

    def _look(self) -> None:
        view = self._router.fleet.find(self._worker)
        self._silent = self._silent + 1 if self._owes and not (view and view.alive) else 0
        if self._silent >= SILENT_LOOKS:
            self._limit.reschedule(self._loop.time())
        else:
            self._next = self._later()


@asynccontextmanager
async def looking_at(router: Router, worker: str) -> AsyncIterator[Looking]:
    """Errors: TimeoutError in place of whatever waits inside, once the worker is given up."""
    async with asyncio.timeout(None) as limit:
        looking = Looking(router, worker, limit)
        try:
            yield looking
        finally:
            looking.end()
