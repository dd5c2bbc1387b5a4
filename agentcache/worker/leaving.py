"""The way out of the process when something in its end hangs."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from agentcache.web.leaving import leave_at_once

CLOSE_S = 10
"""Seconds beyond the grace for the engine to end its step and close its tiers."""


class Stoppable(Protocol):
    """What ends, and may hang in its end."""

    async def stop(self, grace_s: float) -> None: ...


async def stopped(thread: Stoppable, grace_s: float, leave: Callable[[], object] = leave_at_once) -> None:
    """Stop the engine's thread, which closes its tiers last; `leave` if something there hangs.

    A store that hangs is no reason to stay: whoever keeps its data keeps it without us.
    """
    stopping = asyncio.ensure_future(thread.stop(grace_s))
    done, _ = await asyncio.wait({stopping}, timeout=grace_s + CLOSE_S)
    if not done:
        structlog.get_logger().error(
            "stuck", waited_s=grace_s + CLOSE_S, what="the engine or its store; left as it is"
        )
        leave()
    await stopping
