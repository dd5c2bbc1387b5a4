"""The fault machine: draws faults from a seed, lets them overlap, now and then lets all come to rest, and looks."""

import asyncio
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from agentcache.errors import CacheError
from agentcache.store.api import StoreRules
from agentcache.store.connect import connect
from tests.storm.agents import Agents
from tests.storm.gate import spawn
from tests.storm.plant import TTL_S, Plant, build, listening, moment
from tests.storm.truth import Truth
from tests.storm.verdict import Verdict

SESSIONS = 24
BETWEEN_CHECKS = 50
QUIET_S = 60.0
LOOK_S = 0.1
BUSY = 12
"""So many calls of agents run at most at a time."""


@dataclass(slots=True)
class Storm:
    """One run. The same seed draws the same faults."""

    plant: Plant
    agents: Agents
    truth: Truth
    random: random.Random
    tell: Callable[[str], None]
    calls: set[asyncio.Task[None]] = field(default_factory=set)

    def session(self) -> str:
        return f"s{self.random.randrange(SESSIONS)}"

    async def call(self, work: Awaitable[None]) -> None:
        """Start an agent's call and go on; wait only while too many run."""

        async def run() -> None:
            await work

        spawn(self.calls, run())
        if len(self.calls) > BUSY:
            await asyncio.wait(self.calls, timeout=2.0, return_when=asyncio.FIRST_COMPLETED)

    # what can happen

    async def turn(self) -> None:
        await self.call(self.agents.turn(self.session()))

    async def fenced_turn(self) -> None:
        session = self.session()
        await self.call(self.agents.turn(session, fence=self.truth.of(session).last_generation))

    async def burst(self) -> None:
        """Several turns of one session at once."""
        session = self.session()
        for _ in range(3):
            await self.call(self.agents.turn(session))

    async def late_finish(self) -> None:
        """A turn that reaches its worker after its session was closed."""
        session = self.session()
        gate = self.random.choice(self.plant.gates)
        gate.shut()
        await self.call(self.agents.turn(session))
        await moment(0.02)
        await self.call(self.agents.close(session))

    async def reorder(self) -> None:
        self.random.choice(self.plant.gates).shut()

    async def release(self) -> None:
        for gate in self.plant.gates:
            gate.release()

    async def close(self) -> None:
        await self.call(self.agents.close(self.session()))

    async def fenced_close(self) -> None:
        session = self.session()
        await self.call(self.agents.close(session, fence=self.truth.of(session).last_generation))

    async def open(self) -> None:
        await self.call(self.agents.open(self.session(), parent=self.random.choice(("", self.session()))))

    async def reopen(self) -> None:
        session = self.session()
        await self.call(self.agents.close(session))
        await self.call(self.agents.open(session, fence=self.random.random() < 0.3))

    async def look(self) -> None:
        await self.call(self.agents.look(self.session()))

    async def idle(self) -> None:
        """All sessions idle out: time passes. From now on holders may let go of them, until their next turns."""
        for known in self.truth.sessions.values():
            known.registered = None
        self.plant.skew.value += int(TTL_S * 1000) + 1000

    async def clock_back(self) -> None:
        self.truth.backs += 1
        self.plant.skew.value -= self.random.randrange(1000, 300_000)

    async def kill_router(self) -> None:
        self.random.choice(self.plant.routers).kill()

    async def kill_worker(self) -> None:
        self.random.choice(self.plant.workers).kill()

    async def restart(self) -> None:
        for unit in (*self.plant.routers, *self.plant.workers):
            unit.restart()
        self.plant.start_redis()

    async def pause_redis(self) -> None:
        self.plant.pause()
        spawn(self.calls, self._go_on(self.random.uniform(0.05, 1.2)))

    async def _go_on(self, after_s: float) -> None:
        await moment(after_s)
        self.plant.go_on()

    async def kill_redis(self) -> None:
        await self._go_on(0.0)
        self.plant.kill_redis()

    async def flush_redis(self) -> None:
        if self.plant.server and self.plant.server.alive and not self.plant.paused:
            self.truth.losses += 1
            self.plant.redis_call("FLUSHALL", "SYNC")

    async def cancel(self) -> None:
        await self.call(self.agents.turn(self.session(), cut_after=self.random.randrange(1, 2000)))

    async def duplicate(self) -> None:
        await self.call(self._again(self.random.choice(self.plant.gates)))

    async def _again(self, gate: "object") -> None:
        status = await gate.deliver_again()  # type: ignore[attr-defined]
        self.truth.count(f"delivered again {status}")
        if status == 200:
            self.truth.count("delivered again first")

    async def cut(self) -> None:
        self.random.choice(self.plant.gates).cut()


