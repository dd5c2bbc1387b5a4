"""The workers as this router sees them now: who is there, how busy, and what this router itself has in flight there."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import count
from typing import Protocol

import msgspec
import structlog
from msgspec.structs import replace

from agentcache.errors import CacheError, Kind
from agentcache.router.settings import PlainUpstream
from agentcache.router.unheard import Health, Probe, Unheard, no_probe
from agentcache.store.api import WorkerEntry
from agentcache.wire import Role, WorkerCard, WorkerLoad

PLAIN_SEATS = 8
"""What a server that does not say how many requests it runs at once is taken to run."""
NEWS = 0.2
"""How far one report moves what is believed of others' requests; with three routers 1 left a third of all requests
waiting beside free seats at 90 % of the capacity, 0.2 leaves one in a hundred."""
LATELY = 512
"""Conversations a worker that `homes` counts in full."""


class WorkerView(msgspec.Struct, frozen=True):
    """A worker at one moment, made anew with every request that comes or goes.

    `told` is its own last report; `in_flight` is what this router has there now, `coming` what it will send there once
    others have computed the prompts, and `others` what everybody else has, over the last reports. `chosen` grows with
    every choice: the smallest was chosen longest ago. `homes`: conversations that this router lately began there, older
    ones counting less. `shedding`: it was crowded, and somebody still waits.
    """

    id: str
    url: str
    kind: str = "agentcache"
    alive: bool = True
    draining: bool = False
    told: WorkerLoad = WorkerLoad()
    seats: int = PLAIN_SEATS
    in_flight: int = 0
    coming: int = 0
    card: WorkerCard | None = None
    others: float = 0.0
    chosen: int = 0
    models: tuple[str, ...] = ()
    homes: int = 0
    shedding: bool = False

    @property
    def load(self) -> float:
        """Requests there now, as far as can be known."""
        return self.others + self.in_flight

    @property
    def expected(self) -> float:
        """The same, and those that will come: what a new conversation will find there."""
        return self.load + self.coming

    @property
    def waiting(self) -> int:
        return self.told.waiting

    @property
    def running(self) -> int:
        return self.told.running

    @property
    def queue_limit(self) -> int:
        """Requests that may wait before it refuses; 0 where it does not say."""
        return self.card.queue_limit if self.card else 0

    def waits(self, batches: int) -> bool:
        """Whether so many batches wait before whoever comes now, or half of all that may wait for each batch."""
        queue = batches * self.seats
        if self.queue_limit:
            queue = min(queue, max(1, self.queue_limit * batches // 2))
        return self.load >= self.seats + queue

    @property
    def crowded(self) -> bool:
        return self.waits(batches=2)

    @property
    def usable(self) -> bool:
        """Whether new work may go there."""
        return self.alive and not self.draining

    @property
    def prefills(self) -> bool:
        """Whether it computes prompts for others, and answers nobody."""
        return bool(self.card and self.card.role == Role.PREFILL)

    @property
    def answers(self) -> bool:
        """Whether new turns may go there."""
        return self.usable and not self.prefills


class Roster(Protocol):
    """The part of a store that lists workers."""

    async def workers(self) -> tuple[WorkerEntry, ...]: ...


class FleetView:
    """All workers of the store, and the plain servers of the settings.

    `salt` (the router's id) makes routers that start together begin with different workers.
    """

    def __init__(self, static: Sequence[PlainUpstream] = (), probe: Probe = no_probe, salt: str = "") -> None:
        self._known: dict[str, WorkerView] = {
            plain_id(plain.url): WorkerView(plain_id(plain.url), plain.url, plain.kind, alive=False)
            for plain in static
        }
        self._static = tuple(self._known)
        self._unheard = Unheard(probe)
        self._salt = salt
        self._flights = Flights()
        self._failed: dict[str, int] = {}
        self._heard: dict[str, int] = {}
        self._chosen: dict[str, int] = {}
        self._homes: dict[str, int] = {}
        self._first_turns: dict[str, int] = {}
        self._shedding: set[str] = set()
        self._views: dict[str, WorkerView] = {}
        self._turn = count(1)
        self.store_down = False
        """Whether the list of workers is the last that was known, because the store does not answer."""

    async def refresh(self, store: Roster) -> None:
        """Look again. A store that does not answer leaves what was known, and each worker is asked itself; so is who is
        not heard yet for a while after that."""
        try:
            await self._refresh(store)
        finally:
            self._views.clear()

    async def _refresh(self, store: Roster) -> None:
        found, health = await asyncio.gather(
            _listed(store), self._unheard.health(_urls(self._known, self._static))
        )
        self._unheard.looked(away=isinstance(found, CacheError))
        for worker, answer in health.items():
            self._probed(worker, answer)
        if isinstance(found, CacheError):
            if not self.store_down:
                structlog.get_logger().warning("workers_unseen", why=found.message)
            self.store_down = True
            await self._ask(self._known.keys() - set(self._static))
        else:
            self.store_down = False
            heard = {entry.card.worker for entry in found if entry.alive}
            self._take(found, self._alive() - heard if self._unheard.awaited else frozenset())
            if self._unheard.awaited:
                await self._ask(self._known.keys() - set(self._static) - heard)

    def views(self) -> tuple[WorkerView, ...]:
        """Every worker that is known, dead ones too."""
        return tuple([self.view(worker) for worker in self._known])

    def view(self, worker: str) -> WorkerView:
        """Errors: CacheError(NO_WORKER)."""
        if worker not in self._views:
            self._views[worker] = self._seen_now(worker)
        return self._views[worker]

    def find(self, worker: str) -> WorkerView | None:
        return self.view(worker) if worker in self._known else None

    def failed(self, worker: str) -> None:
        """It did not take a request: not alive until it is heard after this."""
        if worker in self._known:
            self._failed[worker] = self._heard.get(worker, 0)
            self._views.pop(worker, None)

    def begin(self, worker: str) -> "Flight":
        """Count a request at a worker from this decision on; whoever sends it ends the flight."""
        self._chosen[worker] = next(self._turn)
        self.count(worker, 1, 0)
        return Flight(self, worker)

    def settled(self, worker: str) -> None:
        """A conversation begins there. Every so often all counts are halved."""
        self._homes[worker] = self._homes.get(worker, 0) + 1
        if sum(self._homes.values()) > LATELY * len(self._homes):
            self._homes = {name: homes // 2 for name, homes in self._homes.items()}
            self._views.clear()
        self._views.pop(worker, None)

    def count(self, worker: str, there: int, coming: int) -> None:
        """So many more are there and coming, or fewer; called by their flights."""
        self._views.pop(worker, None)
        self._flights.count(worker, there, coming)
        if worker not in self._known:
            self._flights.most.pop(worker, None)

    @property
    def in_flight(self) -> Mapping[str, int]:
        """What this router has in flight, there or coming, by worker; workers without are left out."""
        return self._flights.there + self._flights.coming

    def _seen_now(self, worker: str) -> WorkerView:
        known = self._known.get(worker)
        if not known:
            raise CacheError(
                Kind.NO_WORKER, "no worker has this name; GET /v1/workers lists them", worker=worker
            )
        now = replace(
            known,
            alive=known.alive and worker not in self._failed,
            in_flight=self._flights.there[worker],
            coming=self._flights.coming[worker],
            chosen=self._chosen.get(worker) or self._first_turn(worker),
            homes=self._homes.get(worker, 0),
        )
        if now.crowded:
            self._shedding.add(worker)
        elif now.load <= now.seats:
            self._shedding.discard(worker)
        return replace(now, shedding=True) if worker in self._shedding else now

    def _first_turn(self, worker: str) -> int:
        """Before anything was chosen each router has an order of its own."""
        if worker not in self._first_turns:
            digest = hashlib.sha256(f"{self._salt}\n{worker}".encode()).digest()
            self._first_turns[worker] = -1 - int.from_bytes(digest[:4])
        return self._first_turns[worker]

    def _take(self, entries: Sequence[WorkerEntry], alive: Set[str]) -> None:
        """Believe the store, but of these, which are alive although it does not hear them yet."""
        fresh = {entry.card.worker: entry for entry in entries}
        for worker in self._known.keys() - fresh.keys() - alive - set(self._static):
            self._forget(worker)
        for worker, entry in fresh.items():
            seen = self._seen(entry, self._known.get(worker))
            self._known[worker] = replace(seen, alive=True) if worker in alive else seen
            self._heard[worker] = entry.heard_ms
            if self._failed.get(worker, entry.heard_ms) != entry.heard_ms:  # the store's clock may go back
                del self._failed[worker]

    def _seen(self, entry: WorkerEntry, before: WorkerView | None) -> WorkerView:
        """What others have there: each new report, less the most that we had in flight since the one before.

        Smoothed, since routers that follow the last report all run to the same worker at once.
        """
        card, load = entry.card, entry.load
        others = max(0.0, load.waiting + load.running - self._flights.most[card.worker])
        if before and before.card == card:
            new = entry.heard_ms != self._heard.get(card.worker)
            others = before.others + (others - before.others) * (NEWS if new else 0)
        if entry.heard_ms != self._heard.get(card.worker):
            self._flights.reported(card.worker)
        return WorkerView(
            id=card.worker,
            url=card.url,
            alive=entry.alive,
            draining=entry.draining or load.draining,
            told=load,
            seats=max(1, card.seats),
            card=card,
            others=others,
            models=(card.model,) if card.model else (),
        )

    def _forget(self, worker: str) -> None:
        for table in (self._known, self._heard, self._failed, self._chosen, self._flights.most, self._homes):
            table.pop(worker, None)
        self._first_turns.pop(worker, None)
        self._shedding.discard(worker)

    def _probed(self, worker: str, health: Health) -> None:
        before = self._known[worker]
        self._known[worker] = replace(
            before, alive=health.alive, models=health.models if health.alive else before.models
        )
        if health.alive:
            self._failed.pop(worker, None)

    def _alive(self) -> Set[str]:
        return {worker for worker, known in self._known.items() if known.alive} - self._failed.keys()

    async def _ask(self, workers: Set[str]) -> None:
        """Ask those whom the store does not hear; one that is alive has answered lately."""
        for worker, alive in (await self._unheard.ask(_urls(self._known, workers))).items():
            if alive and worker in self._known:
                self._failed.pop(worker, None)
                self._known[worker] = replace(self._known[worker], alive=True)
            elif not alive:
                self.failed(worker)


class Flights:
    """What this router has at each worker. `most`: that were `there` at once since it last reported."""

    def __init__(self) -> None:
        self.there = Counter[str]()
        self.coming = Counter[str]()
        self.most = Counter[str]()

    def count(self, worker: str, there: int, coming: int) -> None:
        for table, by in ((self.there, there), (self.coming, coming)):
            table[worker] += by
            if not table[worker]:
                del table[worker]
        if self.there[worker] > self.most[worker]:
            self.most[worker] = self.there[worker]

    def reported(self, worker: str) -> None:
        self.most[worker] = self.there[worker]


class Flight:
    """One request at a worker, counted until it ends; ending twice is ending once, and nothing changes after it."""

    def __init__(self, fleet: FleetView, worker: str) -> None:
        self._fleet = fleet
        self._under_way = True
        self._there = True
        self.worker = worker

    def put_off(self) -> None:
        """Its prompt is computed elsewhere first: it is not there yet."""
        self._be(there=False)

    def arrive(self) -> None:
        """It is sent there now."""
        self._be(there=True)

    def end(self) -> None:
        if self._under_way:
            self._under_way = False
            there, coming = (-1, 0) if self._there else (0, -1)
            self._fleet.count(self.worker, there, coming)

    def _be(self, there: bool) -> None:
        if self._under_way and there != self._there:
            self._there = there
            by = 1 if there else -1
            self._fleet.count(self.worker, by, -by)


def _urls(known: Mapping[str, WorkerView], workers: Iterable[str]) -> dict[str, str]:
    return {worker: known[worker].url for worker in workers}


async def _listed(store: Roster) -> tuple[WorkerEntry, ...] | CacheError:
    try:
        return await store.workers()
    except CacheError as error:
        return error


def plain_id(url: str) -> str:
    """What a server that is no worker of ours is called: its address."""
    return url.partition("://")[2]
