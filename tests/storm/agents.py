"""Agents of the fault machine: turns, closes and opens over HTTP through whichever router they meet."""

import json
import random
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from agentcache.wire import GENERATION, SESSION, STATE, WORKER
from tests.storm.plant import Plant
from tests.storm.truth import Close, Life, Truth

TURN_TOKENS = 40
FINE = 200
FIRM = ("released", "unknown", "restarted")
LOST = (aiohttp.ClientError, TimeoutError, OSError)
LIMIT = aiohttp.ClientTimeout(total=60)


@dataclass(slots=True)
class Agents:
    """What agents do. Answers are compared with what was known when the call began; no answer is doubt, no error."""

    plant: Plant
    truth: Truth
    http: aiohttp.ClientSession
    random: random.Random

    def router(self) -> str:
        return f"http://127.0.0.1:{self.random.choice(self.plant.routers).port}"

    async def turn(self, session: str, cut_after: int = 0, fence: int = 0) -> None:
        """One turn with the session's whole history; `cut_after`: leave after so many bytes of the answer."""
        known = self.truth.of(session)
        number = sum(session.encode())
        prompt = [(number * 31 + place) % 1000 + 10 for place in range(TURN_TOKENS * (known.turns + 1))]
        body = {"prompt": prompt, "max_tokens": 24, "stream": True, "ignore_eos": True}
        headers = {SESSION: session} | ({GENERATION: str(fence)} if fence else {})
        starts = {unit.name: unit.starts for unit in self.plant.workers}
        losses, closed_through = self.truth.losses, self.truth.closed_through(session)
        try:
            url = f"{self.router()}/v1/completions"
            async with self.http.post(url, json=body, headers=headers, timeout=LIMIT) as answer:
                whole = await _read(answer, cut_after)
        except LOST:
            known.doubt = True
            self.truth.count("turn lost")
            return
        if answer.status != FINE or not whole:
            self.truth.count(f"turn {answer.status}")
            return
        self.truth.count(f"turn {answer.headers.get(STATE, '?')}")
        worker, generation = answer.headers.get(WORKER, ""), int(answer.headers.get(GENERATION, "0"))
        if answer.headers.get(STATE) in ("open", "expired"):
            if generation <= closed_through:
                self.truth.fault(
                    f"{session}: served as open under {generation}, closed through {closed_through}"
                )
            life = Life(worker, starts.get(worker, 0), losses)
            known.ended_well(life, generation)

    async def open(self, session: str, parent: str = "", fence: bool = False) -> None:
        """An explicit open; a generation never comes twice."""
        known = self.truth.of(session)
        closed_through = self.truth.closed_through(session)
        body: dict[str, Any] = {"session_id": session, "fence": fence}
        if parent:
            body["parent_session_id"] = parent
        status, said = await self._call("POST", "/v1/sessions", body)
        if status in (FINE, 201):
            generation = int(said["generation"])
            if generation <= closed_through:
                self.truth.fault(f"{session}: opened under {generation}, closed through {closed_through}")
            known.last_generation = max(known.last_generation, generation)
            if fence or said["created"]:
                known.registered = None

    async def close(self, session: str, fence: int = 0) -> None:
        """A close; what it says is taken at its word."""
        known = self.truth.of(session)
        query = f"?generation={fence}" if fence else ""
        losses, backs = self.truth.losses, self.truth.backs
        status, said = await self._call("DELETE", f"/v1/sessions/{session}{query}", None)
        self.truth.count(f"close {status}")
        if status == FINE:
            for one in (said, *said.get("children", ())):
                firm = all(worker["outcome"] in FIRM for worker in one["workers"])
                through = int(one["generation"])
                reached = through <= (time.time_ns() // 1000 + int(self.plant.skew.value) * 1000)
                close = Close(through, firm and reached, losses, backs)
                self.truth.of(one["session_id"]).closed(close)
        elif status not in (404, 409):
            known.registered = None

    async def look(self, session: str) -> None:
        closed_through = self.truth.closed_through(session)
        status, said = await self._call("GET", f"/v1/sessions/{session}", None)
        if status == FINE and said["state"] == "open" and int(said["generation"]) <= closed_through:
            self.truth.fault(f"{session}: shown as open under a closed generation")

    async def _call(self, method: str, path: str, body: object) -> tuple[int, dict[str, Any]]:
        """Status and body; 0 when there was no answer."""
        try:
            async with self.http.request(method, self.router() + path, json=body, timeout=LIMIT) as answer:
                said = json.loads(await answer.read() or b"{}")
                return answer.status, said if isinstance(said, dict) else {}
        except LOST:
            self.truth.count(f"{method} lost")
            return 0, {}


async def _read(answer: aiohttp.ClientResponse, cut_after: int) -> bool:
    """Whether the stream came whole."""
    said = bytearray()
    async for piece in answer.content.iter_any():
        said += piece
        if cut_after and len(said) >= cut_after:
            answer.close()
            return False
    return said.endswith(b"data: [DONE]\n\n")
