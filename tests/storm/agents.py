"""Agents of the fault machine: turns, closes and opens over HTTP through whichever router they meet."""

import asyncio
import json
import random
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from agentcache.wire import CACHED, GENERATION, PARENT, SESSION, STATE, WHY, WORKER
from tests.storm.gate import HOST
from tests.storm.plant import OPERATORS_KEY, REOPEN_AFTER_S, TENANTS, Plant
from tests.storm.truth import Close, Life, Shut, Truth

TURN_TOKENS = 40
TURNS = 12
"""After so many turns a session's conversation begins again, with other words."""
FIRST_PAGE = 16
FINE = 200
LET_GO = ("released", "unknown")
FIRM = (*LET_GO, "restarted")
LOST_OPENS = (0, 503)
OPENED = ("open", "expired")
LOST = (aiohttp.ClientError, TimeoutError, OSError)
LIMIT_S = 60.0
LIMIT = aiohttp.ClientTimeout(total=LIMIT_S)
DEAD_ROUTER = 0.05
"""How often an agent asks a router that is down."""


@dataclass(frozen=True, slots=True)
class Turn:
    """How a turn is made. `cut_after`: leave after so many bytes; `leave_s`: after so long.

    `began` is set when the answer begins. `words`: what it says, if not the session's history; `pinned`: the worker
    that it asks for. `outlasts`: it surely ends after everything that is done to it.
    """

    tokens: int = 8
    cut_after: int = 0
    leave_s: float = LIMIT_S
    fence: int = 0
    parent: str = ""
    began: asyncio.Event | None = None
    words: tuple[int, ...] = ()
    pinned: str = ""
    outlasts: bool = False


@dataclass(frozen=True, slots=True)
class Served:
    """The end of a turn's answer. `state` and `why` are what was said of its session."""

    status: int
    whole: bool
    state: str
    why: str
    worker: str
    generation: int
    cached: int


SHORT = Turn()


