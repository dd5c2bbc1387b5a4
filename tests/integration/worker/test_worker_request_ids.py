"""What refusals call a request: one id in the header and, where the API has a place for it, in the body."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from agentcache.wire import TagSigner
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.tagged import OPEN_GATE, TagGate
from tests.integration.worker.test_worker_accounting import started
from tests.routing import SIGNER, now_ms, routing, serving
from tests.serving import Call, client_of, nothing_left
from tests.tagging import SECRET, Tagging

pytestmark = pytest.mark.asyncio
MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", MESSAGES)
BAD: dict[str, Any] = {"messages": 3, "prompt": {}, "input": 3, "max_tokens": 2}


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Worker]:
    one = started(model="tiny-full")
    try:
        yield one
        await one.thread.call(nothing_left)
    finally:
        await one.thread.stop(0)


def request_id(answer: httpx2.Response) -> str:
    """Of a refusal. What its body says is the same, or nothing."""
    assert answer.status_code == 400, answer.text
    named = str(answer.headers["x-request-id"])
    assert answer.json().get("request_id", named) == named != ""
    return named


@pytest.mark.parametrize("route", [*GENERATING, COUNT])
async def test_a_worker_alone_gives_each_request_an_id(worker: Worker, route: str) -> None:
    async with client_of(worker) as client:
        first, second = [await client.post(route, json=BAD) for _ in range(2)]
    assert request_id(first) != request_id(second)
    assert ("request_id" in first.json()) == (route in (MESSAGES, COUNT))


@pytest.mark.parametrize("route", [*GENERATING, COUNT])
async def test_a_routers_request_keeps_its_id_at_each_attempt(worker: Worker, route: str) -> None:
    tagging = Tagging()
    worker.gate = TagGate(TagSigner(SECRET), "w1", tagging.now_ms, url=tagging.url)
    try:
        async with client_of(worker) as client:
            headers = tagging.headers("s", 7, request_id="abc.2")
            assert request_id(await client.post(route, json=BAD, headers=headers)) == "abc"
    finally:
        worker.gate = OPEN_GATE


@pytest.mark.parametrize("route", [MESSAGES, COUNT])
async def test_a_routers_client_reads_one_id(worker: Worker, route: str) -> None:
    worker.gate = TagGate(SIGNER, "w1", now_ms)
    try:
        async with routing() as routed, serving(create_app(worker)) as url:
            await routed.register("w1", url)
            answer = await routed.http.post(route, json=BAD)
            assert answer.headers["x-agentcache-worker"] == "w1"
            assert "request_id" in answer.json()
            assert request_id(answer).startswith("id")
    finally:
        worker.gate = OPEN_GATE


async def test_an_error_in_a_stream_has_the_id_of_its_headers() -> None:
    slow = started(model="tiny-full", accounting_decode_tokens_per_s=20)
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3000, "stream": True}
    call = Call(create_app(slow), MESSAGES, body)
    await call.until(lambda sent: len(sent) > 1)
    await slow.thread.stop(0)
    await call.task
    headers = dict(call.sent[0]["headers"])
    assert f'"request_id":"{headers[b"x-request-id"].decode()}"' in call.content
