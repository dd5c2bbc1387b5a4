"""What the router's dashboard costs it: `agentcache bench dashboard [--json]`.

Agents in many sessions take turns at workers that compute nothing, in an open loop of Poisson arrivals. Meanwhile the
page is closed, open, open, closed: looked at as a browser does, its fragment fetched again two seconds after each
answer. What counts is the CPU time of the router's process. Router, workers, store, agents and the one who looks share
this machine. At the end the same without turns, where little else moves the figure.
"""

import asyncio
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import aiohttp
from rich.console import Console

from agentcache.bench.options import add_answers, answer, chosen_by, parser_of, positive
from agentcache.bench.starting import start
from agentcache.clock import SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.replay.progress import steps
from agentcache.store.connect import open_home

BAR = 0.02
"""Of a core, at most, that an open page adds."""
START_S = 60.0
LOOK_EVERY_S = 2.0
FIRST_TOKENS, TURN_TOKENS, TURNS = 256, 32, 20
WORKERS = 2
FAMILY = 4
"""Sessions below one parent."""


@dataclass(frozen=True, slots=True)
class Load:
    """Turns a second of so many sessions; `rounds` times `seconds` with the page closed and as many with it open."""

    rate: int = 50
    sessions: int = 500
    seconds: int = 30
    rounds: int = 2
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """Shares of a core that the router's process took. `quiet`: what an open page adds while nobody takes a turn.

    `look_ms` is the median time to a fragment.
    """

    closed: float
    open: float
    added: float
    quiet: float
    turns: int
    failed: int
    looks: int
    look_ms: float
    fragment_bytes: int
    bar: float = BAR

    @property
    def complete(self) -> bool:
        return not self.failed and self.looks > 0