@dataclass(slots=True)
class Agents:
    """What agents do. Answers are compared with what was known when the call began; no answer is doubt, no error.

    A session is called TENANT/ID; both tenants use the same ids and say the same words.
    """

    plant: Plant
    truth: Truth
    http: aiohttp.ClientSession
    random: random.Random

    def router(self) -> str:
        routers = self.plant.routers
        if self.random.random() >= DEAD_ROUTER:
            routers = [unit for unit in routers if unit.alive] or routers
        return f"http://{HOST}:{self.random.choice(routers).port}"

    async def turn(self, session: str, turn: Turn = SHORT) -> Served | None:
        """One turn with the session's whole history; None where no answer came."""
        known = self.truth.of(session)
        tenant, own = session.split("/")
        prompt = list(turn.words) or _prompt(own, known.turns)
        words = (tenant, tuple(prompt[:FIRST_PAGE]))
        self.truth.sent(words, len(prompt))
        body = {"prompt": prompt, "max_tokens": turn.tokens, "stream": True, "ignore_eos": True}
        headers = _headers(tenant, own, turn)
        starts = {unit.name: unit.starts for unit in self.plant.workers}
        losses, closed_through = self.truth.losses, self.truth.closed_through(session)
        shut, began_ms = known.shut, self.now_ms()
        try:
            url = f"{self.router()}/v1/completions"
            limit = aiohttp.ClientTimeout(total=turn.leave_s)
            async with self.http.post(url, json=body, headers=headers, timeout=limit) as answer:
                if turn.began:
                    turn.began.set()
                whole = await _read(answer, turn.cut_after)
        except LOST:
            known.doubt = True
            self.truth.count("turn lost")
            return None
        served = _served(answer, whole)
        self._hit(session, words, len(prompt), served.cached)
        if served.status != FINE or not whole:
            self.truth.count(f"turn {'left' if turn.cut_after else served.status}")
            return served
        self.truth.count(f"turn {served.state}")
        if turn.fence and served.generation != turn.fence:
            self.truth.fault(f"{session}: served under {served.generation}, fenced to {turn.fence}")
        if served.state in OPENED:
            if served.generation <= closed_through:
                self.truth.fault(
                    f"{session}: served as open under {served.generation}, closed through {closed_through}"
                )
            self._was_open(session, shut)
            used_ms = self.now_ms() if turn.outlasts else began_ms
            life = Life(served.worker, starts.get(served.worker, 0), losses, used_ms)
            known.ended_well(life, served.generation)
            known.turns += not turn.words
        return served

    def _was_open(self, session: str, shut: Shut | None) -> None:
        """A session that was closed a moment before a turn began is opened by those that say so only."""
        known = self.truth.of(session)
        if (
            not shut
            or shut is not known.shut
            or (shut.losses, shut.backs) != (self.truth.losses, self.truth.backs)
        ):
            return
        if self.now_ms() - shut.at_ms < REOPEN_AFTER_S * 1000:
            self.truth.fault(f"{session}: opened by a turn {self.now_ms() - shut.at_ms} ms after its close")

    def now_ms(self) -> int:
        """The store's time."""
        return time.time_ns() // 1_000_000 + int(self.plant.skew.value)

    def _hit(self, session: str, words: tuple[str, tuple[int, ...]], own: int, cached: int) -> None:
        """What was cached was said before by the same tenant."""
        most = self.truth.most_sent(words, own) + TURN_TOKENS
        if cached:
            self.truth.count("hit")
        if cached > most:
            self.truth.fault(f"{session}: {cached} tokens were cached, of which its tenant has sent {most}")

    async def open(self, session: str, parent: str = "", fence: bool = False) -> int:
        """An explicit open, and its status; a generation never comes twice."""
        known = self.truth.of(session)
        tenant, own = session.split("/")
        closed_through = self.truth.closed_through(session)
        body: dict[str, Any] = {"session_id": own, "fence": fence}
        if parent:
            body["parent_session_id"] = parent
        known.opens, known.opening, known.shut = known.opens + 1, known.opening + 1, None
        status, said = await self._call(tenant, "POST", "/v1/sessions", body)
        if status not in LOST_OPENS:  # else it may come yet
            known.opening -= 1
        if status in (FINE, 201):
            generation = int(said["generation"])
            if generation <= closed_through:
                self.truth.fault(f"{session}: opened under {generation}, closed through {closed_through}")
            known.last_generation = max(known.last_generation, generation)
            if fence or said["created"]:
                known.registered = None
            if parent and said["created"]:
                await self._adopted(session, parent, generation)
        return status

    async def _adopted(self, session: str, parent: str, generation: int) -> None:
        """Note whose child a session is, as it is shown."""
        tenant, own = session.split("/")
        losses = self.truth.losses
        status, said = await self._call(tenant, "GET", f"/v1/sessions/{own}", None)
        if status == FINE and (said["parent"], int(said["generation"])) == (parent, generation):
            known = self.truth.of(session)
            known.parent, known.child_generation = f"{tenant}/{parent}", generation
            known.child_losses = losses

    async def preview(self, session: str) -> tuple[int, dict[str, Any]]:
        """What a close would let go of: status and body."""
        tenant, own = session.split("/")
        return await self._call(tenant, "DELETE", f"/v1/sessions/{own}?mode=preview", None)

    async def close(self, session: str, fence: int = 0) -> tuple[int, dict[str, Any]]:
        """A close: status and body. What it says is taken at its word, and now and then looked at."""
        known = self.truth.of(session)
        tenant, own = session.split("/")
        query = f"?generation={fence}" if fence else ""
        at = (self.now_ms(), self.truth.losses, self.truth.backs)
        opens, opening = known.opens, known.opening
        children = self.truth.children(session)
        status, said = await self._call(tenant, "DELETE", f"/v1/sessions/{own}{query}", None)
        self.truth.count(f"close {status}")
        if status not in (FINE, 404, 409):
            self.truth.close_in_doubt(session)
        for one in (said, *said.get("children", ())) if status == FINE else ():
            await self._closed(tenant, one, at)
        if status == FINE and said["state"] == "closed" and at[1] == self.truth.losses:
            if said["workers"]:  # else it may have been closed long ago
                known.shut = None if opening or opens != known.opens else Shut(*at)
            if fence and said["workers"] and int(said["generation"]) != fence:
                self.truth.fault(f"{session}: closed under {said['generation']}, fenced to {fence}")
            for child, through in children.items():
                self.truth.count("child closed")
                self.truth.of(child).closed(Close(through, False, *at[1:], session))
        return status, said

    async def _closed(self, tenant: str, one: dict[str, Any], at: tuple[int, int, int]) -> None:
        """One session of a close, and what each of its holders said. `at`: when the close began."""
        told = {worker["worker"]: worker["outcome"] for worker in one["workers"]}
        through = int(one["generation"])
        reached = through <= self.now_ms() * 1000
        # Nobody has to say anything where it was closed before, though a holder may not have heard of that yet.
        firm = reached and bool(told) and all(outcome in FIRM for outcome in told.values())
        name = f"{tenant}/{one['session_id']}"
        known = self.truth.of(name)
        known.closed(Close(through, firm, *at[1:]))
        for worker, outcome in told.items():
            self.truth.count(f"said {outcome}")
            if outcome in LET_GO:
                await self._is_let_go(name, through, worker)

    async def _is_let_go(self, session: str, through: int, worker: str) -> None:
        """What a worker says that it has let go of is not there any more, at once."""
        unit = self.plant.worker(worker)
        before = (unit.starts, self.truth.losses, self.truth.backs)
        held = await self.held(worker)
        if held is None or before != (unit.starts, self.truth.losses, self.truth.backs):
            return
        self.truth.count("close looked at")
        markers, generation = held.get(session, (0, 0))
        if markers and generation <= through:
            self.truth.fault(f"{worker} said that it let go of {session} through {through}: it has {markers}")

    async def look(self, session: str) -> None:
        tenant, own = session.split("/")
        closed_through = self.truth.closed_through(session)
        status, said = await self._call(tenant, "GET", f"/v1/sessions/{own}", None)
        if status == FINE and said["state"] == "open" and int(said["generation"]) <= closed_through:
            self.truth.fault(f"{session}: shown as open under a closed generation")

    async def trespass(self, tenant: str, own: str, fence: int) -> None:
        """A tenant asks for a session that only another one has."""
        for method, query in (("GET", ""), ("DELETE", ""), ("DELETE", f"?generation={fence}")):
            status, _ = await self._call(tenant, method, f"/v1/sessions/{own}{query}", None)
            self.truth.count(f"trespass {status}")
            if status not in (404, 503, 0):
                self.truth.fault(f"{tenant} asked {method} for another tenant's {own}: {status}")
        status, said = await self._call(tenant, "GET", "/v1/sessions?limit=500", None)
        if status == FINE and own in [one["session_id"] for one in said["data"]]:
            self.truth.fault(f"{tenant} is shown another tenant's {own}")

    async def drain(self, worker: str, draining: bool) -> None:
        """The operator takes a worker out, or in again."""
        path = f"/v1/workers/{worker}/{'drain' if draining else 'undrain'}"
        status, _ = await self._call("", "POST", path, None)
        self.truth.count(f"drain {status}")

    async def held(self, worker: str) -> dict[str, tuple[int, int]] | None:
        """Markers and generation of each session that a worker has open; None where it does not answer."""
        said = await self.asked(worker, "/v1/sessions")
        if said is None:
            return None
        return {
            f"{one['tenant']}/{one['session_id']}": (int(one["markers"]), int(one["generation"]))
            for one in said["data"]
        }

    async def asked(self, worker: str, path: str) -> dict[str, Any] | None:
        """What a worker tells its operator; None where it does not answer."""
        url = f"http://{HOST}:{self.plant.worker(worker).port}{path}"
        gate = self.plant.gates[int(worker.removeprefix("w"))]
        bearer = self.plant.signer.bearer(worker, f"http://{HOST}:{gate.port}")
        headers = {"authorization": f"Bearer {bearer}"}
        try:
            async with self.http.get(url, headers=headers, timeout=LIMIT) as answer:
                if answer.status == FINE:
                    return dict(await answer.json())
                self.truth.count(f"worker says {answer.status}")
        except LOST as error:
            self.truth.count(f"worker lost by {type(error).__name__}")
        return None

    async def _call(self, tenant: str, method: str, path: str, body: object) -> tuple[int, dict[str, Any]]:
        """Status and body; 0 when there was no answer."""
        try:
            async with self.http.request(
                method, self.router() + path, json=body, headers=_key(tenant), timeout=LIMIT
            ) as answer:
                said = json.loads(await answer.read() or b"{}")
                return answer.status, said if isinstance(said, dict) else {}
        except LOST:
            self.truth.count(f"{method} lost")
            return 0, {}


