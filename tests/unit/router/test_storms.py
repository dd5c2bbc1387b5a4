"""Placement over time: queues, late reports and several routers, tick by tick, on the real view of the fleet.

A worker runs `SEATS` requests at once, each for `SERVICE` ticks, and reports every `BEAT` ticks; routers look every
`LOOK` ticks. A tick is a tenth of a second.
"""

from collections import Counter, deque
from dataclasses import dataclass, field

import pytest

from agentcache.router.fleet import FleetView, Flight
from agentcache.router.place import Candidate, Wish, place
from tests.fleets import Heard, card_of

SEATS, SERVICE, BEAT, LOOK = 8, 10, 10, 5


@dataclass
class Running:
    """A request at a worker, and the ticks that it still takes."""

    flight: Flight
    left: int
    session: int = -1


@dataclass
class Server:
    """One worker: who runs and who waits."""

    running: list[Running] = field(default_factory=list)
    waiting: deque[Running] = field(default_factory=deque)

    @property
    def load(self) -> int:
        return len(self.running) + len(self.waiting)

    def tick(self) -> list[Running]:
        """Those that end now."""
        while self.waiting and len(self.running) < SEATS:
            self.running.append(self.waiting.popleft())
        for each in self.running:
            each.left -= 1
        ended = [each for each in self.running if not each.left]
        self.running = [each for each in self.running if each.left]
        return ended


class Storm:
    """Some workers, and routers that see them late."""

    def __init__(self, names: str, routers: int = 1) -> None:
        self.servers = {name: Server() for name in names}
        self.roster = Heard()
        self.routers = [FleetView(salt=str(number)) for number in range(routers)]
        self.now = 0
        self.begun: Counter[str] = Counter()

    async def tick(self) -> list[Running]:
        """Reports, looks, work; who ended."""
        if self.now % BEAT == 0:
            for name, server in self.servers.items():
                load = {"running": len(server.running), "waiting": len(server.waiting)}
                self.roster.hear(card_of(name, seats=SEATS, queue_limit=10_000), **load)
        if self.now % LOOK == 0:
            for router in self.routers:
                await router.refresh(self.roster)
        self.now += 1
        ended = [each for server in self.servers.values() for each in server.tick()]
        for each in ended:
            each.flight.end()
        return ended

    def send(self, wish: Wish, router: int = 0, session: int = -1, **predicted: int) -> str:
        """One request; where it went."""
        fleet = self.routers[router]
        candidates = [Candidate(view, predicted.get(view.id, 0)) for view in fleet.views()]
        worker = place(wish, candidates).worker
        self.servers[worker].waiting.append(Running(fleet.begin(worker), SERVICE, session))
        self.begun[worker] += 1
        return worker

    @property
    def loads(self) -> list[int]:
        return [server.load for server in self.servers.values()]

    def require_true_counters(self) -> None:
        """What the routers count is what is there."""
        counted: Counter[str] = Counter()
        for router in self.routers:
            counted.update(router.in_flight)
        assert counted == Counter({name: server.load for name, server in self.servers.items() if server.load})


@pytest.mark.parametrize("routers", [1, 3])
@pytest.mark.asyncio
async def test_a_burst_of_twice_what_fits_ends_in_the_steady_state(routers: int) -> None:
    """A minute of twice the capacity; the queues drain afterwards, and no counter is left behind."""
    storm, due, sent = Storm("abcd", routers), 0.0, 0
    capacity = 4 * SEATS / SERVICE
    before = after = 0
    for now in range(4000):
        await storm.tick()
        due += capacity * (2.0 if 500 <= now < 1100 else 0.6)
        while due >= 1:
            due, sent = due - 1, sent + 1
            storm.send(Wish(), sent % routers)
        storm.require_true_counters()
        assert max(storm.loads) - min(storm.loads) <= (1 if routers == 1 else SEATS)
        before = max(before, max(storm.loads)) if now < 500 else before
        after = max(after, max(storm.loads)) if now >= 3500 else after
    assert after <= before + 1
    assert max(storm.loads) <= SEATS
    counts = list(storm.begun.values())
    assert max(counts) / (sum(counts) / 4) < 1.1


