"""Spans of a router: one trace from the client to the worker, the parts that tell something, and errors."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import Tenants, load_tenants
from agentcache.router.tracing import SpanTracing
from agentcache.worker.app import create_app
from agentcache.worker.link import RouterLink
from agentcache.worker.link_standing import Pace
from agentcache.worker.tagged import TagGate
from agentcache.worker.tracing import SpanTracing as WorkerTracing
from tests.routing import (
    SIGNER,
    Call,
    Routed,
    Script,
    Upstream,
    begin_stream,
    card,
    now_ms,
    plain_answer,
    routing,
    serving,
    streamed,
)
from tests.serving import own_worker, save_tiny_checkpoint
from tests.spans import CLIENT, TRACE, TRACEPARENT, Spans, failed, ids, said

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]
COMPLETIONS = "POST /v1/completions"
SECRET_WORDS = "what nobody but the model is to read"


@asynccontextmanager
async def traced(
    *scripts: Script, tenants: Tenants | None = None, settings: RouterSettings | None = None
) -> AsyncIterator[tuple[Routed, list[Upstream], Spans]]:
    """A router that tells spans, with one registered worker for each script."""
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(Upstream(script).serving()) for script in scripts]
        spans = Spans()
        tracing = SpanTracing(spans.tracer)
        routed = await stack.enter_async_context(routing(settings, tenants, tracing=tracing))
        for number, worker in enumerate(workers, start=1):
            await routed.register(f"w{number}", worker.url)
        yield routed, workers, spans


async def test_client_router_and_worker_are_one_trace(tmp_path: Path) -> None:
    there, asked = Spans(), {"prompt": SECRET_WORDS, "model": "tiny", "max_tokens": 3, "ignore_eos": True}
    async with own_worker(save_tiny_checkpoint(tmp_path / "tiny")) as worker, traced() as (routed, _, here):
        worker.gate = gate = TagGate(SIGNER, "w1", now_ms)
        async with serving(create_app(worker, WorkerTracing(there.tracer))) as url:
            gate._bearer = SIGNER.bearer("w1", url).encode()
            link = RouterLink(routed.store, card("w1", url), worker.thread, worker.clock, Pace(0.1))
            await link.start()
            try:
                await routed.look()
                answer = await routed.post(
                    body=asked, traceparent=TRACEPARENT, x_session_id="agent", authorization="Bearer sk-1"
                )
            finally:
                await link.stop()
        assert answer.status_code == 200, answer.text
    request, call, served = here.one(COMPLETIONS), here.one("POST"), there.one(COMPLETIONS)
    assert ids(request)[:2] == (TRACE, CLIENT)
    assert ids(call)[:2] == (TRACE, ids(request)[2])
    assert ids(served)[:2] == (TRACE, ids(call)[2])
    assert {ids(span)[0] for span in (*here.all, *there.all)} == {TRACE}
    for span in (request, served):
        told = said(span)
        assert told["gen_ai.conversation.id"] == "agent"
        assert told["agentcache.tenant"] == "default"
        assert told["gen_ai.usage.input_tokens"] == answer.json()["usage"]["prompt_tokens"]
        assert told["gen_ai.operation.name"] == "text_completion"
        assert told["http.response.status_code"] == 200
        assert failed(span) == ""
    assert said(request)["gen_ai.request.model"] == "tiny"
    for kept_back in (SECRET_WORDS, "sk-1", "Bearer"):
        assert kept_back not in here.text + there.text


async def test_the_parts_of_a_request_are_its_children() -> None:
    async with traced(plain_answer) as (routed, workers, spans):
        await routed.post(traceparent=TRACEPARENT, x_session_id="s")
        heard = workers[0].heard[0].headers["traceparent"]
        await routed.settled()
    request, place = spans.one(COMPLETIONS), spans.one("agentcache.place")
    tag, call = spans.one("agentcache.store tag"), spans.one("POST")
    assert {ids(span)[1] for span in (place, tag, call)} == {ids(request)[2]}
    assert heard == f"00-{TRACE}-{ids(call)[2]}-01"
    assert said(place) == {"agentcache.worker": "w1", "agentcache.placed": "only worker"}
    assert said(call)["http.response.status_code"] == 200
    assert said(request)["agentcache.session.state"] == "open"
    assert said(request)["agentcache.attempts"] == 1


async def test_a_stream_is_told_to_its_end() -> None:
    async with traced(streamed) as (routed, _, spans):
        answer = await routed.post(body={"prompt": "hi", "stream": True, "max_tokens": 5})
        told = said(spans.one(COMPLETIONS))
    assert told["agentcache.answer_bytes"] == len(answer.content)
    assert told["gen_ai.request.stream"] is True
    assert told["gen_ai.request.max_tokens"] == 5
    assert told["agentcache.end"] == "complete"


async def test_each_attempt_has_its_own_place_and_its_own_call() -> None:
    async def gone(call: Call) -> None:
        call.writer.close()

    async with traced(gone, gone, plain_answer) as (routed, _, spans):
        answer = await routed.post()
        assert answer.status_code == 200, answer.text
    calls = spans.named("POST")
    assert (
        len(calls)
        == len(spans.named("agentcache.place"))
        == said(spans.one(COMPLETIONS))["agentcache.attempts"]
    )
    assert [failed(call) for call in calls] == ["broken"] * (len(calls) - 1) + [""]


async def test_what_was_refused_says_why_and_what_failed_is_an_error() -> None:
    async with traced() as (routed, _, spans):
        assert (await routed.post(body={"prompt": "hi", "model": 7})).status_code == 503
        await routed.http.post("/v1/completions", content=b"{ no json " + SECRET_WORDS.encode())
    failure, refusal = spans.named(COMPLETIONS)
    assert failed(failure) == said(failure)["error.type"] == "no_worker"
    assert said(failure)["http.response.status_code"] == 503
    assert failed(spans.one("agentcache.place")) == "no_worker"
    assert said(refusal)["error.type"] == "bad_request"
    assert failed(refusal) == ""
    assert SECRET_WORDS not in spans.text


async def test_an_answer_that_breaks_off_is_an_error() -> None:
    async def breaking(call: Call) -> None:
        await begin_stream(call)
        await call.chunk(b"data: {}\n\n")
        call.writer.close()

    async with traced(breaking) as (routed, _, spans):
        with pytest.raises(httpx2.RemoteProtocolError):
            await routed.post(body={"prompt": "hi", "stream": True})
        assert failed(spans.one(COMPLETIONS)) == "broke_off"


async def test_a_key_that_is_none_is_told_without_it() -> None:
    tenants = load_tenants("", "acme=sk-right-key-of-some-length")
    async with traced(plain_answer, tenants=tenants) as (routed, _, spans):
        assert (await routed.post(authorization="Bearer sk-wrong-key")).status_code == 401
        assert (await routed.post(authorization="Bearer sk-right-key-of-some-length")).status_code == 200
    assert [said(span).get("agentcache.tenant") for span in spans.named(COMPLETIONS)] == [None, "acme"]
    assert "sk-" not in spans.text


async def test_only_requests_that_generate_are_told() -> None:
    async with traced(plain_answer) as (routed, _, spans):
        await routed.http.get("/v1/models")
        await routed.http.get("/health")
        await routed.post("/v1/messages/count_tokens", {"messages": []})
        await routed.look()
    assert spans.all == []


async def test_a_store_that_is_down_is_a_part_that_failed() -> None:
    async with traced(plain_answer) as (routed, _, spans):
        routed.store.down = True
        assert (await routed.post(x_session_id="s")).status_code == 200
    assert failed(spans.one("agentcache.store tag")) == "store_failed"
    assert failed(spans.one(COMPLETIONS)) == ""


async def test_without_spans_a_clients_trace_passes_through() -> None:
    """Ours or not: whoever serves the request can go on with it."""
    fields: dict[str, Any] = {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}
    async with Upstream(plain_answer).serving() as worker, routing() as routed:
        await routed.register("w1", worker.url)
        await routed.post(**fields)
        heard = worker.heard[0].headers
    assert (heard["traceparent"], heard["tracestate"]) == (TRACEPARENT, "vendor=1")
