"""The fault machine: draws faults from a seed, lets them overlap, now and then lets all come to rest, and looks."""

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from agentcache.errors import CacheError
from agentcache.store.api import StoreRules
from agentcache.store.connect import connect
from tests.sessionstores import PATIENT_S
from tests.storm.agents import Agents
from tests.storm.faults import OF_THE_STORE, WEIGHTS, Faults
from tests.storm.plant import TTL_S, Plant, build, listening, moment
from tests.storm.rest import Look, Rest, draw
from tests.storm.truth import Truth
from tests.storm.verdict import Flights, Verdict

BETWEEN_CHECKS = 50
STORMY = 0.4
"""How many of the stretches between two checks have faults of the store."""
QUIET_S = 60.0
SETTLED_S = 30.0
"""Well below what a worker waits before it offers all that it has: nothing that this finds counts as put right."""
LOOK_S = 0.1
LOOKED_AT = 3
"""So many sessions are looked at one by one in each rest."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended; `wrongs` is empty when every promise held. `logs` are the ends of all logs when not."""

    faults: int
    checks: int
    seconds: float
    wrongs: tuple[str, ...]
    counts: dict[str, int]
    drawn: dict[str, int]
    logs: tuple[str, ...] = ()


async def run(seed: int, faults: int, tell: Callable[[str], None]) -> Ran:
    """Draw so many faults; stop at the first check that finds something wrong."""
    with tempfile.TemporaryDirectory(prefix="storm-") as folder:
        plant = await build(Path(folder))
        try:
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
                truth = Truth()
                agents = Agents(plant, truth, http, random.Random(seed + 1))
                storm = Faults(plant, agents, truth, Flights(), random.Random(seed))
                return await _run(storm, faults, tell)
        finally:
            await plant.stop()


async def _run(storm: Faults, faults: int, tell: Callable[[str], None]) -> Ran:
    began, counts = time.monotonic(), storm.truth.counts
    drawn: dict[str, int] = {}
    await _all_listen(storm.plant)
    wrongs = await _quiet(storm, ())
    number = checks = 0
    while number < faults and not wrongs:
        weights = WEIGHTS | (OF_THE_STORE if storm.random.random() < STORMY else {})
        for _ in range(min(BETWEEN_CHECKS, faults - number)):
            name = storm.random.choices(list(weights), list(weights.values()))[0]
            drawn[name] = drawn.get(name, 0) + 1
            await getattr(storm, name)()
            await moment(storm.random.uniform(0, 0.03))
            number += 1
        wrongs = await _quiet(storm, [draw(storm.random, storm.session()) for _ in range(LOOKED_AT)])
        checks += 1
        tell(f"{number} faults, {time.monotonic() - began:.0f} s, {counts}")
    logs = storm.plant.logs() if wrongs else ()
    return Ran(number, checks, time.monotonic() - began, tuple(wrongs), counts, drawn, logs)


async def _all_listen(plant: Plant) -> None:
    for unit in (*plant.workers, *plant.routers):
        if not await listening(unit.port, QUIET_S):
            raise RuntimeError("\n".join([f"{unit.name} does not listen", *plant.logs()]))


async def _quiet(storm: Faults, looks: Sequence[Look]) -> list[str]:
    """End every fault, let all calls end, and look until nothing is wrong or it has been too long."""
    plant = storm.plant
    plant.go_on()
    await storm.restart()
    await storm.release()
    await _all_listen(plant)
    await storm.undrain()
    if storm.calls:
        _, left = await asyncio.wait(tuple(storm.calls), timeout=QUIET_S)
        if left:
            return [f"{len(left)} calls have not ended {QUIET_S:.0f} s after the last fault"]
    store = await connect(
        f"unix://{plant.socket}", StoreRules(ttl_s=TTL_S), now_ms=_now(plant), call_s=PATIENT_S
    )
    try:
        verdict = Verdict(plant, storm.truth, store, storm.agents, storm.flights)
        wrongs = await _settled(verdict)
        for look in looks:
            wrongs = wrongs or await Rest(plant, storm.truth, storm.agents, store).look(look)
        return wrongs or (await _settled(verdict) if looks else [])
    finally:
        await store.aclose()


async def _settled(verdict: Verdict) -> list[str]:
    end = time.monotonic() + SETTLED_S
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