@pytest.mark.asyncio
async def test_routers_do_not_run_to_the_same_worker() -> None:
    """Three routers at nine tenths of the capacity, each seeing the others only through late reports."""
    storm, due, sent, needless = Storm("abcd", routers=3), 0.0, 0, 0
    for _ in range(2000):
        await storm.tick()
        due += 0.9 * 4 * SEATS / SERVICE
        while due >= 1:
            due, sent = due - 1, sent + 1
            worker = storm.send(Wish(), sent % 3)
            needless += storm.servers[worker].load > SEATS > min(storm.loads)
    assert needless < sent / 50


@pytest.mark.asyncio
async def test_sessions_that_all_sit_on_one_worker_spread_and_stop_moving() -> None:
    """Eighty sessions pinned to one of four workers, two and a half times what it can serve."""
    storm, think = Storm("abcd"), 30
    home = dict.fromkeys(range(80), "a")
    moves: Counter[int] = Counter()
    moved_at: dict[int, int] = {}
    wakes: dict[int, list[int]] = {}
    for session in home:
        wakes.setdefault(session % think, []).append(session)
    last_move, waited = 0, []
    for now in range(6000):
        for ended in await storm.tick():
            wakes.setdefault(now + think, []).append(ended.session)
        for session in wakes.pop(now, []):
            rested = now - moved_at.get(session, -1000) >= 100
            worker = storm.send(
                Wish(bound=home[session], rested=rested), session=session, **{home[session]: 1000}
            )
            if worker != home[session]:
                home[session], moved_at[session], last_move = worker, now, now
                moves[session] += 1
        waited.append(max(len(server.waiting) for server in storm.servers.values()))
    assert last_move < 1000
    assert max(moves.values()) <= 2
    assert max(waited[3000:]) <= SEATS
    assert max(Counter(home.values()).values()) <= 40
    assert min(waited[:200]) >= 0 < max(waited[:200])


@pytest.mark.asyncio
async def test_unique_heavy_prompts_do_not_go_to_the_busy_worker() -> None:
    """Nobody has any of them; the worker with the long queue does not get the next one, whatever its cache."""
    storm = Storm("ab")
    await storm.tick()
    for _ in range(40):
        storm.send(Wish(pinned="a"))
    storm.begun.clear()
    for _ in range(30):
        await storm.tick()
        storm.send(Wish(looked_up=True))
    assert storm.begun["b"] > storm.begun["a"]
    assert storm.servers["b"].load <= storm.servers["a"].load + 1


@pytest.mark.asyncio
async def test_a_popular_prefix_uses_its_worker_up_to_the_window_and_no_further() -> None:
    """One worker has it; at low load all go there, at high load the others learn it."""
    storm, due = Storm("abcd"), 0.0
    has = {"a"}
    for now in range(1500):
        await storm.tick()
        due += 0.3 if now < 500 else 2.0
        while due >= 1:
            due -= 1
            has.add(storm.send(Wish(looked_up=True), **dict.fromkeys(has, 512)))
        assert now >= 500 or has == {"a"}
        assert max(storm.loads) - min(storm.loads) <= SEATS
    assert has == set("abcd")
    assert max(storm.loads) <= SEATS


@pytest.mark.asyncio
async def test_a_worker_that_comes_back_is_filled_without_a_stampede() -> None:
    storm, due = Storm("abcd"), 0.0
    for now in range(900):
        await storm.tick()
        if now == 300:
            for router in storm.routers:
                router.failed("d")
                storm.roster.lose("d")
        due += 1.8
        while due >= 1:
            due -= 1
            storm.send(Wish())
        if now > 330:
            assert max(storm.loads) <= 2 * SEATS
    storm.require_true_counters()
