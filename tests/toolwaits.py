"""A world for learned tool waits: agents, the router on a clock that the test moves, a worker that keeps account."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from math import isclose
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcache.config import Settings
from agentcache.engine.build import build_engine, load_tokenizer_for
from agentcache.engine.thread import EngineThread
from agentcache.ids import scoped
from agentcache.records import Paused
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import Tenants
from agentcache.types import SessionId
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.link import RouterLink
from agentcache.worker.link_standing import Pace
from agentcache.worker.serve import make_worker
from agentcache.worker.tagged import TagGate
from tests.accounting import SIZES
from tests.routing import (
    PATIENT,
    SIGNER,
    Routed,
    card,
    now_ms,
    routing,
    serving,
)
from tests.serving import nothing_left

Json = dict[str, Any]
CALLED = 'I look.\n<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'
PARAMETERS: Json = {"type": "object", "properties": {}}
TOOL_S = 20.0
QUIET = PATIENT.model_copy(update={"learn_waits": False})


class Meddling:
    """A worker's application; what it hears of pauses is kept, and answered with `status` where that is set."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.pauses = 0
        self.status = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope.get("path", "").endswith("/pause"):
            await self._app(scope, receive, send)
            return
        self.pauses += 1

        async def sending(message: Message) -> None:
            if self.status and message["type"] == "http.response.start":
                message = {**message, "status": self.status}
            await send(message)

        await self._app(scope, receive, sending)


class Setting:
    """A router with one worker."""

    def __init__(self, routed: Routed, worker: Worker, meddling: Meddling) -> None:
        self.routed = routed
        self.worker = worker
        self.meddling = meddling

    async def paused(self, session: str = "s", tenant: str = "default") -> Paused | None:
        """What the worker takes a session to wait for, after all that was on its way has come."""
        await self.routed.settled()
        named = scoped(tenant, SessionId(session))
        view = await self.worker.thread.call(lambda engine: engine.cache.session(named))
        return view.paused

    async def foresees(self, session: str, tenant: str = "default") -> bool:
        """Whether the worker was told how long `bash` takes, by the router."""
        paused = await self.paused(session, tenant) or Paused("")
        return isclose(paused.expected_s, TOOL_S) and paused == Paused(
            "bash", paused.expected_s, learned=True
        )

    async def hint_s(self, session: str = "s") -> float:
        """The return that the worker's order of eviction goes by, in seconds after the end of the turn."""
        named = scoped("default", SessionId(session))
        wait = await self.worker.thread.call(lambda engine: engine.cache._sessions.wait(named))
        return (wait.hint_ns or 0) / 1e9

    def wait(self, seconds: float) -> None:
        self.routed.clock.advance(round(seconds * 1e9))

    async def metric(self, line: str) -> float:
        text = (await self.routed.http.get("/metrics")).text
        found = [said for said in text.splitlines() if said.startswith(f"agentcache_router_{line} ")]
        return float(found[0].split()[-1])


@asynccontextmanager
async def setting(
    settings: RouterSettings | None = None,
    tenants: Tenants | None = None,
    sizes: Mapping[str, object] = SIZES,
) -> AsyncIterator[Setting]:
    """`sizes`: settings of the worker."""
    chosen = Settings.model_validate({"engine": "accounting", **sizes})
    thread = EngineThread(lambda: build_engine(chosen))
    worker = make_worker(thread, thread.start().info, load_tokenizer_for(chosen), chosen)
    try:
        async with routing(settings or PATIENT, tenants) as routed:
            worker.gate = gate = TagGate(SIGNER, "w1", now_ms)
            meddling = Meddling(create_app(worker))
            async with serving(meddling) as url:
                gate._bearer = SIGNER.bearer("w1", url).encode()
                link = RouterLink(routed.store, card("w1", url), worker.thread, worker.clock, Pace(0.1))
                await link.start()
                await routed.look()
                yield Setting(routed, worker, meddling)
                await routed.settled()
                await link.stop()
        await worker.thread.call(nothing_left)
    finally:
        await worker.thread.stop(0)


class Agent:
    """Speaks one API: asks, is told to call `bash`, and comes back with what that gave."""

    path = "/v1/chat/completions"
    history = "messages"
    stream = False

    def __init__(self, at: Setting, session: str = "s", **headers: str) -> None:
        self._at = at
        self._headers = {"x_agentcache_session": session, **headers}
        self._said: list[Json] = [{"role": "user", "content": "hi"}]

    async def turn(self, output: str = CALLED, **headers: str) -> None:
        """One turn, answered with `output`."""
        body = {self.history: self._said, **self.options(), "agentcache": {"output": output}}
        answer = await self._at.routed.post(
            self.path, {**body, "stream": self.stream}, **self._headers, **headers
        )
        assert answer.status_code == 200, answer.text
        if "bash" in output:
            self._said += self.followed(self._whole(answer.text))

    async def turns(self, count: int, tool_s: float = TOOL_S, **headers: str) -> None:
        """So many turns, after each of which the tool takes so long."""
        for _ in range(count):
            await self.turn(**headers)
            self._at.wait(tool_s)

    def options(self) -> Json:
        function = {"name": "bash", "parameters": PARAMETERS}
        return {"model": "tiny", "tools": [{"type": "function", "function": function}]}

    def followed(self, answer: Json) -> list[Json]:
        """The answer and its results, as the history has them."""
        message = answer["choices"][0]["message"]
        [call] = message["tool_calls"]
        return [message, {"role": "tool", "tool_call_id": call["id"], "content": "a.py"}]

    def _whole(self, text: str) -> Json:
        whole: Json = self.joined(_events(text)) if self.stream else json.loads(text)
        return whole

    def joined(self, events: list[Json]) -> Json:
        """A whole answer with the calls of a streamed one."""
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        return {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": calls}}]}


class StreamingAgent(Agent):
    """Chat completions, streamed."""

    stream = True


class Claude(Agent):
    """Anthropic's Messages API, streamed."""

    path = "/v1/messages"
    stream = True

    def options(self) -> Json:
        tool = {"name": "bash", "input_schema": PARAMETERS}
        return {"model": "tiny", "max_tokens": 50, "tools": [tool]}

    def joined(self, events: list[Json]) -> Json:
        blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
        return {"content": [block for block in blocks if block["type"] == "tool_use"]}

    def followed(self, answer: Json) -> list[Json]:
        [call] = answer["content"]
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "a.py"}
        return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


class Codex(Agent):
    """OpenAI's Responses API, streamed."""

    path = "/v1/responses"
    history = "input"
    stream = True

    def options(self) -> Json:
        return {"model": "tiny", "tools": [{"type": "function", "name": "bash", "parameters": PARAMETERS}]}

    def joined(self, events: list[Json]) -> Json:
        return dict(events[-1]["response"])

    def followed(self, answer: Json) -> list[Json]:
        [call] = [item for item in answer["output"] if item["type"] == "function_call"]
        return [call, {"type": "function_call_output", "call_id": call["call_id"], "output": "a.py"}]


def _events(text: str) -> list[Json]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


MakeAgent = Callable[[Setting], Agent]
