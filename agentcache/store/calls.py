"""How a store in Redis asks: scripts of a shard, over any connection, with the rules and the time in every call."""

import asyncio
import hashlib
import itertools
import secrets
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from agentcache.errors import CacheError, Kind
from agentcache.store.api import DEPTH, FORMAT, StoreRules
from agentcache.store.lua import Script, Scripts
from agentcache.store.pipe import FAILURES, Words

NowMs = Callable[[], int]
WHERE_IN_A_SCRIPT = " script: "


class Line(Protocol):
    """A connection to the server, or to all servers of a cluster, for one event loop."""

    address: str

    async def evaluate(self, script: Script, words: Words) -> Any:
        """The reply of a script. `words`: the number of keys, the keys, the arguments. Errors: `pipe.FAILURES`."""

    async def listen(self, name: str, stream: str, after: str, count: int, wait_s: float) -> list[Any]:
        """Entries of a stream once there are any, empty after `wait_s` or before: ask again. Errors: as above.

        `name`: calls of one name take turns.
        """

    async def sweep_out(self, pattern: str) -> None:
        """Delete all keys of a pattern."""

    async def info(self) -> dict[str, Any]: ...

    async def close(self) -> None: ...


class Calls:
    """Scripts by name. All keys of a shard have its prefix `ac:{SHARD}:`, and a tenant has one shard.

    `now_ms`: the time for every call; without it, the server's.
    """

    def __init__(self, line: Line, rules: StoreRules, shards: int, now_ms: NowMs | None) -> None:
        self.line = line
        self.shards = shards
        self.format = f"{FORMAT}/{shards}"
        self._now_ms: Callable[[], int | str] = now_ms or (lambda: "")
        self._scripts = Scripts(_constants(rules, self.format))
        self._heads = [f"{self.prefix(shard)}epoch" for shard in range(shards)]
        self._known = [""] * shards
        self._born = secrets.token_hex(8)
        self._count = itertools.count(1)

    def prefix(self, shard: int) -> str:
        return f"ac:{{{shard}}}:"

    def shard(self, tenant: str) -> int:
        return zlib.crc32(tenant.encode()) % self.shards

    async def ask(self, name: str, shard: int, *words: str | int) -> Any:
        """What a script answers. Errors: CacheError(STORE_FAILED)."""
        rest = (self._heads[shard], self._now_ms(), f"{self._born}-{next(self._count)}", *words)
        try:
            return await self.line.evaluate(self._scripts[name], (1, *rest))
        except FAILURES as bad:
            raise self._failed(bad) from bad

    async def ask_all(self, name: str, *words: str | int) -> list[Any]:
        """What a script answers in each shard."""
        return await asyncio.gather(*(self.ask(name, shard, *words) for shard in range(self.shards)))

    def epoch(self, shard: int, epoch: str) -> str:
        """One name for the epochs of all shards, as they are known here, after one shard has told its own."""
        if self.shards == 1:
            return epoch
        self._known[shard] = epoch
        return hashlib.sha256("+".join(self._known).encode()).hexdigest()[:16]

    def epochs(self, of_shards: Sequence[str]) -> str:
        """The same, after all shards have."""
        return [self.epoch(shard, epoch) for shard, epoch in enumerate(of_shards)][-1]

    @contextmanager
    def refusing(self) -> Iterator[None]:
        try:
            yield
        except FAILURES as bad:
            raise self._failed(bad) from bad

    def _failed(self, bad: Exception) -> CacheError:
        why = str(bad).partition(WHERE_IN_A_SCRIPT)[0] or "it did not answer in time"
        return CacheError(Kind.STORE_FAILED, f"the session store at {self.line.address} failed: {why}")


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _constants(rules: StoreRules, of_format: str) -> dict[str, int | str]:
    """What is put before every script."""
    return {
        "FORMAT": of_format,
        "TTL": milliseconds(rules.ttl_s),
        "REOPEN": milliseconds(rules.reopen_after_s),
        "TOMBSTONE": milliseconds(rules.tombstone_s),
        "TOMBSTONES": rules.tombstones,
        "IN_FLIGHT": milliseconds(rules.in_flight_s),
        "WORKER": milliseconds(rules.worker_s),
        "CLOSES": rules.close_limit,
        "ABANDONED": milliseconds(rules.abandoned_s),
        "LENGTH": rules.stream_length,
        "DEPTH": DEPTH,
    }
