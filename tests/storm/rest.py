"""What agents find while all is at rest: calls one after the other, whose effects are known exactly."""

import asyncio
import random
import time
from asyncio import FIRST_COMPLETED
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from agentcache.store.api import SessionRecord, SessionRef, Store
from agentcache.types import SessionState
from tests.storm.agents import FINE, LET_GO, OPENED, Agents, Served, Turn
from tests.storm.plant import ALONE, TENANTS, TTL_S, Plant, moment
from tests.storm.truth import Truth

NEW_WORDS = 80
LATE_TOKENS = 200
"""A turn of so many ends well after a close, an open and another turn."""
LIMIT_S = 30.0
LOOK_S = 0.02
STALE = 409
Held = dict[str, dict[str, tuple[int, int]]]
"""By worker: markers and generation of each session that has any."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is done to one session. `words`: what nobody has said before; () for its own.

    `late`: a turn of it "arrives" or "ends" late, or "" for none.
    """

    session: str
    closes: bool
    late: str
    words: tuple[int, ...] = ()


def draw(source: random.Random, session: str) -> Look:
    """It depends on the seed alone, whatever has happened."""
    words = tuple(source.randrange(10, 1010) for _ in range(NEW_WORDS))
    closes, new = source.random() < 0.6, source.random() < 0.5
    late = source.choices(("", "arrives", "ends"), (6, 2, 2))[0]
    return Look(session, closes, late, words if new else ())