WEIGHTS: dict[str, int] = {
    "turn": 30,
    "fenced_turn": 4,
    "burst": 4,
    "late_finish": 4,
    "reorder": 2,
    "release": 8,
    "close": 8,
    "fenced_close": 3,
    "open": 4,
    "reopen": 4,
    "look": 3,
    "idle": 1,
    "clock_back": 1,
    "kill_router": 2,
    "kill_worker": 2,
    "restart": 6,
    "pause_redis": 2,
    "kill_redis": 1,
    "flush_redis": 1,
    "cancel": 5,
    "duplicate": 4,
    "cut": 1,
}


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended; `wrongs` is empty when every promise held."""

    faults: int
    checks: int
    seconds: float
    wrongs: tuple[str, ...]
    counts: dict[str, int]
    drawn: dict[str, int]


async def run(seed: int, faults: int, tell: Callable[[str], None]) -> Ran:
    """Draw so many faults; stop at the first check that finds something wrong."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="storm-") as folder:
        plant = await build(Path(folder))
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
                chance = random.Random(seed)
                truth = Truth()
                storm = Storm(plant, Agents(plant, truth, http, chance), truth, chance, tell)
                return await _run(storm, faults, began)
        finally:
            await plant.stop()


async def _run(storm: Storm, faults: int, began: float) -> Ran:
    drawn: dict[str, int] = {}
    await _all_listen(storm.plant)
    wrongs = await _quiet(storm)
    checks = 1
    for number in range(1, faults + 1):
        name = storm.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        drawn[name] = drawn.get(name, 0) + 1
        await getattr(storm, name)()
        await moment(storm.random.uniform(0, 0.03))
        if number % BETWEEN_CHECKS == 0 or number == faults:
            wrongs = await _quiet(storm)
            checks += 1
            storm.tell(f"{number} faults, {time.monotonic() - began:.0f} s, {storm.truth.counts}")
            if wrongs:
                break
    return Ran(number, checks, time.monotonic() - began, tuple(wrongs), storm.truth.counts, drawn)


async def _all_listen(plant: Plant) -> None:
    for unit in (*plant.workers, *plant.routers):
        if not await listening(unit.port, QUIET_S):
            raise RuntimeError(f"{unit.name} does not listen; see {plant.folder / unit.name}.log")


async def _quiet(storm: Storm) -> list[str]:
    """End every fault, let all calls end, and look until nothing is wrong or it has been too long."""
    plant = storm.plant
    plant.go_on()
    await storm.restart()
    await storm.release()
    await _all_listen(plant)
    if storm.calls:
        _, left = await asyncio.wait(tuple(storm.calls), timeout=QUIET_S)
        if left:
            return [f"{len(left)} calls have not ended {QUIET_S:.0f} s after the last fault"]
    store = await connect(f"unix://{plant.socket}", StoreRules(ttl_s=TTL_S), now_ms=_now(plant))
    try:
        async with aiohttp.ClientSession() as http:
            return await _settled(Verdict(plant, storm.truth, store, http))
    finally:
        await store.aclose()


async def _settled(verdict: Verdict) -> list[str]:
    end = time.monotonic() + QUIET_S
    wrongs = ["nothing was looked at"]
    while wrongs and time.monotonic() < end and not verdict.truth.wrong:
        try:
            wrongs = await verdict.wrongs()
        except CacheError as error:
            wrongs = [f"the store does not answer: {error}"]
        if wrongs:
            await moment(LOOK_S)
    return [*wrongs, *verdict.truth.wrong]


def _now(plant: Plant) -> Callable[[], int]:
    return lambda: time.time_ns() // 1_000_000 + int(plant.skew.value)
