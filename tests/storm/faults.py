"""What can happen in the fault machine, and how often. Each fault begins something and goes on at once."""

import asyncio
import random
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from agentcache.errors import CacheError
from agentcache.wire import TagSigner
from tests.storm.agents import Agents, Turn
from tests.storm.gate import Gate, spawn
from tests.storm.plant import ALONE, LONG_S, TENANTS, TTL_S, Plant, moment
from tests.storm.truth import Truth
from tests.storm.verdict import Flights

SESSIONS = 16
PRIVATE = 4
"""Sessions with ids that only the first tenant uses."""
BUSY = 12
"""So many calls of agents run at most at a time."""
DRAINED_S = 0.6
"""Until routers know that a worker takes nothing new."""
ASKED_S = 1.6
"""Until workers have offered what they have to a store that lost it."""
OWNER, STRANGER = TENANTS


@dataclass(slots=True)
class Faults:
    """All that can happen, by the names in `WEIGHTS`. What is drawn depends on the seed alone."""

    plant: Plant
    agents: Agents
    truth: Truth
    flights: Flights
    random: random.Random
    calls: set[asyncio.Task[object]] = field(default_factory=set)

    def session(self) -> str:
        number = self.random.randrange(2 * SESSIONS + PRIVATE)
        if number < PRIVATE:
            return f"{OWNER}/{ALONE}{number}"
        return f"{(OWNER, STRANGER)[number % 2]}/s{(number - PRIVATE) // 2}"

    def turn_of(self, session: str, tokens: int = 0) -> Coroutine[object, object, object]:
        """A turn; one in five takes long enough for something to happen to it."""
        drawn = self.random.randrange(4, 16) if self.random.random() < 0.8 else self.random.randrange(60, 200)
        return self.agents.turn(session, Turn(tokens=tokens or drawn))

    async def call(self, work: Coroutine[object, object, object]) -> None:
        """Start an agent's call and go on; wait only while too many run."""
        spawn(self.calls, work)
        if len(self.calls) > BUSY:
            await asyncio.wait(self.calls, timeout=2.0, return_when=asyncio.FIRST_COMPLETED)

    # what agents do

    async def turn(self) -> None:
        await self.call(self.turn_of(self.session()))

    async def child_turn(self) -> None:
        """A turn of a sub-agent, which names its parent."""
        child, parent = self.session(), self.session().split("/")[1]
        await self.call(self.agents.turn(child, Turn(parent=parent)))

    async def fenced_turn(self) -> None:
        session = self.session()
        await self.call(self.agents.turn(session, Turn(fence=self.truth.of(session).last_generation)))

    async def burst(self) -> None:
        """Several turns of one session at once."""
        session = self.session()
        for _ in range(3):
            await self.call(self.turn_of(session))

    async def cancel(self) -> None:
        turn = Turn(tokens=40, cut_after=self.random.randrange(1, 2000))
        await self.call(self.agents.turn(self.session(), turn))

    async def leave(self) -> None:
        """A client that leaves before it hears anything, while its request is taken in, placed or sent."""
        turn = Turn(tokens=40, leave_s=self.random.uniform(0.0005, 0.01))
        await self.call(self.agents.turn(self.session(), turn))

    async def close(self) -> None:
        await self.call(self.agents.close(self.session()))

    async def fenced_close(self) -> None:
        session = self.session()
        await self.call(self.agents.close(session, fence=self.truth.of(session).last_generation))

    async def open(self) -> None:
        session, parent = self.session(), self.session().split("/")[1]
        await self.call(self.agents.open(session, parent if self.random.random() < 0.6 else ""))

    async def family(self) -> None:
        """A parent and two children, each with a turn; and the parent closes."""
        tenant, parent = self.session().split("/")
        children = [f"s{self.random.randrange(SESSIONS)}" for _ in range(2)]
        await self.call(self._family(tenant, parent, children))

    async def _family(self, tenant: str, parent: str, children: list[str]) -> None:
        await self.agents.open(f"{tenant}/{parent}")
        for child in children:
            await self.agents.open(f"{tenant}/{child}", parent)
            await self.agents.turn(f"{tenant}/{child}", Turn(tokens=30, parent=parent))
        await self.agents.close(f"{tenant}/{parent}")

    async def reopen(self) -> None:
        session = self.session()
        await self.call(self.agents.close(session))
        await self.call(self.agents.open(session, fence=self.random.random() < 0.3))

    async def look(self) -> None:
        await self.call(self.agents.look(self.session()))

    async def trespass(self) -> None:
        own = f"{ALONE}{self.random.randrange(PRIVATE)}"
        fence = self.truth.of(f"{OWNER}/{own}").last_generation
        await self.call(self.agents.trespass(STRANGER, own, fence))

    # what comes late, twice, or to the wrong address

    async def late_finish(self) -> None:
        """A turn that ends after its session was closed."""
        session, began = self.session(), asyncio.Event()
        tokens = self.random.randrange(60, 160)
        await self.call(self.agents.turn(session, Turn(tokens=tokens, began=began)))
        await _begun(began)
        await self.call(self.agents.close(session))

    async def late_arrival(self) -> None:
        """A turn that reaches its worker after its session was closed."""
        session = self.session()
        self._gate_of(session, self.random.randrange(len(self.plant.gates))).shut()
        await self.call(self.turn_of(session))
        await moment(0.02)
        await self.call(self.agents.close(session))

    async def late_move(self) -> None:
        """A turn that reaches its worker after its session went to another one."""
        session, drawn = self.session(), self.random.randrange(len(self.plant.gates))
        gate = self._gate_of(session, drawn)
        gate.shut()
        await self.call(self.turn_of(session))
        await moment(0.02)
        await self.call(self.agents.drain(self.plant.workers[self.plant.gates.index(gate)].name, True))
        await self.call(self.turn_of(session))

    async def move_under_turn(self) -> None:
        """A turn that ends where its session was, after the session went to another worker."""
        session, began = self.session(), asyncio.Event()
        await self.call(self.agents.turn(session, Turn(tokens=400, began=began)))
        await _begun(began)
        await self.call(self._moved(session, self.random.randrange(len(self.plant.workers))))

    async def _moved(self, session: str, otherwise: int) -> None:
        life = self.truth.of(session).registered
        await self.agents.drain(life.worker if life else self.plant.workers[otherwise].name, True)
        await moment(DRAINED_S)
        await self.agents.turn(session)

    async def drain(self) -> None:
        await self.call(self.agents.drain(self.random.choice(self.plant.workers).name, True))

    async def undrain(self) -> None:
        """All workers are in again."""
        for unit in self.plant.workers:
            await self.call(self.agents.drain(unit.name, False))

    async def hold(self) -> None:
        self.random.choice(self.plant.gates).shut()

    async def release(self) -> None:
        for gate in self.plant.gates:
            gate.release()

    async def cut(self) -> None:
        self.random.choice(self.plant.gates).cut()

    async def duplicate(self) -> None:
        await self.call(self._deliver("again", self.random.randrange(len(self.plant.gates))))

    async def readdress(self) -> None:
        await self.call(self._deliver("to another", self.random.randrange(len(self.plant.gates))))

    async def forge(self) -> None:
        await self.call(self._deliver("forged", self.random.randrange(len(self.plant.gates))))

    async def _deliver(self, how: str, number: int) -> None:
        """A request that was served once reaches a worker in another way: it is not served."""
        gate = self.plant.gates[number]
        refusals = [401, 0]
        match how:
            case "again":
                status = await gate.deliver_again()
                refusals.append(503)  # it has started anew since
            case "forged":
                status = await gate.deliver_with(self._forged(gate))
            case _:
                status = await gate.deliver_to(self.plant.gates[number - 1])
        self.truth.count(f"delivered {how} {status}")
        if status not in refusals:
            self.truth.fault(f"a request of w{number} was delivered {how}, and answered {status}")

    def _forged(self, gate: Gate) -> str:
        """A tag like the last one, for a request that never was, by somebody who has another secret."""
        name, now_ms = self.plant.workers[self.plant.gates.index(gate)].name, self.agents.now_ms()
        try:
            tag = self.plant.signer.read(gate.tag(), name, now_ms)
        except CacheError:  # it is too old
            return "forged"
        forged = msgspec.structs.replace(tag, request_id=f"forged-{now_ms}", issued_ms=now_ms)
        return TagSigner(b"another secret than the one of the workers").sign(forged)

    def _gate_of(self, session: str, otherwise: int) -> Gate:
        """Where the session was last served."""
        life = self.truth.of(session).registered
        names = [unit.name for unit in self.plant.workers]
        return self.plant.gates[names.index(life.worker) if life else otherwise]

    # what happens to the machines

    async def idle(self) -> None:
        """All sessions idle out: time passes. From now on holders may let go of them, until their next turns."""
        self.truth.idle()
        self.plant.skew.value += int(TTL_S * 1000) + 1000

    async def sleep(self) -> None:
        """All machines were asleep: every worker seems gone, and no request in flight counts any more."""
        self.truth.idle()
        self.truth.all_in_doubt()
        self.plant.skew.value += int(LONG_S * 1000) + 1000

    async def idle_race(self) -> None:
        """Time passes while a turn runs, and another one comes."""
        session, began = self.session(), asyncio.Event()
        await self.call(self.agents.turn(session, Turn(tokens=400, began=began, outlasts=True)))
        await _begun(began)
        await self.idle()
        await self.call(self.turn_of(session))

    async def clock_back(self) -> None:
        self.truth.backs += 1
        self.flights.disturbed = True
        self.plant.skew.value -= self.random.randrange(1000, 300_000)

    async def kill_router(self) -> None:
        self.flights.disturbed = True
        self.random.choice(self.plant.routers).kill()

    async def kill_worker(self) -> None:
        self.random.choice(self.plant.workers).kill()

    async def restart(self) -> None:
        for unit in (*self.plant.routers, *self.plant.workers):
            unit.restart()
        self.plant.start_redis()

    async def pause_redis(self) -> None:
        self.flights.disturbed = True
        self.plant.pause()
        long = self.random.random() < 0.2
        spawn(
            self.calls, self.go_on(self.random.uniform(0.4, 1.2) if long else self.random.uniform(0.02, 0.3))
        )

    async def go_on(self, after_s: float) -> None:
        await moment(after_s)
        self.plant.go_on()

    async def kill_redis(self) -> None:
        self.flights.disturbed = True
        await self.go_on(0.0)
        self.plant.kill_redis()

    async def flush_redis(self) -> None:
        self.flights.disturbed = True
        if self.plant.server and self.plant.server.alive and not self.plant.paused:
            self.truth.losses += 1
            self.plant.redis_call("FLUSHALL", "SYNC")

    async def late_loss(self) -> None:
        """A turn that reaches its worker after the store lost its data, and after the worker was asked about it."""
        session, drawn = self.session(), self.random.randrange(len(self.plant.gates))
        spawn(self.calls, self._gate_of(session, drawn).hold(ASKED_S))
        await moment(0)
        await self.call(self.agents.turn(session))
        await moment(0.02)
        await self.flush_redis()


WEIGHTS: dict[str, int] = {
    "turn": 60,
    "child_turn": 8,
    "fenced_turn": 8,
    "burst": 8,
    "cancel": 8,
    "leave": 8,
    "close": 10,
    "fenced_close": 5,
    "open": 8,
    "family": 4,
    "reopen": 8,
    "look": 4,
    "trespass": 2,
    "late_finish": 8,
    "late_arrival": 6,
    "late_move": 4,
    "move_under_turn": 4,
    "drain": 2,
    "undrain": 8,
    "hold": 3,
    "release": 24,
    "cut": 2,
    "duplicate": 5,
    "readdress": 3,
    "forge": 2,
    "idle": 3,
    "sleep": 1,
    "idle_race": 3,
    "kill_router": 4,
    "kill_worker": 3,
    "restart": 20,
}
OF_THE_STORE: dict[str, int] = {
    "clock_back": 2,
    "pause_redis": 4,
    "kill_redis": 2,
    "flush_redis": 2,
    "late_loss": 2,
}
"""What happens to the store, in stormy stretches only: else few turns would be served for their sessions."""


async def _begun(event: asyncio.Event) -> None:
    """Wait for the answer's beginning, but not for long: it may never come."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), 0.3)
