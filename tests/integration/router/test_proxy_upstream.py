"""Exchanges with an upstream over real sockets: how far each came, and what an answer may be."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from agentcache.errors import CacheError, Kind
from agentcache.router.upstream import (
    ANSWER_BYTES,
    GONE_S,
    Answer,
    Failure,
    NoAnswer,
    Upstreams,
    watched_socket,
)
from tests.misbehaving import nobody
from tests.patience import PATIENCE_S, pass_time
from tests.routing import Call, Script, Upstream, plain_answer

pytestmark = pytest.mark.asyncio
WAIT_S = 10.0


def says(data: bytes) -> Script:
    async def script(call: Call) -> None:
        await call.send(data)
        call.writer.close()

    return script


@asynccontextmanager
async def exchanged(script: Script) -> AsyncIterator[Answer | NoAnswer]:
    upstreams = Upstreams()
    try:
        async with Upstream(script).serving() as upstream:
            yield await upstreams.send("POST", f"{upstream.url}/v1/completions", [], b"{}")
    finally:
        await upstreams.close()


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        (b"", Failure.BROKEN),
        (b"HTTP/1.1 200 OK\r\ncontent-le", Failure.BROKEN),
        (b"220 ready\r\n\r\n", Failure.GARBAGE),
        (b"\x16\x03\x01\x02\x00" * 20, Failure.GARBAGE),
        (b"HTTP/1.1 abc OK\r\n\r\n", Failure.GARBAGE),
        (b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n", Failure.GARBAGE),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", Failure.GARBAGE),
    ],
)
async def test_what_is_no_answer_is_a_value_that_says_how_far_it_came(data: bytes, failure: Failure) -> None:
    async with exchanged(says(data)) as answer:
        assert isinstance(answer, NoAnswer)
        assert answer.failure is failure
        assert answer.said


async def test_nobody_there_is_unsent_and_names_nobody_twice() -> None:
    upstreams = Upstreams()
    try:
        with nobody() as url:
            for gone in (url, "http://localhost:1", "http://[::1"):
                answer = await upstreams.send("POST", gone, [], b"{}")
                assert isinstance(answer, NoAnswer)
                assert answer.failure in (Failure.UNSENT, Failure.GARBAGE)
                assert answer.error("w1").kind is Kind.UPSTREAM_FAILED
    finally:
        await upstreams.close()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
)
async def test_an_answer_that_breaks_off_is_told_as_one(data: bytes) -> None:
    async with exchanged(says(data)) as answer:
        assert isinstance(answer, Answer)
        with pytest.raises(CacheError) as caught:
            await answer.whole()
        assert caught.value.kind is Kind.UPSTREAM_FAILED
        answer.close()


async def test_an_answer_whose_client_is_closed_breaks_off() -> None:
    """As where a router leaves while it reads."""

    async def begins(call: Call) -> None:
        await call.head(200, {"content-length": "9"})
        await call.send(b"so far")
        await call.gone.wait()

    upstreams = Upstreams()
    async with Upstream(begins).serving() as upstream:
        answer = await upstreams.send("POST", f"{upstream.url}/v1/completions", [], b"{}")
        assert isinstance(answer, Answer)
        chunks = answer.chunks()
        assert await anext(chunks) == b"so far"
        await upstreams.close()
        with pytest.raises(CacheError, match="broke off") as broken:
            await asyncio.wait_for(anext(chunks), PATIENCE_S)
        answer.close()
    assert broken.value.kind is Kind.UPSTREAM_FAILED


async def test_a_host_that_vanishes_is_noticed_by_its_connection() -> None:
    """Without probes a quiet connection to it would stay for ever."""
    made: list[tuple[int, int, int]] = []

    def making(address: aiohttp.AddrInfoType) -> socket.socket:
        watched = watched_socket(address)
        options = (
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            (tcp, socket.TCP_KEEPIDLE),
            (tcp, socket.TCP_USER_TIMEOUT),
        )
        probed, after_s, limit_ms = (watched.getsockopt(*option) for option in options)
        made.append((probed, after_s, limit_ms))
        return watched

    tcp, upstreams = socket.IPPROTO_TCP, Upstreams(make_socket=making)
    try:
        async with Upstream().serving() as upstream:
            answer = await upstreams.send("POST", f"{upstream.url}/v1/completions", [], b"{}")
            assert isinstance(answer, Answer)
            assert await answer.whole()
    finally:
        await upstreams.close()
    ((probed, after_s, limit_ms),) = made
    assert (probed, limit_ms) == (1, GONE_S * 1000)
    assert 0 < after_s < GONE_S


async def test_small_exchanges_have_a_time_and_a_size() -> None:
    async def slow(call: Call) -> None:
        pass_time(WAIT_S)
        await call.gone.wait()

    async def huge(call: Call) -> None:
        await call.whole(200, b"x" * (ANSWER_BYTES + 1))

    upstreams = Upstreams()
    try:
        async with Upstream(slow).serving() as upstream:
            with pytest.raises(CacheError, match="within 10 s"):
                await upstreams.post(upstream.url, b"{}", {}, WAIT_S)
            async with asyncio.timeout(PATIENCE_S):
                await upstream.heard[0].gone.wait()
        async with Upstream(huge).serving() as upstream:
            with pytest.raises(CacheError, match="has over"):
                await upstreams.get(f"{upstream.url}/big", {}, WAIT_S)
    finally:
        await upstreams.close()


async def test_a_small_exchange_says_json_and_what_it_is_told_to() -> None:
    upstreams = Upstreams()
    try:
        async with Upstream(plain_answer).serving() as upstream:
            reply = await upstreams.post(f"{upstream.url}/x", b"{}", {"authorization": "Bearer k"}, WAIT_S)
            headers = upstream.heard[0].headers
    finally:
        await upstreams.close()
    assert (reply.status, reply.body) == (200, b'{"choices": [{"text": "hi"}]}')
    assert (headers["content-type"], headers["authorization"]) == ("application/json", "Bearer k")
    assert "user-agent" not in headers


async def test_a_connection_is_used_again() -> None:
    upstreams, ports = Upstreams(), set()

    async def noting(call: Call) -> None:
        ports.add(call.writer.get_extra_info("peername"))
        await plain_answer(call)

    try:
        async with Upstream(noting).serving() as upstream:
            for _ in range(3):
                await upstreams.post(f"{upstream.url}/x", b"{}", {}, WAIT_S)
    finally:
        await upstreams.close()
    assert len(ports) == 1
