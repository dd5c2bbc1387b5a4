"""An external tier under seeded faults, all at once: every job reported once, no slot touched after, no wrong byte.

The seed gives the engine's side and the faults; which call meets which fault is up to the threads.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from agentcache.keys import object_name
from agentcache.tiers.api import JobResult, Keep
from agentcache.tiers.external import ExternalRules
from agentcache.tiers.stores.faulty import Call, Fault, Moment
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.tiers.stores.objects import unpack
from agentcache.types import FULL, MAMBA, SWA, Piece
from tests.unit.tiers.conftest import NewWorld
from tests.unit.tiers.external_world import PAGE, PATIENT, SLOT_BYTES, World, ends, path, payload, piece

PATHS = [path(12, seed) for seed in range(6)]
SLOTS = 48
NOISE = b"\x07"


class Engine:
    """The one thread that a tier knows: takes slots, submits, cancels, polls, and gives slots to others at once."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.out: dict[int, tuple[bool, list[Piece], Sequence[bytes]]] = {}
        self.free = {name: set(range(SLOTS)) for name in SLOT_BYTES}
        self.reported = 0
        self.landed = {True: 0, False: 0}

    def submit(self) -> None:
        hashes = self.chance.choice(PATHS)
        parts = list(self._parts())
        stores = self.chance.random() < 0.5
        if stores:
            keep = self.chance.choice(list(Keep))
            number = self.world.submit_store(parts, hashes, keep)
        else:
            number = self.world.submit_load(parts, hashes)
        self.out[number] = (stores, parts, hashes)

    def cancel(self) -> None:
        if self.out:
            self.world.tier.cancel(self.chance.choice(list(self.out)))

    def ask(self) -> None:
        hashes = self.chance.choice(PATHS)
        answers = self.world.tier.lookup([(FULL, one) for one in hashes])
        assert len(answers) == len(hashes)
        names = [object_name(one, FULL) for one in self.chance.sample(hashes, 3)]
        self.world.tier.retain(names, self.chance.choice(list(Keep)))

    def poll(self) -> None:
        for result in self.world.tier.poll():
            self._take(result)

    def drain(self) -> None:
        self.world.tier.drain()
        self.poll()
        assert self.out == {}

    def _take(self, result: JobResult) -> None:
        stores, parts, hashes = self.out.pop(result.job.number)  # a second report would not be there
        self.world.forbid(parts)
        self.reported += 1
        self.landed[stores] += len(result.landed)
        sent = {(part.component, slot, end) for part in parts for slot, end in ends(part)}
        landed = [(part.component, slot, end) for part in result.landed for slot, end in ends(part)]
        assert len(set(landed)) == len(landed)
        assert set(landed) <= sent
        assert self.world.holds(result.landed, hashes)
        for part in parts:
            pool = self.world.pools[part.component]
            for slot in part.slots.tolist():
                pool.data[slot] = NOISE * pool.slot_bytes
            self.free[part.component].update(part.slots.tolist())

    def _parts(self) -> list[Piece]:
        """Some pieces of a path, of each component or not, as far as there are slots."""
        parts = []
        for component in (FULL, SWA):
            first, last = sorted(self.chance.sample(range(13), 2))
            free = self.free[component]
            if len(free) >= last - first and self.chance.random() < 0.8:
                slots = [free.pop() for _ in range(last - first)]
                parts.append(piece(component, first * PAGE, last * PAGE, slots))
        if self.free[MAMBA]:
            end = PAGE * self.chance.randint(1, 12)
            parts.append(piece(MAMBA, end, end, [self.free[MAMBA].pop()]))
        return parts


class Weather:
    """What happens to the store and to time. Gates close behind the last one: no test ends with a thread in one."""

    def __init__(self, world: World, chance: random.Random, gates: ExitStack) -> None:
        self.world = world
        self.chance = chance
        self.gates = gates

    def change(self) -> None:
        """None, some, or only failures, for a while."""
        kind = self.chance.random()
        rates = {fault: self.chance.choice([0, 0.02, 0.2]) for fault in Fault}
        some = {**rates, Fault.FAIL: 0.02, Fault.FAIL_AFTER: 0.02}
        self.world.store.faults = {} if kind < 0.5 else {Fault.FAIL: 1} if kind < 0.6 else some

    def hang(self) -> None:
        moment = self.chance.choice(list(Moment))
        self.gates.enter_context(self.world.store.hold(self.chance.choice(list(Call)), moment=moment))

    def heal(self) -> None:
        self.gates.close()

    def restart(self) -> None:
        """The store comes back empty, and perhaps small."""
        self.world.store.store = self.world.memory = MemoryStore(self.chance.choice([3_000, 1 << 20]))

    def time(self) -> None:
        self.world.advance_s(self.chance.choice([0.01, 0.3, 3]))

    def rest(self) -> None:
        """Let the threads get somewhere."""
        self.world.ended.clear()
        self.world.ended.wait(0.003)


def run(engine: Engine, steps: int) -> None:
    with ExitStack() as gates:
        sky = Weather(engine.world, engine.chance, gates)
        acts = {
            engine.submit: 40,
            sky.rest: 30,
            engine.cancel: 8,
            engine.ask: 8,
            sky.time: 6,
            sky.change: 3,
            sky.heal: 3,
            sky.hang: 2,
            sky.restart: 1,
            engine.drain: 1,
        }
        for act in engine.chance.choices(list(acts), list(acts.values()), k=steps):
            act()
            engine.poll()


@pytest.fixture
def busy_switching() -> Iterator[None]:
    """Threads take turns a hundred times as often as usual."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(usual_s / 100)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.usefixtures("busy_switching")
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_jobs_end_once_and_bytes_are_right(new_world: NewWorld, seed: int) -> None:
    chance = random.Random(seed)
    rules = ExternalRules(
        threads=chance.choice([1, 2, 4]),
        deadline_s=0.2,
        cool_down_s=1,
        belief_s=chance.choice([0.1, 5]),
        max_known=chance.choice([10, 1000]),
        max_queued_bytes=chance.choice([500, 1 << 20]),
        batch_objects=chance.choice([1, 3, 32]),
        failures_to_open=chance.choice([1, 3, 100]),
    )
    world = new_world(rules=rules, slots=SLOTS)
    engine = Engine(world, chance)
    run(engine, steps=300)
    engine.drain()
    assert all(len(free) == SLOTS for free in engine.free.values())
    world.tier.close()
    verify(world)


def verify(world: World) -> None:
    """Every object that is in the store is what its name says."""
    names = [(one, c, object_name(one, c)) for hashes in PATHS for one in hashes for c in SLOT_BYTES]
    for (one, component, name), raw in zip(names, world.memory.get([n for _, _, n in names]), strict=True):
        if raw:
            held = unpack(name, component, f"{component}-v1", SLOT_BYTES[component], raw)
            assert held
            assert bytes(held) == payload(component, one)


def test_a_calm_store_lets_much_land(new_world: NewWorld) -> None:
    """The stress above is not harmless because nothing ever arrives."""
    world = new_world(rules=PATIENT, slots=SLOTS)
    engine = Engine(world, random.Random(5))
    for _ in range(100):
        engine.submit()
        world.tier.drain()
        engine.poll()
    assert engine.reported == 100
    assert engine.landed[True] > 50
    assert engine.landed[False] > 50
    verify(world)
