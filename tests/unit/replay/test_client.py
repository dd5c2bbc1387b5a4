"""The client's edges that a healthy worker does not show: a full queue, odd answers, nobody there, a cut stream.

The server here plays no worker: it answers what a test tells it to. Real workers are in tests/replay.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agentcache.clock import SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.replay.client import BUSY_RETRIES, Ask, WorkerClient, worker_client
from agentcache.replay.outcome import Answer, Refused
from agentcache.replay.passes import require_reuse

pytestmark = pytest.mark.asyncio
ASK = Ask([{"role": "user", "content": "hello"}], 4, "s-1")
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}


class Scripted:
    """Answers each request with the next of `answers` (status, headers, body) and keeps what was asked."""

    def __init__(self, answers: Sequence[tuple[int, dict[str, str], bytes]]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.paused: list[float] = []

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.path, dict(request.headers), await request.read()))
        status, headers, body = self.answers.pop(0)
        return web.Response(status=status, headers=headers, body=body)


@asynccontextmanager
async def serving(script: Scripted) -> AsyncIterator[WorkerClient]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.handle)

    async def pause(seconds: float) -> None:
        script.paused.append(seconds)

    async with (
        TestServer(app) as server,
        worker_client(f"{server.make_url('/')}v1/", SystemClock(), pause) as client,
    ):
        yield client


def sse(*chunks: dict[str, Any]) -> bytes:
    return (
        b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"
    )


def error(code: str, message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "t", "param": None, "code": code}}).encode()


async def test_a_turn_says_its_session_and_asks_for_usage() -> None:
    script = Scripted([(200, {}, sse({"choices": [{"delta": {"content": "hi"}}]}, USAGE))])
    async with serving(script) as client:
        outcome = await client.ask(ASK)
    assert isinstance(outcome, Answer)
    assert (outcome.text, outcome.prompt_tokens) == ("hi", 3)
    method, path, headers, body = script.asked[0]
    assert (method, path, headers["x-agentcache-session"]) == ("POST", "/v1/chat/completions", "s-1")
    assert "x-agentcache-reuse" not in headers
    sent = json.loads(body)
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}
    assert "agentcache" not in sent


async def test_a_cold_turn_has_no_session_and_a_digest_is_asked_for() -> None:
    script = Scripted([(200, {}, sse(USAGE))])
    async with serving(script) as client:
        await client.ask(Ask(ASK.prompt, 4, reuse=False, digest=True))
    _, _, headers, body = script.asked[0]
    assert headers["x-agentcache-reuse"] == "0"
    assert "x-agentcache-session" not in headers
    assert json.loads(body)["agentcache"] == {"logits_digest": True}
    assert json.loads(body)["return_token_ids"] is True


async def test_a_full_queue_is_waited_out_as_the_worker_says() -> None:
    busy = [(429, {"retry-after": said}, error("queue_full", "later")) for said in ("7", "soon")]
    script = Scripted([*busy, (200, {}, sse(USAGE))])
    async with serving(script) as client:
        assert isinstance(await client.ask(ASK), Answer)
    assert script.paused == [7.0, 1.0]
    assert len(script.asked) == 3


async def test_a_queue_that_stays_full_is_given_up() -> None:
    script = Scripted([(429, {}, error("queue_full", "later"))] * BUSY_RETRIES)
    async with serving(script) as client:
        outcome = await client.ask(ASK)
    assert outcome == Refused(429, "queue_full", "later")
    assert not script.answers


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (
            400,
            error("context_length_exceeded", "too long"),
            Refused(400, "context_length_exceeded", "too long"),
        ),
        (400, error("over_pool", "too big"), Refused(400, "over_pool", "too big")),
        (500, b"<html>oops</html>", Refused(500, "500", "<html>oops</html>")),
        (502, b"", Refused(502, "502", "no message")),
        (404, b'{"error": "text"}', Refused(404, "404", '{"error": "text"}')),
    ],
)
async def test_a_refusal_is_an_outcome(status: int, body: bytes, expected: Refused) -> None:
    async with serving(Scripted([(status, {}, body)])) as client:
        outcome = await client.ask(ASK)
    assert outcome == expected
    assert isinstance(outcome, Refused)
    assert outcome.skipped is (status == 400)


@pytest.mark.parametrize("body", [b"{}", b'{"data": []}', b"[]", b"{broken", b"hello"])
async def test_something_that_is_no_openai_server(body: bytes) -> None:
    async with serving(Scripted([(200, {}, body)])) as client:
        with pytest.raises(CacheError, match="agentcache serve") as caught:
            await client.connect()
    assert caught.value.kind is Kind.UNREACHABLE


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://", "not a url", "http://[::1"])
async def test_nobody_there(url: str) -> None:
    async with worker_client(url, SystemClock()) as client:
        assert await client.is_ready() is False
        with pytest.raises(CacheError, match="--url") as caught:
            await client.connect()
    assert caught.value.kind is Kind.UNREACHABLE


async def test_a_connection_that_dies_in_the_stream() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"delta": {"content": "h"}}]}\n\n')
        assert request.transport is not None
        request.transport.abort()
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", cut)
    async with TestServer(app) as server, worker_client(str(server.make_url("/")), SystemClock()) as client:
        with pytest.raises(CacheError) as caught:
            await client.ask(ASK)
    assert caught.value.kind is Kind.UNREACHABLE


async def test_closing_a_session_that_the_worker_never_saw_is_no_fault() -> None:
    script = Scripted([(404, {}, error("session_unknown", "who?")), (500, {}, error("internal", "oops"))])
    async with serving(script) as client:
        await client.close_session("s-1")
        with pytest.raises(CacheError, match="DELETE /v1/sessions/s-1 answered 500"):
            await client.close_session("s-1")


async def test_a_model_that_keeps_every_bit_is_fit_for_the_demo() -> None:
    listed = {"data": [{"id": "m", "agentcache": {"reuse": "reusable"}}]}
    async with serving(Scripted([(200, {}, json.dumps(listed).encode())])) as client:
        assert await client.connect() == "m"
        require_reuse(client)


@pytest.mark.parametrize("reuse", ["not-reusable", "token-by-token"])
async def test_a_model_that_does_not_is_refused_with_the_worker_s_reason(reuse: str) -> None:
    listed = {"data": [{"id": "m", "agentcache": {"reuse": reuse, "reason": "its state hides"}}]}
    async with serving(Scripted([(200, {}, json.dumps(listed).encode())])) as client:
        await client.connect()
        with pytest.raises(CacheError, match="m does not keep every bit: its state hides") as caught:
            require_reuse(client)
    assert caught.value.kind is Kind.UNSUPPORTED_MODEL
