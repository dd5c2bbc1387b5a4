"""The proxy through a day of its operator: a store that goes and comes back, draining, pins, the log and the counts."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from agentcache import wire
from agentcache.router.settings import RouterSettings
from agentcache.router.standing import STORE_PAUSE_NS
from agentcache.store.api import SessionRef
from tests.routing import DONE, Call, begin_stream, opened_at, plain_answer, raw_client, routed_to

pytestmark = pytest.mark.asyncio
S = SessionRef("default", "s")


async def test_without_its_store_a_router_serves_without_sessions_and_says_so() -> None:
    async with routed_to(plain_answer, plain_answer) as (routed, _):
        before = await routed.post(x_session_id="s")
        await routed.settled()
        routed.store.down = True
        during = [await routed.post(x_session_id="s") for _ in range(3)]
        strict = await routed.post(x_session_id="s", x_agentcache_strict="1")
        ready = await routed.http.get("/ready")
        routed.store.down = False
        routed.clock.advance(STORE_PAUSE_NS)
        await routed.look()
        after = await routed.post(x_session_id="s")
    home = before.headers[wire.WORKER]
    for answer in during:
        assert (answer.status_code, answer.headers[wire.STATE]) == (200, "none")
        assert answer.headers[wire.WHY] == "session store unavailable"
        assert answer.headers[wire.WORKER] == home
        assert wire.GENERATION not in answer.headers
    assert (strict.status_code, strict.json()["error"]["code"]) == (503, "store_failed")
    assert (ready.status_code, ready.json()["store"]) == (200, "down")
    assert (after.headers[wire.STATE], after.headers[wire.WORKER]) == ("open", home)
    assert after.headers[wire.GENERATION] == before.headers[wire.GENERATION]


async def test_a_router_that_is_told_to_refuses_while_its_store_is_down() -> None:
    settings = RouterSettings(without_store="refuse", refresh_s=30)
    async with routed_to(plain_answer, settings=settings) as (routed, (worker,)):
        assert (await routed.http.get("/ready")).status_code == 200
        routed.store.down = True
        refused = await routed.post(x_session_id="s")
        ready = await routed.http.get("/ready")
        alone = await routed.post()
        routed.store.down = False
        routed.clock.advance(STORE_PAUSE_NS)
        again = await routed.post(x_session_id="s")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_failed")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "store_failed")
    assert (alone.status_code, again.status_code) == (200, 200)
    assert len(worker.heard) == 2


async def test_an_open_stream_does_not_mind_that_the_store_goes_and_its_end_is_told_later() -> None:
    step = asyncio.Event()

    async def halfway(call: Call) -> None:
        await begin_stream(call)
        await step.wait()
        await call.chunk(DONE)
        await call.chunk(b"")

    async with routed_to(halfway) as (routed, _):
        async with raw_client(routed.url, "/v1/completions", {}, x_session_id="s", connection="close") as (
            reader,
            _,
        ):
            await reader.readuntil(b"\r\n\r\n")
            routed.store.down = True
            step.set()
            rest = await reader.read()
        assert DONE in rest
        routed.store.down = False
        await routed.settled()
        assert (await routed.store.look(S)).in_flight == 0


async def test_a_draining_router_takes_no_new_work() -> None:
    async with routed_to(plain_answer) as (routed, (worker,)):
        routed.router.draining = True
        answer = await routed.post()
        ready = await routed.http.get("/ready")
        health = await routed.http.get("/health")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert (ready.status_code, health.status_code) == (503, 200)
    assert worker.heard == []


async def test_a_drained_worker_hands_over_and_comes_back() -> None:
    async with routed_to(plain_answer, plain_answer) as (routed, _):
        await routed.store.assign(*await opened_at(routed, S, "w1"))
        assert (await routed.http.post("/v1/workers/w1/drain")).json() == {"worker": "w1", "draining": True}
        moved = await routed.post(x_session_id="s")
        listed = (await routed.http.get("/v1/workers")).json()["data"]
        assert (await routed.http.post("/v1/workers/w1/undrain")).status_code == 200
        unknown = await routed.http.post("/v1/workers/w9/drain")
    assert moved.headers[wire.WORKER] == "w2"
    assert moved.headers[wire.ROUTED].startswith("by moved: its worker is draining")
    assert [(one["id"], one["state"]) for one in listed] == [("w1", "draining"), ("w2", "alive")]
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "not_found")


async def test_a_router_whose_workers_all_drain_says_so() -> None:
    async with routed_to(plain_answer) as (routed, _):
        assert (await routed.http.post("/v1/workers/w1/drain")).status_code == 200
        ready = await routed.http.get("/ready")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "no_worker")
    assert ready.json()["error"]["message"].startswith("the workers that are there are draining; start one")


async def test_a_pinned_request_goes_where_it_says_and_leaves_its_session_at_home() -> None:
    """R158: a constraint of one request does not move the session."""
    async with routed_to(plain_answer, plain_answer) as (routed, (_, other)):
        await routed.store.assign(*await opened_at(routed, S, "w1"))
        pinned = await routed.post(x_session_id="s", x_agentcache_worker="w2")
        nowhere = await routed.post(x_session_id="s", x_agentcache_worker="w9")
        home = await routed.post(x_session_id="s")
    assert (pinned.headers[wire.WORKER], pinned.headers[wire.STATE]) == ("w2", "none")
    assert other.heard[0].tag("w2").session == ""
    assert nowhere.status_code == 503
    assert (home.headers[wire.WORKER], home.headers[wire.STATE]) == ("w1", "open")


async def test_a_line_and_counts_of_a_request_tell_all_but_its_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def counted(call: Call) -> None:
        told = {wire.STATE: "open", wire.WHY: "full hit", wire.CACHED: "32", wire.PROMPT: "40"}
        await call.whole(200, b"{}", told)

    async with routed_to(counted) as (routed, _):
        body = {"prompt": "the secret words", "cache_salt": "the salt"}
        await routed.post(body=body, x_session_id="s", authorization="Bearer the-key")
        text = (await routed.http.get("/metrics")).text
    said = capsys.readouterr()
    line = next(line for line in (said.out + said.err).splitlines() if "/v1/completions" in line)
    for word in (
        "session=s",
        "x-session-id",
        "worker=w1",
        "only worker",
        "cached_tokens=32",
        "prompt_tokens=40",
    ):
        assert word in line
    for secret in ("secret words", "the salt", "the-key"):
        assert secret not in said.out + said.err + text
    assert 'agentcache_router_identity_total{source="x-session-id"} 1.0' in text
    assert 'agentcache_router_placements_total{why="only worker"} 1.0' in text
    assert "agentcache_router_reused_tokens_total 32.0" in text.splitlines()
    assert 'agentcache_router_workers{state="usable"} 1.0' in text
    assert json.dumps("s") not in text


async def test_requests_that_are_passed_and_others_have_one_kind_of_line() -> None:
    async with routed_to(plain_answer) as (routed, _):
        with capture_logs() as lines:
            await routed.post(x_session_id="s")
            await routed.http.get("/v1/models")
            await routed.http.get("/health")
    passed, other, _ = (line for line in lines if line["event"] == "request")
    assert other.keys() < passed.keys()
    assert (other["method"], other["route"], other["status"]) == ("GET", "/v1/models", 200)
    assert (passed["method"], passed["route"], passed["session"]) == ("POST", "/v1/completions", "s")
    assert [line["log_level"] for line in lines if line["event"] == "request"] == ["info", "info", "debug"]


async def test_a_fault_of_our_own_is_an_answer_that_clients_can_read_and_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with routed_to(plain_answer) as (routed, _):
        with monkeypatch.context() as broken:
            broken.setattr(routed.router.chooser, "choose", None)
            answers = [await routed.post(path) for path in ("/v1/completions", "/v1/messages")]
        told = (await routed.http.get("/metrics")).text
        after = await routed.post()
    said = "internal error; the router's log has the details"
    assert [answer.status_code for answer in answers] == [500, 500]
    assert (answers[0].json()["error"]["code"], answers[0].json()["error"]["message"]) == (
        "internal_error",
        said,
    )
    told_error = {"type": "api_error", "message": said, "code": "internal_error", "param": None}
    request_id = answers[1].headers["x-request-id"]
    assert answers[1].json() == {"type": "error", "error": told_error, "request_id": request_id}
    assert 'agentcache_router_request_ends_total{reason="fault"} 2.0' in told
    assert 'agentcache_router_requests_total{route="/v1/messages",status="500"} 1.0' in told
    assert after.status_code == 200
