"""Learned tool waits end to end."""

import hashlib

import pytest

from agentcache import wire
from agentcache.records import Paused
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import Tenant, Tenants
from agentcache.router.tool_waits import ENOUGH
from agentcache.store.api import SessionRef
from tests.patience import PATIENCE_S
from tests.recorded_answers import OPENAI_CHAT_WHOLE
from tests.routing import (
    SIGNER,
    Call,
    Upstream,
    begin_stream,
    routed_to,
    routing,
)
from tests.toolwaits import QUIET, TOOL_S, Agent, Claude, Codex, MakeAgent, StreamingAgent, setting

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]


@pytest.mark.parametrize("agent", [Agent, StreamingAgent, Claude, Codex])
async def test_a_worker_hears_how_long_its_session_will_wait(agent: MakeAgent) -> None:
    async with setting() as at:
        asking = agent(at)
        await asking.turns(ENOUGH)
        assert await at.paused() is None
        await asking.turn()
        assert await at.foresees("s")
        assert TOOL_S <= await at.hint_s() < TOOL_S + PATIENCE_S
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
