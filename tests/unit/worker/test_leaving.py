"""A store that hangs when it is closed keeps no worker."""

import asyncio

import pytest
from structlog.testing import capture_logs

from agentcache.worker import leaving

pytestmark = pytest.mark.asyncio


class StuckThread:
    """The end of an engine thread whose store does not let go until `freed`."""

    def __init__(self) -> None:
        self.freed = asyncio.Event()
        self.graces: list[float] = []

    async def stop(self, grace_s: float) -> None:
        self.graces.append(grace_s)
        await self.freed.wait()


async def test_a_thread_that_ends_is_waited_for() -> None:
    thread = StuckThread()
    thread.freed.set()
    await leaving.stopped(thread, 3, lambda: pytest.fail("it had ended"))
    assert thread.graces == [3]


async def test_a_thread_that_hangs_is_left_after_the_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "CLOSE_S", 0.01)
    thread = StuckThread()
    with capture_logs() as lines:
        await leaving.stopped(thread, 0.01, thread.freed.set)
    assert thread.freed.is_set()
    assert [line["event"] for line in lines] == ["stuck"]
