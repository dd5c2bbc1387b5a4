"""Spans of a worker: where the time of a turn went, and what the cache had for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.tracing import SpanTracing
from tests.patience import PATIENCE_S
from tests.serving import Call, own_worker
from tests.spans import CLIENT, TRACE, TRACEPARENT, Spans, failed, ids, lasted, said

pytestmark = pytest.mark.asyncio
PATH, NAME = "/v1/completions", "POST /v1/completions"
PARTS = ("queue", "match", "promote", "prefill", "decode")
BASE = list(range(100, 300))
TURN = {"prompt": BASE, "max_tokens": 3, "temperature": 0, "ignore_eos": True}


@asynccontextmanager
async def traced(checkpoint: Path, **changes: Any) -> AsyncIterator[tuple[Worker, httpx2.AsyncClient, Spans]]:
    spans = Spans()
    async with own_worker(checkpoint, **changes) as worker:
        transport = httpx2.ASGITransport(create_app(worker, SpanTracing(spans.tracer)))
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://worker", timeout=PATIENCE_S
        ) as client:
            yield worker, client, spans


async def test_a_turn_is_told_part_by_part(checkpoint: Path) -> None:
    async with traced(checkpoint) as (_, client, spans):
        answer = await client.post(
            PATH, json=TURN, headers={"traceparent": TRACEPARENT, "x-agentcache-session": "s"}
        )
        assert answer.status_code == 200, answer.text
    request = spans.one(NAME)
    assert ids(request)[:2] == (TRACE, CLIENT)
    parts = [spans.one(f"agentcache.{name}") for name in PARTS]
    assert {ids(part)[:2] for part in parts} == {(TRACE, ids(request)[2])}
    times = [lasted(part) for part in parts]
    assert [began for _, began in times[:-1]] == [began for began, _ in times[1:]]
    assert lasted(request)[0] <= times[0][0] <= times[-1][1] <= lasted(request)[1]
    told = said(request)
    assert told["gen_ai.conversation.id"] == "s"
    assert told["gen_ai.usage.input_tokens"] == 200
    assert told["gen_ai.usage.output_tokens"] == 3
    assert told["gen_ai.usage.cache_read.input_tokens"] == 0
    assert told["gen_ai.usage.cache_creation.input_tokens"] == 192
    assert told["gen_ai.response.finish_reasons"] == ["length"]
    assert told["gen_ai.request.max_tokens"] == 3
    matched = said(spans.one("agentcache.match"))
    assert matched["agentcache.miss.reason"] == "never_stored"
    assert matched["agentcache.boundary"] == 0


async def test_a_hit_says_from_which_tier_and_where_it_ended(checkpoint: Path) -> None:
    async with traced(checkpoint) as (_, client, spans):
        for last in (1, 2):
            await client.post(PATH, json={**TURN, "prompt": [*BASE, *[last] * 60]})
    matched = said(spans.named("agentcache.match")[1])
    assert matched["agentcache.cached.device"] == matched["agentcache.boundary"] == 128
    assert matched["agentcache.cached.host"] == matched["agentcache.cached.external"] == 0
    assert (matched["agentcache.miss.reason"], matched["agentcache.miss.component"]) == ("window_gap", "SWA")
    assert matched["agentcache.miss.token"] == 192
    computed = said(spans.named("agentcache.prefill")[1])
    assert computed["agentcache.tokens.computed"] == 260 - 128


async def test_what_came_from_the_external_store_was_waited_for(checkpoint: Path) -> None:
    async with traced(checkpoint, l3="memory", host_mib=16, prefetch="wait_complete") as (_, client, spans):
        await client.post(PATH, json=TURN)
        while (await client.get("/v1/cache")).json()["jobs_in_flight"]:
            await asyncio.sleep(0)
        await client.post("/flush_cache")
        await client.post(PATH, json=TURN)
    waited = spans.named("agentcache.l3")[-1]
    assert said(waited)["agentcache.cached.external"] == 192
    queued = lasted(spans.named("agentcache.queue")[1])
    assert queued[0] <= lasted(waited)[0] <= lasted(waited)[1] == queued[1]
    assert said(spans.named("agentcache.match")[1])["agentcache.cached.external"] == 192
    assert said(spans.named("agentcache.promote")[1])["agentcache.cached.external"] == 192


async def test_what_was_refused_has_no_parts(checkpoint: Path) -> None:
    async with traced(checkpoint) as (worker, client, spans):
        assert (await client.post(PATH, json={"prompt": [9] * 5000})).status_code == 400
        worker.draining = True
        assert (await client.post(PATH, json=TURN)).status_code == 503
    too_long, draining = spans.all
    assert said(too_long)["error.type"] == "prompt_too_long"
    assert failed(too_long) == ""
    assert failed(draining) == said(draining)["error.type"] == "shutting_down"


async def test_a_client_that_leaves_is_no_error_of_ours(checkpoint: Path) -> None:
    async with traced(checkpoint) as (worker, _, spans):
        body = {"prompt": [5] * 8, "max_tokens": 4000, "ignore_eos": True, "stream": True}
        call = Call(create_app(worker, SpanTracing(spans.tracer)), PATH, body)
        await call.until(lambda sent: len(sent) > 3)
        await call.leave()
    request = spans.one(NAME)
    assert said(request)["agentcache.end"] == "client_gone"
    assert said(request)["http.response.status_code"] == 499
    assert failed(request) == ""
    assert spans.named("agentcache.decode")
