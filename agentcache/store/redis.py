"""A session store in a Redis 6.2 or later, or a Valkey, shared by every router and worker that names it.

Every call is one script, in the shard of its tenant: `scripts/NAME.lua` says what it takes and answers. What the
scripts do is written to be read in `memory_sessions.py`, `memory_fleet.py` and `memory_desk.py`; a test compares them
step by step.
"""

from agentcache.store.calls import Calls
from agentcache.store.redis_desk import RedisDesk
from agentcache.store.redis_fleet import RedisFleet
from agentcache.store.redis_sessions import RedisSessions


class RedisStore(RedisSessions, RedisFleet, RedisDesk):
    """Sessions, workers and notices in a server. Made by `connect.connect`.

    Caller  uses it in one event loop and closes it there
    """

    def __init__(self, calls: Calls) -> None:
        RedisFleet.__init__(self, calls)

    async def aclose(self) -> None:
        """Let go of the connections. Idempotent."""
        await self.calls.line.close()