@dataclass(slots=True)
class Rest:
    """Open, turn, close, and turns that come or end too late, with nothing else going on.

    After a turn its worker alone has the session, and a turn of a closed generation adds nothing to it. A close says
    exactly what went, and nothing of it is left. The other tenant's session of the same id stays as it was; what one
    tenant said is new when the other one says it.
    """

    plant: Plant
    truth: Truth
    agents: Agents
    store: Store
    found: list[str] = field(default_factory=list)

    async def look(self, look: Look) -> list[str]:
        """Every broken promise, in words."""
        session = look.session
        if not await self._till(lambda: self._opened(session)):
            return self._wrong(f"{session} cannot be opened at rest")
        served = await self._turn(session)
        if not served:
            return self.found
        if wrong := await self._alone(session, served):
            return self._wrong(wrong)
        if look.words and not session.split("/")[1].startswith(ALONE):
            await self._nothing_shared(session, Turn(words=look.words, pinned=served.worker))
        if look.late == "ends":
            await self._late_end(session)
        elif look.late == "arrives":
            await self._late_arrival(session, served)
        elif look.closes and not self.found:
            twin = await self._twin(session)
            await self._close(session, served)
            if twin != await self._twin(session) and twin:
                self._wrong(f"{session} was closed, and {_twin(session)} is not what it was: {twin}")
        return self.found

    async def _opened(self, session: str) -> bool:
        return await self.agents.open(session) in (FINE, 201)

    async def _turn(self, session: str) -> Served | None:
        """A turn that is served for its session, sooner or later: routers may not know yet who is there again."""
        end, served = time.monotonic() + LIMIT_S, None
        while time.monotonic() < end:
            served = await self.agents.turn(session)
            if served and served.status == FINE and served.whole and served.state in OPENED:
                return served
            await moment(LOOK_S)
        self._wrong(f"{session}: a turn at rest was answered {served}")
        return None

    async def _alone(self, session: str, served: Served) -> str:
        """Its worker, and nobody else, references the session; "" when that is so, sooner or later."""
        said = ""

        async def so() -> bool:
            nonlocal said
            record, held = await self._record(session), await self._held()
            having = {worker: one[session] for worker, one in held.items() if session in one}
            said = f"{session}: after {served} the store has {record}, and workers have {having}"
            where = (record.worker, record.holders, record.generation)
            right = where == (served.worker, (served.worker,), served.generation)
            generations = {worker: generation for worker, (_, generation) in having.items()}
            return right and generations == {served.worker: served.generation}

        return "" if await self._till(so) else said

    async def _nothing_shared(self, session: str, turn: Turn) -> None:
        """New words are new to each tenant, once."""
        said = [await self.agents.turn(one, turn) for one in (session, _twin(session), session)]
        own, other, again = [one.cached if one and one.status == FINE else 0 for one in said]
        self.truth.count("words looked at")
        if again:
            self.truth.count("words known")
        if own or other:
            self._wrong(f"{session}: words that its tenant has never said were cached: {said}")

    async def _late_arrival(self, session: str, served: Served) -> None:
        """A turn reaches its worker after this has let go of the session."""
        gate = self.plant.gates[[unit.name for unit in self.plant.workers].index(served.worker)]
        gate.shut()
        late = asyncio.ensure_future(self.agents.turn(session))
        await moment(LOOK_S)
        _, said = await self.agents.close(session)
        gate.release()
        came, told = await late, {one["worker"]: one["outcome"] for one in said.get("workers", ())}
        if not came or came.worker != served.worker or told.get(served.worker) not in LET_GO:
            return
        self.truth.count("late arrival looked at")
        if came.state in OPENED and came.generation <= int(said["generation"]):
            self._wrong(f"{session}: closed by {said}, and then served: {came}")

    async def _late_end(self, session: str) -> None:
        """A turn ends while its session is closed, open again, and has had another turn."""
        began = asyncio.Event()
        late = asyncio.ensure_future(self.agents.turn(session, Turn(tokens=LATE_TOKENS, began=began)))
        await asyncio.wait(
            (late, waiting := asyncio.ensure_future(began.wait())), return_when=FIRST_COMPLETED
        )
        waiting.cancel()
        await self.agents.close(session)
        opened = await self._till(lambda: self._opened(session))
        served = await self._turn(session) if opened else None
        before = await self._markers(session)
        in_time = not late.done()
        await late
        if not served:
            return
        if wrong := await self._alone(session, served):
            self._wrong(wrong)
        elif in_time and before != (after := await self._markers(session)):
            self._wrong(f"{session}: the late end of a turn made of {before} {after}")
        self.truth.count(f"late end {'looked at' if in_time else 'too early'}")

    async def _markers(self, session: str) -> dict[str, object]:
        """What each worker shows that the session holds there."""
        path = "/v1/sessions/" + session.replace("/", "%2F")
        views = {unit.name: await self.agents.asked(unit.name, path) for unit in self.plant.workers}
        return {name: (view["markers"], view["held"]) for name, view in views.items() if view}

    async def _close(self, session: str, served: Served) -> None:
        """Preview, close, close again, and turns that come too late."""
        held, records = await self._held(), await self._records(session)
        foreseen = await self._answered(lambda: self.agents.preview(session))
        said = await self._answered(lambda: self.agents.close(session))
        if said["generation"] != served.generation or said["state"] != SessionState.CLOSED:
            self._wrong(f"{session}: closed after {served}, and told {said}")
        for one in (said, *said["children"]):
            self._told(session.split("/")[0], one, held, records)
        asked = all(
            worker["outcome"] == "preview" for worker in foreseen["workers"]
        )  # a router may not know it yet
        if asked and foreseen["released"] != said["released"] and _reached(said):
            self._wrong(f"{session}: a close was to let go of {foreseen}, and let go of {said}")
        again = await self._answered(lambda: self.agents.close(session))
        if (again["generation"], again["state"]) != (served.generation, SessionState.CLOSED) or again[
            "released"
        ]:
            self._wrong(f"{session}: closed again after {said}, and told {again}")
        fenced = await self.agents.turn(session, Turn(fence=served.generation))
        if fenced and fenced.status == FINE:
            self._wrong(f"{session}: served under the closed {served.generation}: {fenced}")
        late = await self.agents.turn(session)
        if late and late.state not in OPENED and not await self._till(lambda: self._gone(session)):
            self._wrong(f"{session} was closed, and is referenced: {await self._held()}")

    def _told(self, tenant: str, one: dict[str, Any], held: Held, records: dict[str, SessionRecord]) -> None:
        """What a close says of one session is what was there."""
        name = f"{tenant}/{one['session_id']}"
        record = records.get(name)
        if not record or record.idle_s > TTL_S / 2:  # it may idle out meanwhile
            return
        told = {worker["worker"]: worker for worker in one["workers"]}
        self.truth.count("close compared")
        for worker, sessions in held.items():
            markers, _ = sessions.get(name, (0, 0))
            outcome = told.get(worker, {"outcome": "unasked", "markers": 0})
            if outcome["outcome"] in ("pending", "restarted") and worker in told:
                continue
            if outcome["markers"] != markers or (markers and outcome["outcome"] != LET_GO[0]):
                self._wrong(f"{name} had {markers} markers on {worker}, and its close said {outcome}")

    async def _answered(self, call: Callable[[], Awaitable[tuple[int, dict[str, Any]]]]) -> dict[str, Any]:
        """The answer to a call about a session that is there."""
        said: dict[str, Any] = {}

        async def so() -> bool:
            nonlocal said
            status, said = await call()
            return status == FINE

        if not await self._till(so):
            raise RuntimeError(f"a call at rest is answered {said}")
        return said

    async def _gone(self, session: str) -> bool:
        return not any(session in sessions for sessions in (await self._held()).values())

    async def _twin(self, session: str) -> dict[str, tuple[int, int]]:
        """Who has what of the other tenant's session of this id; nothing where it may idle out."""
        twin = _twin(session)
        if (await self._record(twin)).idle_s > TTL_S / 2:
            return {}
        return {worker: one[twin] for worker, one in (await self._held()).items() if twin in one}

    async def _held(self) -> Held:
        held: Held = {}
        for unit in self.plant.workers:
            sessions = await self.agents.held(unit.name) or {}
            held[unit.name] = {name: one for name, one in sessions.items() if one[0]}
        return held

    async def _record(self, session: str) -> SessionRecord:
        return await self.store.look(SessionRef(*session.split("/")))

    async def _records(self, session: str) -> dict[str, SessionRecord]:
        """All of the tenant's open sessions: these are few."""
        tenant = session.split("/")[0]
        page = await self.store.list(tenant, "", 500)
        return {f"{tenant}/{record.ref.session}": record for record in page.records}

    async def _till(self, so: Callable[[], Awaitable[bool]]) -> bool:
        """Whether it is so before the limit."""
        end = time.monotonic() + LIMIT_S
        while not await so():
            if time.monotonic() > end:
                return False
            await moment(LOOK_S)
        return True

    def _wrong(self, what: str) -> list[str]:
        self.found.append(what)
        return self.found


def _twin(session: str) -> str:
    """The other tenant's session of the same id."""
    tenant, own = session.split("/")
    return f"{next(name for name in TENANTS if name != tenant)}/{own}"


def _reached(said: dict[str, Any]) -> bool:
    """Whether every holder has answered, now."""
    return all(worker["outcome"] in LET_GO for worker in said["workers"])
