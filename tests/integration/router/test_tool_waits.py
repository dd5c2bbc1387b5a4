"""Learned tool waits end to end: agents, the router on a clock that the test moves, and a worker that keeps account."""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import isclose
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcache import wire
from agentcache.config import Settings
from agentcache.engine.build import build_engine, load_tokenizer_for
from agentcache.engine.thread import EngineThread
from agentcache.ids import scoped
from agentcache.records import Paused
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import Tenant, Tenants
from agentcache.router.tool_waits import ENOUGH
from agentcache.store.api import SessionRef
from agentcache.types import SessionId
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.link import RouterLink
from agentcache.worker.link_standing import Pace
from agentcache.worker.serve import make_worker
from agentcache.worker.tagged import TagGate
from tests.accounting import SIZES
from tests.recorded_answers import OPENAI_CHAT_WHOLE
from tests.routing import (
    SIGNER,
    Call,
    Routed,
    Upstream,
    begin_stream,
    card,
    now_ms,
    routed_to,
    routing,
    serving,
)
from tests.serving import nothing_left

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(90)]
Json = dict[str, Any]
CALLED = 'I look.\n<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'
PARAMETERS: Json = {"type": "object", "properties": {}}
TOOL_S = 20.0
QUIET = RouterSettings(refresh_s=30, sweep_s=30, learn_waits=False)


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
    settings: RouterSettings | None = None, tenants: Tenants | None = None
) -> AsyncIterator[Setting]:
    chosen = Settings.model_validate({"engine": "accounting", **SIZES})
    thread = EngineThread(lambda: build_engine(chosen))
    worker = make_worker(thread, thread.start().info, load_tokenizer_for(chosen), chosen)
    try:
        async with routing(settings, tenants) as routed:
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


@pytest.mark.parametrize("agent", [Agent, StreamingAgent, Claude, Codex])
async def test_a_worker_hears_how_long_its_session_will_wait(agent: MakeAgent) -> None:
    async with setting() as at:
        asking = agent(at)
        await asking.turns(ENOUGH)
        assert await at.paused() is None
        await asking.turn()
        assert await at.foresees("s")
        assert TOOL_S <= await at.hint_s() < TOOL_S + 10
        at.wait(TOOL_S)
        await asking.turn("That is all.")
        assert await at.paused() is None
        assert at.meddling.pauses == 1
        assert await at.metric('turn_waits_total{kind="tool"}') == ENOUGH + 1
        assert await at.metric('turn_waits_total{kind="human"}') == 1
        assert await at.metric('wait_hints_total{outcome="sent"}') == 1
        assert await at.metric("wait_hint_error_sum") == pytest.approx(0.0, abs=0.01)


async def test_what_one_session_taught_helps_the_next() -> None:
    async with setting() as at:
        first = Agent(at, "first")
        await first.turns(ENOUGH)
        await first.turn("That is all.")
        await Agent(at, "second").turn()
        assert await at.foresees("second")


async def test_short_waits_are_learned_and_not_told() -> None:
    async with setting() as at:
        await Agent(at).turns(2 * ENOUGH, tool_s=0.5)
        assert (await at.paused(), at.meddling.pauses) == (None, 0)


async def test_nothing_is_learned_where_that_is_switched_off() -> None:
    async with setting(QUIET) as at:
        await Agent(at).turns(2 * ENOUGH)
        assert (await at.paused(), at.meddling.pauses) == (None, 0)
        assert await at.metric('turn_waits_total{kind="tool"}') == 0


async def test_a_worker_that_takes_no_hint_costs_nothing_else() -> None:
    async with setting() as at:
        at.meddling.status = 500
        await Agent(at).turns(ENOUGH + 3)
        await at.routed.settled()
        assert await at.metric('wait_hints_total{outcome="failed"}') == 3


STRANGE = (
    b'data: {"name":\xff',
    b"\xfe\n\n",
    b'data: {"finish_reason":"',
    b"x" * 2**20,
    b"\n",
    b"\x00\r\r\n",
)


async def strange(call: Call) -> None:
    """What no client understands."""
    await begin_stream(call)
    for chunk in STRANGE:
        await call.chunk(chunk)
    await call.chunk(b"")


async def test_whatever_a_worker_answers_passes_as_it_came() -> None:
    async with routed_to(strange) as (routed, _):
        answer = await routed.post("/v1/chat/completions", {"messages": []}, x_session_id="s")
        assert answer.content == b"".join(STRANGE)
        metrics = (await routed.http.get("/metrics")).text
        assert 'agentcache_router_turn_waits_total{kind="unknown"} 1.0' in metrics


