"""What must hold once everything is quiet, said as a list of what does not."""

from dataclasses import dataclass, field

from agentcache.store.api import SessionRecord, Store
from tests.storm.agents import Agents
from tests.storm.plant import TENANTS, TTL_S, Plant
from tests.storm.truth import Life, Truth

OPEN = "open"
Held = dict[str, tuple[int, int]]
"""Markers and generation of each session that a worker has open."""


@dataclass(slots=True)
class Flights:
    """Requests in flight by session, as the last look found them: those that dead routers have left.

    `disturbed`: since then a router or the store was not there, so that there may be more.
    """

    left: dict[str, int] = field(default_factory=dict)
    disturbed: bool = False

    def wrongs(self, records: dict[str, SessionRecord]) -> list[str]:
        """Requests that ended and were never told to the store."""
        if self.disturbed:
            return []
        return [
            f"{name}: {record.in_flight} requests are in flight, and nothing runs"
            for name, record in records.items()
            if record.in_flight > self.left.get(name, 0)
        ]

    def rested(self, records: dict[str, SessionRecord]) -> None:
        """All that held was found to hold."""
        self.left = {name: record.in_flight for name, record in records.items()}
        self.disturbed = False


@dataclass(slots=True)
class Verdict:
    """Compares workers, store and truth."""

    plant: Plant
    truth: Truth
    store: Store
    agents: Agents
    flights: Flights

    async def wrongs(self) -> list[str]:
        """Every broken promise, in words; empty when all hold."""
        found = list(self.truth.wrong)
        records = {f"{record.ref.tenant}/{record.ref.session}": record for record in await self._records()}
        held: dict[str, Held] = {}
        for unit in self.plant.workers:
            answer = await self.agents.held(unit.name)
            if answer is None:
                return [f"{unit.name} does not answer"]
            held[unit.name] = {name: one for name, one in answer.items() if one[0]}
        for worker, sessions in held.items():
            for session, (_, generation) in sessions.items():
                found += _may_hold(worker, session, generation, records)
                through = self.truth.closed_through(session)
                if generation <= through:
                    found.append(f"{worker} has {session} under {generation}, closed through {through}")
        for session, known in self.truth.sessions.items():
            record = records.get(session)
            found += self._is_there(session, known.registered, known.registered_generation, record, held)
            through = self.truth.closed_through(session)
            if record and record.state == OPEN and record.generation <= through:
                said = f"{session} is open under {record.generation}, closed through {through}"
                found.append(f"{said}: {known.closes[-3:]}")
        for unit in self.plant.workers:
            found += await self._leaks(unit.name)
        found += self.flights.wrongs(records)
        if not found:
            self.flights.rested(records)
            self.truth.rested()
        return found

    def _is_there(
        self,
        session: str,
        life: Life | None,
        generation: int,
        record: SessionRecord | None,
        held: dict[str, Held],
    ) -> list[str]:
        """A turn that ended whole has left a reference, unless something since then took it away."""
        known = self.truth.of(session)
        if life is None or known.doubt:
            return []
        if record is None:
            ended = known.uncertain or life.losses != self.truth.losses or known.was_closed(generation)
            ended = ended or self.agents.now_ms() - life.used_ms > TTL_S * 500  # it may be idle by now
            if not ended:
                return [f"{session} is gone, whose last turn ended under {generation}"]
            known.registered = None
            return []
        unit = self.plant.worker(life.worker)
        same = (record.state, record.generation, record.worker) == (OPEN, generation, life.worker)
        lives = (unit.starts, self.truth.losses) == (life.starts, life.losses)
        if same and lives:
            self.truth.count("reference looked for")
        if same and lives and session not in held[life.worker]:
            return [f"{session}: no reference on {life.worker}, where its last turn ended under {generation}"]
        return []

    async def _leaks(self, worker: str) -> list[str]:
        """Nothing is left that no open session accounts for."""
        said = await self.agents.asked(worker, "/v1/cache")
        listed = await self.agents.asked(worker, "/v1/sessions")
        if said is None or listed is None:
            return [f"{worker} does not answer"]
        open_ones = sum(one["markers"] for one in listed["data"])
        if open_ones != listed["open_references"]:
            return [
                f"{worker} has {listed['open_references']} references, {open_ones} of them of open sessions"
            ]
        pools = said["tiers"]["device"]
        return [
            f"{worker}: {pool['slots']['leased']} slots of {name} are leased and nothing runs"
            for name, pool in pools.items()
            if pool["slots"]["leased"]
        ]

    async def _records(self) -> list[SessionRecord]:
        found: list[SessionRecord] = []
        for tenant in TENANTS:
            after = ""
            while True:
                page = await self.store.list(tenant, after, 500)
                found += page.records
                after = page.after
                if not after:
                    break
        return found


def _may_hold(worker: str, session: str, generation: int, records: dict[str, SessionRecord]) -> list[str]:
    record = records.get(session)
    if record is None or record.state != OPEN:
        return [f"{worker} references {session}, which is not open"]
    if worker != record.worker and worker not in record.holders:
        return [f"{worker} references {session}, which {record.worker} has"]
    if generation > record.generation:
        return [f"{worker} has {session} under {generation}, which is at {record.generation}"]
    return []
