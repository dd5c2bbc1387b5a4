"""How much of the recorded waits a replay waits."""

import asyncio
from dataclasses import dataclass

from agentcache.clock import Clock, SystemClock
from agentcache.replay.client import Pause
from agentcache.replay.trace import Gap

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """A call is sent its gap, divided by `speed`, after the end of the one before it; 0: at once.

    A gap that was not recorded is not waited for. `sleep` waits some seconds.
    """

    speed: float
    clock: Clock
    sleep: Pause

    async def wait(self, ended_ns: int, gap: Gap) -> None:
        """Return when the call with this gap is due."""
        if not self.speed or not gap.seconds:
            return
        left_ns = ended_ns + gap.seconds * _NS / self.speed - self.clock.now_ns()
        if left_ns > 0:
            await self.sleep(left_ns / _NS)


AT_ONCE = Pace(0.0, SystemClock(), asyncio.sleep)
