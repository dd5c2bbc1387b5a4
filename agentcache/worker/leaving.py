"""Ways out of the process: before anything runs, and when something in its end hangs."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import structlog

CLOSE_S = 10
"""Seconds beyond the grace for the engine to end its step and close its tiers."""


class Stoppable(Protocol):
    """What ends, and may hang in its end."""

    async def stop(self, grace_s: float) -> None: ...


def leave_at_once() -> None:
    """Exit code 0, now: nothing is to be saved, and the engine's thread may compute and cannot be unwound."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@contextmanager
def leaving_early(leave: Callable[[], object]) -> Iterator[None]:
    """Until the server has its own handlers, SIGTERM and Ctrl-C call `leave`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        sent: signal.signal(sent, lambda _sent, _frame: leave()) for sent in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for sent, handler in before.items():
            signal.signal(sent, handler)


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
