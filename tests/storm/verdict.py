"""What must hold once everything is quiet, said as a list of what does not."""

from dataclasses import dataclass
from typing import Any

import aiohttp

from agentcache.store.api import SessionRecord, Store
from tests.storm.agents import FINE, LIMIT, LOST
from tests.storm.plant import Plant, Unit
from tests.storm.truth import Life, Truth

OPEN = "open"


@dataclass(slots=True)
class Verdict:
    """Compares workers, store and truth."""

    plant: Plant
    truth: Truth
    store: Store
    http: aiohttp.ClientSession

    async def wrongs(self) -> list[str]:
        """Every broken promise, in words; empty when all hold."""
        found = list(self.truth.wrong)
        records = {record.ref.session: record for record in await self._records()}
        held: dict[str, dict[str, int]] = {}
        for unit in self.plant.workers:
            answer = await self._sessions(unit)
            if answer is None:
                return [f"{unit.name} does not answer"]
            held[unit.name] = {one["session_id"]: one["markers"] for one in answer if one["markers"]}
        for worker, sessions in held.items():
            found += [said for session in sessions for said in _may_hold(worker, session, records)]
        for session, known in self.truth.sessions.items():
            record = records.get(session)
            found += self._is_there(session, known.registered, known.registered_generation, record, held)
            through = self.truth.closed_through(session)
            if record and record.state == OPEN and record.generation <= through:
                found.append(f"{session} is open under {record.generation}, closed through {through}")
        for unit in self.plant.workers:
            found += await self._leaks(unit)
        return found

    def _is_there(
        self,
        session: str,
        life: Life | None,
        generation: int,
        record: SessionRecord | None,
        held: dict[str, dict[str, int]],
    ) -> list[str]:
        """A turn that ended whole has left a reference, unless something since then took it away."""
        if life is None or self.truth.of(session).doubt or record is None:
            return []
        unit = next(unit for unit in self.plant.workers if unit.name == life.worker)
        same = (record.state, record.generation, record.worker) == (OPEN, generation, life.worker)
        lives = (unit.starts, self.truth.losses) == (life.starts, life.losses)
        if same and lives:
            self.truth.count("reference looked for")
        if same and lives and session not in held[life.worker]:
            return [f"{session}: no reference on {life.worker}, where its last turn ended under {generation}"]
        return []

    async def _leaks(self, unit: Unit) -> list[str]:
        said = await self._get(unit, "/v1/cache")
        if said is None:
            return [f"{unit.name} does not answer"]
        pools = said["tiers"]["device"]
        return [
            f"{unit.name}: {pool['slots']['leased']} slots of {name} are leased and nothing runs"
            for name, pool in pools.items()
            if pool["slots"]["leased"]
        ]

    async def _records(self) -> list[SessionRecord]:
        found: list[SessionRecord] = []
        after = ""
        while True:
            page = await self.store.list("default", after, 500)
            found += page.records
            after = page.after
            if not after:
                return found

    async def _sessions(self, unit: Unit) -> list[dict[str, Any]] | None:
        said = await self._get(unit, "/v1/sessions")
        return None if said is None else list(said["data"])

    async def _get(self, unit: Unit, path: str) -> dict[str, Any] | None:
        headers = {"authorization": f"Bearer {self.plant.signer.bearer()}"}
        try:
            async with self.http.get(
                f"http://127.0.0.1:{unit.port}{path}", headers=headers, timeout=LIMIT
            ) as answer:
                return dict(await answer.json()) if answer.status == FINE else None
        except LOST:
            return None


def _may_hold(worker: str, session: str, records: dict[str, SessionRecord]) -> list[str]:
    record = records.get(session)
    if record is None or record.state != OPEN:
        return [f"{worker} references {session}, which is not open"]
    if worker != record.worker and worker not in record.holders:
        return [f"{worker} references {session}, which {record.worker} has"]
    return []
