"""This router's own memory of where sessions are, for the time that the store does not answer."""

from collections import OrderedDict
from typing import Final

from agentcache.clock import Clock
from agentcache.store.api import SessionRef

LIMIT: Final = 100_000


class Bindings:
    """Session → worker, the latest `limit` of them, each believed for `life_s` after it was last said."""

    def __init__(self, clock: Clock, life_s: float, limit: int = LIMIT) -> None:
        self._clock = clock
        self._life_ns = int(life_s * 1e9)
        self._limit = limit
        self._known: OrderedDict[SessionRef, tuple[str, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, ref: SessionRef, worker: str) -> None:
        if not self._life_ns:
            return
        self._known[ref] = (worker, self._clock.now_ns() + self._life_ns)
        self._known.move_to_end(ref)
        if len(self._known) > self._limit:
            self._known.popitem(last=False)

    def find(self, ref: SessionRef) -> str:
        """The worker; "" where none is known, or it was said too long ago."""
        worker, until_ns = self._known.get(ref, ("", 0))
        return worker if self._clock.now_ns() < until_ns else ""

    def forget(self, ref: SessionRef) -> None:
        self._known.pop(ref, None)
