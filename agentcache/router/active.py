"""How many requests a router is passing on, so that it can end when there are none."""

import asyncio


class Active:
    """A count, and a wait for none. One event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def count(self) -> int:
        return self._count

    def begin(self) -> None:
        self._count += 1
        self._idle.clear()

    def end(self) -> None:
        self._count -= 1
        if not self._count:
            self._idle.set()

    async def idle(self, timeout_s: float) -> bool:
        """Wait for none, at most so long; whether there is none."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
