"""What the router adds to the time to the first byte: `agentcache bench routed [--json]`.

An upstream that computes nothing is asked directly, through a router as it is by default, which learns how long tools
take, and through one that does not (--no-learn-waits); in turn, in the same run: an open loop of Poisson arrivals, 20
events 20 ms apart, then 64 arrivals at once. Every routed request has a session: two calls of the store, a signed tag.
Every turn calls a tool and returns with its result two seconds later, so the one that learns soon hints at each wait.
Routers, upstream, store and the load are processes of this machine and share its cores.
"""

import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from rich.console import Console

from agentcache.bench.options import add_answers, answer, parser_of
from agentcache.bench.routed_upstream import CALL_ID, TOOL
from agentcache.bench.starting import start
from agentcache.clock import SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.replay.progress import steps
from agentcache.store.connect import open_home

BAR_MS = 1.0
AT_ONCE = 64
SESSIONS = 320
"""They take turns in rotation: at 160 arrivals a second one of them waits for its tool for 1.6 s."""
START_S = 20.0
WORDS = "a turn of an agent that has read a file and says what it will do next " * 14
DIRECT, LEARNING, QUIET = "direct", "routed", "without_learning"
PATHS = (DIRECT, LEARNING, QUIET)
HINTS = 'agentcache_router_wait_hints_total{outcome="sent"}'


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
    """`added_*` is what routers add to asking directly, `hints` how often the one that learns told of a wait."""

    direct: Path50
    routed: Path50
    without_learning: Path50
    added_p50_ms: float
    added_at_once_p50_ms: float
    added_without_learning_p50_ms: float
    added_without_learning_at_once_p50_ms: float
    hints: int
    rate: float
    bar_ms: float = BAR_MS

    @property
    def complete(self) -> bool:
        return not (self.direct.failed or self.routed.failed or self.without_learning.failed)


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


def request_of(port: int, session: int, call_id: str = "earlier") -> bytes:
    """A chat turn of about a kilobyte in a session of this address, with the result of a call.

    One of another call than the session's last teaches a router nothing of how long tools take.
    """
    called = {"id": call_id, "type": "function", "function": {"name": TOOL, "arguments": "{}"}}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": call_id, "content": WORDS},
    ]
    body = json.dumps({"model": "bench", "stream": True, "messages": messages})
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        f"x-agentcache-session: agent-{port}-{session}\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode()


async def poisson(caller: Caller, load: Load, chance: random.Random) -> None:
    """An open loop: arrivals do not wait for answers. What a session's first request brings is long over."""
    loop = asyncio.get_running_loop()
    calls: set[asyncio.Task[None]] = set()
    end = due = loop.time()
    end += load.seconds
    while due < end:
        due += chance.expovariate(load.rate)
        await asyncio.sleep(max(0.0, due - loop.time()))
        result = CALL_ID if len(calls) >= SESSIONS else "earlier"
        request = request_of(caller.port, len(calls) % SESSIONS, result)
        calls.add(asyncio.ensure_future(caller.call(request)))
    await asyncio.gather(*calls)


