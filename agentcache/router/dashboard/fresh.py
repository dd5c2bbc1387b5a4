"""Answers that are made at most once in a while, whoever asks and however many ask at a time."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind

V = TypeVar("V")


class Fresh(Generic[V]):
    """Keeps each answer, failures too, for `keep_s` from when its making began.

    Nothing is made while nobody asks. Whoever leaves ends nothing that others wait for.
    """

    def __init__(self, clock: Clock, keep_s: float, limit: int) -> None:
        self._clock = clock
        self._keep_ns = round(keep_s * 1e9)
        self._limit = limit
        self._made: dict[Hashable, tuple[int, asyncio.Task[V]]] = {}

    def __len__(self) -> int:
        return len(self._made)

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The answer to `key`, which `make` makes if nobody else does or did.

        Errors  CacheError(QUEUE_FULL) for more than `limit` keys at a time; whatever `make` raised
        """
        now_ns = self._clock.now_ns()
        for old in [key for key, made in self._made.items() if self._is_old(made, now_ns)]:
            del self._made[old]
        if key not in self._made:
            if len(self._made) >= self._limit:
                said = f"{self._limit} different views were asked for just now: look again in a moment"
                raise CacheError(Kind.QUEUE_FULL, said)
            self._made[key] = (now_ns, asyncio.ensure_future(make()))
        return await asyncio.shield(self._made[key][1])

    def _is_old(self, made: tuple[int, asyncio.Task[V]], now_ns: int) -> bool:
        began_ns, task = made
        return task.done() and now_ns - began_ns >= self._keep_ns
