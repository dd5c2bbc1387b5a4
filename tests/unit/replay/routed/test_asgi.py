"""Applications asked without sockets answer, stream, fail and hear of a client that leaves as behind a server."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Receive, Scope, Send

from agentcache.replay.routed.asgi import Exchange, InProcess
from agentcache.router.upstream import Failure, NoAnswer

pytestmark = pytest.mark.asyncio
App = Callable[[Scope, Receive, Send], Awaitable[None]]
URL = "http://w1"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Says the target, then the body."""
    body = (await receive())["body"]
    target = f"{scope['method']} {scope['path']}?{scope['query_string'].decode()}"
    headers = [(b"X-Said", target.encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": body[:2], "more_body": True})
    await send({"type": "http.response.body", "body": body[2:]})


async def breaks(_scope: Scope, _receive: Receive, _send: Send) -> None:
    raise ValueError("no answer")


async def test_an_answer_comes_with_status_headers_and_body() -> None:
    answer = await InProcess({URL: echo}).send("PUT", f"{URL}/a%20b?c=1", [], b"hello")
    assert not isinstance(answer, NoAnswer)
    assert (answer.status, answer.header("x-said")) == (201, "PUT /a b?c=1")
    assert answer.headers == [(b"X-Said", b"PUT /a b?c=1")]
    assert await answer.whole() == b"hello"
    answer.close()


async def test_small_exchanges_work_as_over_http() -> None:
    reply = await InProcess({URL: echo}).post(f"{URL}/x", b"{}", {"authorization": "Bearer b"}, 1.0)
    assert (reply.status, reply.body) == (201, b"{}")


@pytest.mark.parametrize(("url", "failure"), [("http://w2/x", Failure.UNSENT), (f"{URL}/x", Failure.BROKEN)])
async def test_nobody_and_one_that_breaks_give_no_answer(url: str, failure: Failure) -> None:
    answer = await InProcess({URL: breaks}).send("GET", url, [])
    assert isinstance(answer, NoAnswer)
    assert answer.failure is failure


async def test_a_client_that_leaves_is_heard_of() -> None:
    heard: list[str] = []

    async def waits(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        heard.append((await receive())["type"])

    answer = await InProcess({URL: waits}).send("GET", URL, [])
    assert not isinstance(answer, NoAnswer)
    assert heard == []
    answer.close()
    assert [chunk async for chunk in answer.chunks()] == []
    assert heard == ["http.disconnect"]


async def test_chunks_come_as_they_are_sent() -> None:
    go_on = asyncio.Event()

    async def streams(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"two"})

    exchange = Exchange(streams, "GET", "/", [], b"")
    assert await exchange.begun()
    chunks = exchange.chunks()
    assert await anext(chunks) == b"one"
    go_on.set()
    assert [chunk async for chunk in chunks] == [b"two"]
