"""Closes of the last while, done again when the store has lost its data.

A close that the store forgot, with those notices of it that were still unread, would be undone by the workers, which
offer a new store what they have.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from agentcache.clock import Clock
from agentcache.store.api import ClosedFamily, Closing, SessionRef
from agentcache.wire import TAG_VALID_S

LIMIT: Final = 100_000
"""Closes remembered; of more in `TAG_VALID_S` the oldest go."""
TOGETHER: Final = 64
"""Closes that are done again at a time."""


class EpochStore(Protocol):
    """What this asks of the session store."""

    async def prepare(self) -> str: ...

    async def close(self, ref: SessionRef, closing: Closing) -> ClosedFamily: ...


@dataclass(frozen=True, slots=True)
class _Closed:
    """A close that was answered, and when (monotonic nanoseconds)."""

    ref: SessionRef
    generation: int
    mode: str
    at_ns: int


class Reclosing:
    """What one router process has closed, as long as a late request or a worker's offer could bring it back."""

    def __init__(
        self, store: EpochStore, clock: Clock, keep_s: float = TAG_VALID_S, limit: int = LIMIT
    ) -> None:
        self._store = store
        self._clock = clock
        self._keep_ns = round(keep_s * 1e9)
        self._recent: deque[_Closed] = deque(maxlen=limit)
        self._due: deque[_Closed] = deque()
        self._epoch = ""

    def remember(self, ref: SessionRef, generation: int, mode: str) -> None:
        now_ns = self._clock.now_ns()
        self._forget_old(now_ns)
        self._recent.append(_Closed(ref, generation, mode, now_ns))

    async def lost(self) -> bool:
        """Whether the store has lost its data since the last call; what was closed is then due.

        Errors   CacheError, of `prepare`
        """
        epoch, before = await self._store.prepare(), self._epoch
        self._epoch = epoch
        if before in ("", epoch):
            return False
        self._forget_old(self._clock.now_ns())
        self._due = deque(self._recent)
        return True

    async def catch_up(self) -> int:
        """Close again what is due; a session that was opened anew since is left alone. Answers how many were due.

        Errors   CacheError(STORE_FAILED): what was not answered stays due
        """
        done = 0
        while self._due:
            some = tuple(islice(self._due, TOGETHER))
            await asyncio.gather(*map(self._again, some))
            for _ in some:
                self._due.popleft()
            done += len(some)
        return done

    async def _again(self, closed: _Closed) -> None:
        await self._store.close(closed.ref, Closing(closed.generation, closed.mode, again=True))

    def _forget_old(self, now_ns: int) -> None:
        while self._recent and self._recent[0].at_ns < now_ns - self._keep_ns:
            self._recent.popleft()
