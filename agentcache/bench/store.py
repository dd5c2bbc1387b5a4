"""How many tags a second one router process gets from its session store: `agentcache bench store [--json]`.

A local Valkey of our own on a unix socket. The store's way (one connection, the calls of a loop's tick sent together)
against redis-py's pool of connections with the same script, in turn, in the same run.
"""

import argparse
import asyncio
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvicorn
from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import NoScriptError

from agentcache.bench.starting import start
from agentcache.clock import SystemClock
from agentcache.embedded import ServerOptions, open_embedded
from agentcache.store.api import SessionRef, StoreRules, Use
from agentcache.store.calls import Calls
from agentcache.store.connect import connect
from agentcache.store.lua import Script
from agentcache.store.pipe import Words
from agentcache.store.redis import RedisStore

BAR_PER_S = 20_000
SESSIONS = 1000
POOL = 64
CONCURRENCY = (1, 64, 512)
Tag = Callable[[SessionRef, Use], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Rate:
    """Medians over the rounds: calls a second, and what one call takes, in microseconds."""

    way: str
    at_once: int
    per_s: int
    p50_us: float
    p99_us: float


@dataclass(frozen=True, slots=True)
class Round:
    per_s: float
    p50_us: float
    p99_us: float


class PooledLine:
    """A server by redis-py's own client: a connection of the pool for each call."""

    def __init__(self, url: str) -> None:
        self.address = url
        pool = BlockingConnectionPool.from_url(url, max_connections=POOL, decode_responses=True, timeout=30)
        self._redis: Any = Redis(connection_pool=pool)

    async def evaluate(self, script: Script, words: Words) -> Any:
        try:
            return await self._redis.evalsha(script.digest, *words)
        except NoScriptError:
            return await self._redis.eval(script.text, *words)

    async def listen(self, name: str, stream: str, after: str, count: int, wait_s: float) -> list[Any]:
        return []

    async def sweep_out(self, pattern: str) -> None:
        """Nothing is left behind: the server ends with the benchmark."""

    async def info(self) -> dict[str, Any]:
        return dict(await self._redis.info())

    async def close(self) -> None:
        await self._redis.aclose()


async def measured(tag: Tag, at_once: int, calls: int, name: str) -> Round:
    """So many tags, `at_once` of them at a time."""
    times: list[float] = []
    numbers = iter(range(calls))

    async def caller() -> None:
        for number in numbers:
            ref, use = SessionRef("default", f"s{number % SESSIONS}"), Use(f"{name}{number}", worker="w1")
            began = time.perf_counter()
            await tag(ref, use)
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(at_once)))
    taken = time.perf_counter() - began
    times.sort()
    return Round(calls / taken, statistics.median(times) * 1e6, times[int(len(times) * 0.99)] * 1e6)


async def compare(url: str, calls: int, rounds: int) -> list[Rate]:
    """Both ways at every concurrency, round by round."""
    ours = await connect(url, StoreRules())
    pooled = RedisStore(Calls(PooledLine(url), StoreRules(), 1, None))
    await ours.prepare()
    ways: dict[str, Tag] = {"one connection": ours.tag, "pool": pooled.tag}
    found: dict[tuple[str, int], list[Round]] = {}
    turns = itertools.product(range(rounds + 1), ways.items(), CONCURRENCY)
    for number, (way, tag), at_once in turns:
        some = calls if at_once > 1 else calls // 5
        one = await measured(tag, at_once, some, f"{number}{way}{at_once}-")
        if number:  # the first warms up
            found.setdefault((way, at_once), []).append(one)
    await ours.aclose()
    await pooled.aclose()
    return [_rate(way, at_once, each) for (way, at_once), each in found.items()]


def _rate(way: str, at_once: int, found: Sequence[Round]) -> Rate:
    per_s, p50, p99 = (
        statistics.median(column)
        for column in zip(*((one.per_s, one.p50_us, one.p99_us) for one in found), strict=True)
    )
    return Rate(way, at_once, round(per_s), round(p50, 1), round(p99, 1))


def main(arguments: Sequence[str]) -> int:
    """Measure, print a line each (or one JSON object); exit 0 when it was measured."""
    parser = argparse.ArgumentParser(
        prog="agentcache bench store", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--calls", type=int, default=20_000, help="tags of each round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each way")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    loop = uvicorn.Config("", log_config=None).get_loop_factory()
    with tempfile.TemporaryDirectory(prefix="agentcache-bench-") as folder:
        server = open_embedded(Path(folder), ServerOptions(append_only=True), SystemClock())
        try:
            with asyncio.Runner(loop_factory=loop) as runner:
                rates = runner.run(compare(f"unix://{server.socket}", options.calls, options.rounds))
        finally:
            server.close()
    if options.json:
        print(json.dumps({"bar_per_s": BAR_PER_S, "rates": [asdict(rate) for rate in rates]}))
        return 0
    for rate in rates:
        print(
            f"{rate.way}, {rate.at_once} at once: {rate.per_s:,} tags a second, p50 {rate.p50_us:,} µs, "
            f"p99 {rate.p99_us:,}"
        )
    best = max(rate.per_s for rate in rates if rate.way == "one connection")
    print(f"the best of one connection is {best:,} a second; at least {BAR_PER_S:,} are asked")
    return 0


if __name__ == "__main__":
    start(main)