async def measure(ports: Sequence[int], load: Load, on_round: Callable[[], None]) -> Compared:
    """All paths in turn, round by round; `ports` are those of PATHS, `on_round` hears of every round of one."""
    chance = random.Random(load.seed)
    paths = {port: Rounds() for port in ports}
    for number in range(load.rounds):
        for port in (*ports[number % len(ports) :], *ports[: number % len(ports)]):
            await _round(port, paths[port], load, chance)
            on_round()
    direct, routed, quiet = (paths[port].summary() for port in ports)
    return Compared(
        direct,
        routed,
        quiet,
        round(routed.p50_ms - direct.p50_ms, 3),
        round(routed.at_once_p50_ms - direct.at_once_p50_ms, 3),
        round(quiet.p50_ms - direct.p50_ms, 3),
        round(quiet.at_once_p50_ms - direct.at_once_p50_ms, 3),
        await hints_of(ports[PATHS.index(LEARNING)]),
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


async def hints_of(port: int) -> int:
    """How many hints a router's metrics say that workers have heard."""
    status, text = await _got(port, "/metrics")
    lines = text.splitlines() if status == 200 else []
    return sum(int(float(line.split()[-1])) for line in lines if line.startswith(HINTS))


async def _got(port: int, path: str) -> tuple[int, str]:
    """Status and text of a GET. Errors: OSError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode("utf-8", "replace")
    writer.close()
    status = answer.split(" ", 2)[1:2]
    return int(status[0]) if status and status[0].isdigit() else 0, answer


@asynccontextmanager
async def processes(folder: Path) -> AsyncIterator[list[int]]:
    """An upstream and two routers over an embedded Valkey: the ports of PATHS."""
    home = open_home(folder, SystemClock())
    ports = [_free_port() for _ in (LEARNING, QUIET)]
    upstream = subprocess.Popen(
        [sys.executable, "-m", "agentcache.bench.routed_upstream", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    learns = ("--learn-waits", "--no-learn-waits")
    routers = [_router(folder, port, flag) for port, flag in zip(ports, learns, strict=True)]
    try:
        assert upstream.stdout, "it was asked for"
        direct = int(await asyncio.to_thread(upstream.stdout.readline))
        for port in ports:
            await _ready(port)
        yield [direct, *ports]
    finally:
        for router in routers:
            router.terminate()
        for router in routers:
            router.wait(START_S)
        upstream.communicate(timeout=START_S)
        home.close()


def _router(folder: Path, port: int, flag: str) -> subprocess.Popen[bytes]:
    told = ["--router-dir", str(folder), "--port", str(port), "--log-level", "warning", flag]
    return subprocess.Popen([sys.executable, "-m", "agentcache", "router", *told], stdout=subprocess.DEVNULL)


async def _ready(port: int) -> None:
    """Return once the router has a worker. Errors: CacheError(UNREACHABLE)."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            status, _ = await _got(port, "/ready")
        except OSError:
            status = 0
        if status == 200:
            return
        await asyncio.sleep(0.1)
    raise CacheError(Kind.UNREACHABLE, f"the router on port {port} is not ready after {START_S:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _run(load: Load) -> Compared:
    rounds = len(PATHS) * load.rounds
    with (
        tempfile.TemporaryDirectory(prefix="agentcache-bench-") as folder,
        steps("router", rounds, Console(stderr=True), SystemClock(), "rounds") as shown,
    ):
        async with processes(Path(folder)) as ports:
            return await measure(ports, load, shown.advance)


def main(arguments: Sequence[str]) -> int:
    """Measure, print a line a path (or one JSON object); exit 1 if a request failed."""
    parser = parser_of("routed", __doc__)
    usual = Load()
    parser.add_argument("--rate", type=float, default=usual.rate, help="arrivals a second")
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="seconds of each round")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="rounds of each path")
    add_answers(parser, plots=False)
    options = parser.parse_args(arguments)
    found = asyncio.run(_run(Load(options.rate, options.seconds, options.rounds)))
    answer({**asdict(found), "complete": found.complete}, options.json, partial(show, found))
    return 0 if found.complete else 1


def show(found: Compared, console: Console) -> None:
    """A line for each path, and what the routers add."""
    for name in PATHS:
        path: Path50 = getattr(found, name)
        console.print(
            f"{name}: first byte after {path.p50_ms} ms (p99 {path.p99_ms}), 64 at once {path.at_once_p50_ms}; "
            f"{path.requests} requests, {path.failed} failed",
            highlight=False,
        )
    for said, p50, burst in (
        (f"learning ({found.hints:,} hints)", found.added_p50_ms, found.added_at_once_p50_ms),
        (
            "without learning",
            found.added_without_learning_p50_ms,
            found.added_without_learning_at_once_p50_ms,
        ),
    ):
        met = "met" if p50 <= found.bar_ms else "not met"
        console.print(
            f"added, {said}: {p50} ms p50 (at most {BAR_MS} is allowed: {met}), 64 at once {burst}",
            highlight=False,
        )


if __name__ == "__main__":
    start(main)
