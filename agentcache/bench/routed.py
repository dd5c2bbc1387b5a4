"""What the router adds to the time to the first byte: `agentcache bench routed [--json]`.

An upstream that computes nothing is asked directly and through a router, in turn, in the same run: an open loop of
Poisson arrivals, 20 events 20 ms apart, then 64 arrivals at once. Every routed request has a session: two calls of
the store, a signed tag. Router, upstream, store and the load are processes of this machine and share its cores.
"""

import argparse
import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from agentcache.bench.starting import start
from agentcache.clock import SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.store.connect import open_home

BAR_MS = 1.0
AT_ONCE = 64
SESSIONS = 200
START_S = 20.0
WORDS = "a turn of an agent that has read a file and says what it will do next " * 16


@dataclass(frozen=True, slots=True)
class Load:
    """Rounds of one path each: so many seconds of so many arrivals a second."""

    rate: float = 160.0
    seconds: float = 8.0
    rounds: int = 5
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Path50:
    """Time to the first byte of an answer's body, in milliseconds: medians over rounds of each round's figure."""

    p50_ms: float
    p99_ms: float
    at_once_p50_ms: float
    requests: int
    failed: int


@dataclass(frozen=True, slots=True)
class Compared:
    direct: Path50
    routed: Path50
    added_p50_ms: float
    added_at_once_p50_ms: float
    rate: float
    bar_ms: float = BAR_MS


@dataclass(slots=True)
class Caller:
    """A client of one address: connections are kept and used again. Times are of a monotonic clock, in seconds."""

    port: int
    times: list[float] = field(default_factory=list)
    failed: int = 0
    _idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=list)

    async def call(self, request: bytes) -> None:
        """One request to its end; what fails is counted."""
        try:
            reader, writer = self._idle.pop() if self._idle else await self._connect()
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(1)
            taken = time.perf_counter() - began
            await reader.readuntil(b"\r\n0\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            self.failed += 1
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.failed += 1
        self.times.append(taken)
        self._idle.append((reader, writer))

    async def warm(self, connections: int) -> None:
        """Open connections before the clock starts: agents keep theirs."""
        self._idle += [await self._connect() for _ in range(connections - len(self._idle))]

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.transport.abort()


@dataclass(slots=True)
class Rounds:
    """What the rounds of one path found."""

    p50s: list[float] = field(default_factory=list)
    p99s: list[float] = field(default_factory=list)
    bursts: list[float] = field(default_factory=list)
    requests: int = 0
    failed: int = 0

    def summary(self) -> Path50:
        p50, p99, burst = (
            round(statistics.median(found) * 1e3, 3) for found in (self.p50s, self.p99s, self.bursts)
        )
        return Path50(p50, p99, burst, self.requests, self.failed)


def request_of(port: int, session: int) -> bytes:
    """A chat turn of about a kilobyte in a session."""
    body = json.dumps({"model": "bench", "stream": True, "messages": [{"role": "user", "content": WORDS}]})
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"x-agentcache-session: agent-{session}\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode()


async def poisson(caller: Caller, load: Load, chance: random.Random) -> None:
    """An open loop: arrivals do not wait for answers."""
    loop = asyncio.get_running_loop()
    calls: set[asyncio.Task[None]] = set()
    end = due = loop.time()
    end += load.seconds
    while due < end:
        due += chance.expovariate(load.rate)
        await asyncio.sleep(max(0.0, due - loop.time()))
        calls.add(asyncio.ensure_future(caller.call(request_of(caller.port, chance.randrange(SESSIONS)))))
    await asyncio.gather(*calls)


async def measure(direct_port: int, routed_port: int, load: Load) -> Compared:
    """Both paths in turn, round by round."""
    chance = random.Random(load.seed)
    paths = {direct_port: Rounds(), routed_port: Rounds()}
    for _ in range(load.rounds):
        for port, rounds in paths.items():
            await _round(port, rounds, load, chance)
    direct, routed = (rounds.summary() for rounds in paths.values())
    return Compared(
        direct,
        routed,
        round(routed.p50_ms - direct.p50_ms, 3),
        round(routed.at_once_p50_ms - direct.at_once_p50_ms, 3),
        load.rate,
    )


async def _round(port: int, rounds: Rounds, load: Load, chance: random.Random) -> None:
    caller = Caller(port)
    await caller.warm(AT_ONCE)
    await asyncio.gather(*(caller.call(request_of(port, session)) for session in range(AT_ONCE)))
    caller.times.clear()
    await asyncio.gather(*(caller.call(request_of(port, session)) for session in range(AT_ONCE)))
    rounds.bursts.append(statistics.median(caller.times))
    caller.times.clear()
    await poisson(caller, load, chance)
    ordered = sorted(caller.times)
    rounds.p50s.append(statistics.median(ordered))
    rounds.p99s.append(ordered[int(len(ordered) * 0.99)])
    rounds.requests += len(ordered)
    rounds.failed += caller.failed
    await caller.close()


@asynccontextmanager
async def processes(folder: Path) -> AsyncIterator[tuple[int, int]]:
    """An upstream and a router over an embedded Valkey: their ports."""
    home = open_home(folder, SystemClock())
    port = _free_port()
    upstream = subprocess.Popen(
        [sys.executable, "-m", "agentcache.bench.routed_upstream", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    told = ["--router-dir", str(folder), "--port", str(port), "--log-level", "warning"]
    router = subprocess.Popen(
        [sys.executable, "-m", "agentcache", "router", *told], stdout=subprocess.DEVNULL
    )
    try:
        assert upstream.stdout, "it was asked for"
        direct = int(await asyncio.to_thread(upstream.stdout.readline))
        await _ready(port)
        yield direct, port
    finally:
        router.terminate()
        router.wait(START_S)
        upstream.communicate(timeout=START_S)
        home.close()


async def _ready(port: int) -> None:
    """Return once the router has a worker. Errors: CacheError(UNREACHABLE)."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /ready HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n")
            status = await reader.readline()
            writer.close()
        except OSError:
            status = b""
        if status.startswith(b"HTTP/1.1 200"):
            return
        await asyncio.sleep(0.1)
    raise CacheError(Kind.UNREACHABLE, f"the router on port {port} is not ready after {START_S:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _run(load: Load) -> Compared:
    with tempfile.TemporaryDirectory(prefix="agentcache-bench-") as folder:
        async with processes(Path(folder)) as (direct, routed):
            return await measure(direct, routed, load)


def main(arguments: Sequence[str]) -> int:
    """Measure, print a line a path (or one JSON object); exit 1 if a request failed."""
    parser = argparse.ArgumentParser(
        prog="agentcache bench routed", description=(__doc__ or "").splitlines()[0]
    )
    usual = Load()
    parser.add_argument("--rate", type=float, default=usual.rate, help="arrivals a second")
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="seconds of each round")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="rounds of each path")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    found = asyncio.run(_run(Load(options.rate, options.seconds, options.rounds)))
    complete = not (found.direct.failed or found.routed.failed)
    if options.json:
        print(json.dumps({**asdict(found), "complete": complete}))
        return 0 if complete else 1
    for name, path in (("direct", found.direct), ("routed", found.routed)):
        print(
            f"{name}: first byte after {path.p50_ms} ms (p99 {path.p99_ms}), 64 at once {path.at_once_p50_ms}; "
            f"{path.requests} requests, {path.failed} failed"
        )
    print(
        f"added: {found.added_p50_ms} ms p50 (at most {BAR_MS} is allowed), 64 at once {found.added_at_once_p50_ms}"
    )
    return 0 if complete else 1


if __name__ == "__main__":
    start(main)