@pytest.mark.parametrize("kind", ["openai", "vllm", "sglang"])
async def test_servers_that_are_none_of_ours_are_not_watched(kind: str) -> None:
    async def called(call: Call) -> None:
        await call.whole(200, OPENAI_CHAT_WHOLE)

    async with Upstream(called).serving() as server:
        plain = RouterSettings(refresh_s=30, sweep_s=30, upstream=(f"{kind}={server.url}",))
        async with routing(plain) as routed:
            await routed.look()
            for _ in range(ENOUGH + 1):
                answer = await routed.post("/v1/chat/completions", {"messages": []}, x_session_id="s")
                assert answer.content == OPENAI_CHAT_WHOLE
                routed.clock.advance(round(TOOL_S * 1e9))
            metrics = (await routed.http.get("/metrics")).text
    assert 'turn_waits_total{kind="tool"} 0.0' in metrics


# the client's own word


async def test_a_client_that_says_when_it_is_back_is_believed() -> None:
    async with setting() as at:
        agent = Agent(at)
        await agent.turns(ENOUGH)
        await agent.turn(x_agentcache_expected_s="7")
        assert (await at.paused(), await at.hint_s()) == (None, 7.0)
        assert at.meddling.pauses == 0


async def test_a_clients_own_pause_and_resume_stand() -> None:
    async with setting() as at:
        agent = Agent(at)
        await agent.turns(ENOUGH)
        await agent.turn()
        await at.routed.settled()
        said = {"tool": "tests", "expected_s": 300}
        assert (await at.routed.http.post("/v1/sessions/s/pause", json=said)).status_code == 200
        assert await at.paused() == Paused("tests", 300.0)
        assert at.routed.router.waits._waiting[SessionRef("default", "s")].quiet
        [view] = at.routed.router.fleet.views()
        bearer = {"authorization": f"Bearer {SIGNER.bearer(view.id, view.url)}"}
        late = await at.routed.http.post(
            f"{view.url}/v1/sessions/default%2Fs/pause",
            json={"tool": "bash", "expected_s": 20, "learned": True},
            headers=bearer,
        )
        assert late.status_code == 200
        assert await at.paused() == Paused("tests", 300.0)
        assert (await at.routed.http.post("/v1/sessions/s/resume")).status_code == 200
        assert (await at.paused(), await at.hint_s()) == (None, 0.0)


# liars


async def test_a_tenant_without_the_right_is_not_heard_and_told_so() -> None:
    tenants = Tenants({_digest(b"sk-acme-0001"): Tenant("acme", hints=False)})
    async with setting(tenants=tenants) as at:
        key = {"authorization": "Bearer sk-acme-0001"}
        agent = Agent(at, authorization=key["authorization"])
        await agent.turn(x_agentcache_expected_s="0.1")
        answer = await at.routed.post(
            body={"prompt": "hi", "max_tokens": 1}, x_session_id="t", x_agentcache_expected_s="3", **key
        )
        assert (answer.status_code, answer.headers[wire.HINTS]) == (200, "ignored")
        for call, body in (("pause", {"tool": "x", "expected_s": 0.1}), ("resume", {})):
            said = await at.routed.http.post(f"/v1/sessions/s/{call}", json=body, headers=key)
            assert (said.status_code, said.headers[wire.HINTS]) == (200, "ignored")
            assert said.json()["paused"] is None
        bad = await at.routed.http.post("/v1/sessions/s/pause", json={"expected_s": -1}, headers=key)
        assert (bad.status_code, bad.json()["error"]["param"]) == (400, "expected_s")
        touched = await at.routed.http.post("/v1/sessions/s/touch", headers=key)
        assert wire.HINTS not in touched.headers
        assert (await at.paused(tenant="acme"), at.meddling.pauses) == (None, 0)


async def test_what_is_learned_counts_for_that_tenant_too() -> None:
    tenants = Tenants({_digest(b"sk-acme-0001"): Tenant("acme", hints=False)})
    async with setting(tenants=tenants) as at:
        agent = Agent(at, authorization="Bearer sk-acme-0001")
        await agent.turns(ENOUGH + 1, x_agentcache_expected_s="0.1")
        assert await at.foresees("s", tenant="acme")


@pytest.mark.parametrize("expected", ["-1", "NaN", "Infinity", "-Infinity", "1e400", '"20"', "true", "1e10"])
async def test_times_that_cannot_be_are_refused_by_name(expected: str) -> None:
    async with routing() as routed:
        await routed.http.post("/v1/sessions", json={"session_id": "s"})
        body = f'{{"expected_s": {expected}}}'.encode()
        answer = await routed.http.post("/v1/sessions/s/pause", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"
        header = await routed.post(x_session_id="s", x_agentcache_expected_s=expected)
        assert header.status_code == 400


async def test_a_year_is_six_hours() -> None:
    async with setting() as at:
        await Agent(at).turn()
        said = await at.routed.http.post("/v1/sessions/s/pause", json={"expected_s": 365 * 86_400})
        assert said.status_code == 200
        assert await at.hint_s() == 6 * 3600


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
