"""A session store in the memory of one process: the specification of the others, and a double for tests.

Nothing is awaited inside a call, so that every call is one atomic change, as a script is in Redis.
"""

from collections.abc import Callable

from agentcache.store.api import StoreRules
from agentcache.store.memory_books import Books
from agentcache.store.memory_desk import MemoryDesk
from agentcache.store.memory_fleet import MemoryFleet
from agentcache.store.memory_sessions import MemorySessions


class MemoryStore(MemorySessions, MemoryFleet, MemoryDesk):
    """Sessions, workers and notices of routers and workers in one event loop."""

    def __init__(self, rules: StoreRules, now_ms: Callable[[], int], new_epoch: Callable[[], str]) -> None:
        super().__init__(Books(rules, now_ms, new_epoch))

    async def aclose(self) -> None:
        """Nothing is held."""