@dataclass(slots=True)
class House:
    """A router with its workers, and what was seen of them."""

    url: str
    router: int
    http: aiohttp.ClientSession
    turns: int = 0
    failed: int = 0
    look_s: list[float] = field(default_factory=list)
    fragment_bytes: int = 0

    async def turn(self, session: int, number: int) -> None:
        """One turn of a session: what it said before, and a little more."""
        tokens = FIRST_TOKENS + TURN_TOKENS * (number % TURNS)
        words = random.Random(session)
        body = {
            "model": "tiny-all",
            "prompt": [words.randrange(5, 200) for _ in range(tokens)],
            "max_tokens": 4,
        }
        told = {"x-agentcache-session": f"agent-{session}"}
        self.turns += 1
        try:
            async with self.http.post(f"{self.url}/v1/completions", json=body, headers=told) as reply:
                self.failed += reply.status != 200
                await reply.read()
        except (aiohttp.ClientError, TimeoutError):
            self.failed += 1

    async def open(self, session: int) -> None:
        parent = session - session % FAMILY
        below = {} if session == parent else {"parent": f"agent-{parent}"}
        body = {"session_id": f"agent-{session}", **below}
        async with self.http.post(f"{self.url}/v1/sessions", json=body) as reply:
            self.failed += reply.status not in (200, 201)

    async def look(self) -> None:
        """As a browser with the page open, until cancelled."""
        while True:
            began = time.perf_counter()
            async with self.http.get(f"{self.url}/dashboard/fragment") as reply:
                self.fragment_bytes = len(await reply.read())
                self.failed += reply.status != 200
            self.look_s.append(time.perf_counter() - began)
            await asyncio.sleep(LOOK_EVERY_S)

    def used_s(self) -> float:
        """CPU seconds of the router's process until now."""
        fields = Path(f"/proc/{self.router}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(house: House, load: Load, on_stretch: Callable[[], None]) -> Found:
    """Closed and open in turn, the order turned round each time. `on_stretch` hears of every stretch of time."""
    chance = random.Random(load.seed)
    for at in range(0, load.sessions, FAMILY):
        for session in range(at, min(load.sessions, at + FAMILY)):
            await house.open(session)
    await _agents(house, load, chance, 5)
    shares: dict[bool, list[float]] = {False: [], True: []}
    for number in range(load.rounds):
        for looking in (False, True) if number % 2 == 0 else (True, False):
            shares[looking].append(await _share(house, load, chance, looking))
            on_stretch()
    quiet = replace(load, rate=0, seconds=max(1, load.seconds // 2))
    still, looked = [await _share(house, quiet, chance, looking) for looking in (False, True)]
    closed, opened = (statistics.fmean(shares[looking]) for looking in (False, True))
    look_ms = statistics.median(house.look_s) * 1e3
    return Found(
        round(closed, 4),
        round(opened, 4),
        round(opened - closed, 4),
        round(looked - still, 4),
        house.turns,
        house.failed,
        len(house.look_s),
        round(look_ms, 1),
        house.fragment_bytes,
    )


async def _share(house: House, load: Load, chance: random.Random, looking: bool) -> float:
    looks = [asyncio.ensure_future(house.look())] if looking else []
    used_s, began = house.used_s(), time.perf_counter()
    await _agents(house, load, chance, load.seconds)
    share = (house.used_s() - used_s) / (time.perf_counter() - began)
    for look in looks:
        look.cancel()
    await asyncio.wait(looks) if looks else None
    return share


async def _agents(house: House, load: Load, chance: random.Random, seconds: int) -> None:
    """An open loop: turns begin whether others have ended or not. A rate of 0: nobody takes one."""
    if not load.rate:
        await asyncio.sleep(seconds)
        return
    loop = asyncio.get_running_loop()
    turns: set[asyncio.Task[None]] = set()
    due = loop.time()
    end = due + seconds
    while due < end:
        due += chance.expovariate(load.rate)
        await asyncio.sleep(max(0.0, due - loop.time()))
        session = chance.randrange(load.sessions)
        turns.add(asyncio.ensure_future(house.turn(session, house.turns // load.sessions)))
    await asyncio.gather(*turns)


@asynccontextmanager
async def housed(folder: Path) -> AsyncIterator[House]:
    """A router over an embedded Valkey, and workers that keep account."""
    home, port = open_home(folder, SystemClock()), _free_port()
    told = ["--router-dir", str(folder), "--log-level", "warning"]
    router = _started("router", *told, "--port", str(port))
    running = [router] + [
        _started("serve", *told, "--engine", "accounting", "--port", "0") for _ in range(WORKERS)
    ]
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
            house = House(f"http://127.0.0.1:{port}", router.pid, http)
            await _ready(house)
            yield house
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(START_S)
        home.close()


def _started(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "agentcache", *words], stdout=subprocess.DEVNULL)


async def _ready(house: House) -> None:
    """Return once the router has all its workers. Errors: CacheError(UNREACHABLE)."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            async with house.http.get(f"{house.url}/v1/workers") as reply:
                if len((await reply.json())["data"]) == WORKERS:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.2)
    raise CacheError(
        Kind.UNREACHABLE, f"the router at {house.url} has not all its workers after {START_S:.0f} s"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _run(load: Load) -> Found:
    with (
        tempfile.TemporaryDirectory(prefix="agentcache-bench-") as folder,
        steps("dashboard", 2 * load.rounds, Console(stderr=True), SystemClock(), "stretches") as shown,
    ):
        async with housed(Path(folder)) as house:
            return await measure(house, load, shown.advance)


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a line (or one JSON object); 0 if all turns and looks were answered."""
    parser = parser_of("dashboard", __doc__)
    usual = Load()
    parser.add_argument("--rate", type=positive, default=usual.rate, help="turns a second")
    parser.add_argument("--sessions", type=positive, default=usual.sessions, help="open sessions")
    parser.add_argument("--seconds", type=positive, default=usual.seconds, help="of each stretch of time")
    parser.add_argument(
        "--rounds", type=positive, default=usual.rounds, help="of one closed and one open stretch"
    )
    add_answers(parser, plots=False)
    options = parser.parse_args(arguments)
    found = asyncio.run(_run(chosen_by(options, usual)))
    answer({**asdict(found), "complete": found.complete}, options.json, partial(_show, found))
    return 0 if found.complete else 1


def _show(found: Found, console: Console) -> None:
    console.print(
        f"router: {found.closed:.2%} of a core with the page closed, {found.open:.2%} with it open: {found.added:+.2%} "
        f"(less than {BAR:.0%} is allowed), {found.quiet:+.2%} without turns"
    )
    console.print(
        f"a look takes {found.look_ms} ms and has {found.fragment_bytes:,} bytes; "
        f"{found.turns} turns, {found.looks} looks, {found.failed} failed"
    )


if __name__ == "__main__":
    start(main)