def _key(tenant: str) -> dict[str, str]:
    """The header that says who asks; "" is the operator."""
    return {"authorization": f"Bearer {TENANTS[tenant] if tenant else OPERATORS_KEY}"}


def _headers(tenant: str, own: str, turn: Turn) -> dict[str, str]:
    """What a turn says beside its body."""
    said = {GENERATION: str(turn.fence or ""), PARENT: turn.parent, WORKER: turn.pinned}
    return _key(tenant) | {SESSION: own} | {name: value for name, value in said.items() if value}


def _served(answer: aiohttp.ClientResponse, whole: bool) -> Served:
    said = answer.headers
    return Served(
        answer.status,
        whole,
        said.get(STATE, "?"),
        said.get(WHY, ""),
        said.get(WORKER, ""),
        int(said.get(GENERATION, "0")),
        int(said.get(CACHED, "0")),
    )


def _prompt(session: str, turns: int) -> list[int]:
    """The words of a session so far: each turn says what the one before it did, and more."""
    beginning = int(session[1:]) * 37 + turns // TURNS * 101 + ord(session[0]) * 7
    return [(beginning + place * 3) % 1000 + 10 for place in range(TURN_TOKENS * (turns % TURNS + 1))]


async def _read(answer: aiohttp.ClientResponse, cut_after: int) -> bool:
    """Whether the stream came whole."""
    said = bytearray()
    async for piece in answer.content.iter_any():
        said += piece
        if cut_after and len(said) >= cut_after:
            answer.close()
            return False
    return said.endswith(b"data: [DONE]\n\n")
