"""Bodies: limits, disconnects, bad JSON."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.web.body import ClientGoneError, parse_object, read_body, unless_gone

Message = MutableMapping[str, Any]


class Client:
    """Sends prepared messages, then keeps silent until it is told to leave."""

    def __init__(self, *messages: Message) -> None:
        self.left = asyncio.Event()
        self.read = 0
        self._messages = list(messages)

    async def receive(self) -> Message:
        if self._messages:
            self.read += 1
            return self._messages.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}


def part(body: bytes, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def scope(*headers: tuple[bytes, bytes]) -> Message:
    return {"type": "http", "headers": list(headers)}


@pytest.mark.asyncio
async def test_parts_are_joined() -> None:
    assert await read_body(scope(), Client(part(b"ab"), part(b"c", False)).receive, 3) == b"abc"


@pytest.mark.asyncio
async def test_a_declared_length_over_the_limit_is_refused_unread() -> None:
    client = Client(part(b"abcd", False))
    with pytest.raises(CacheError) as caught:
        await read_body(scope((b"content-length", b"4")), client.receive, 3, "router")
    assert caught.value.kind is Kind.BODY_TOO_LARGE
    assert "3 bytes; send less, or raise the router's --body-limit-bytes" in caught.value.message
    assert client.read == 0


@pytest.mark.asyncio
async def test_an_undeclared_body_is_refused_when_it_passes_the_limit() -> None:
    client = Client(part(b"ab"), part(b"cd"), part(b"never read"))
    with pytest.raises(CacheError) as caught:
        await read_body(scope(), client.receive, 3)
    assert caught.value.kind is Kind.BODY_TOO_LARGE
    assert client.read == 2


@pytest.mark.asyncio
async def test_a_client_that_leaves_while_sending_is_noticed() -> None:
    client = Client(part(b"ab"))
    client.left.set()
    with pytest.raises(ClientGoneError):
        await read_body(scope(), client.receive, 3)


@pytest.mark.asyncio
async def test_work_ends_when_the_client_leaves() -> None:
    client, begun, cancelled = Client(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    watched = asyncio.create_task(unless_gone(client.receive, work()))
    await begun.wait()
    client.left.set()
    with pytest.raises(ClientGoneError):
        await watched
    assert cancelled.is_set()


@pytest.mark.asyncio
async def test_a_client_that_left_is_not_mistaken_for_what_its_work_says_at_its_end() -> None:
    client, begun = Client(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise CacheError(Kind.QUEUE_FULL, "full") from None

    watched = asyncio.create_task(unless_gone(client.receive, work()))
    await begun.wait()
    client.left.set()
    with pytest.raises(ClientGoneError):
        await watched
    assert not watched.cancelling()


@pytest.mark.asyncio
async def test_whoever_cancels_the_work_is_not_told_that_its_client_left() -> None:
    client, begun = Client(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    watched = asyncio.create_task(unless_gone(client.receive, work()))
    await begun.wait()
    client.left.set()
    watched.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watched


@pytest.mark.asyncio
async def test_work_that_ends_answers() -> None:
    async def work() -> int:
        return 3

    assert await unless_gone(Client().receive, work()) == 3


@pytest.mark.asyncio
async def test_a_fault_of_the_work_comes_through() -> None:
    async def work() -> None:
        raise CacheError(Kind.QUEUE_FULL, "full")

    with pytest.raises(CacheError, match="full"):
        await unless_gone(Client().receive, work())


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"3",
        b'"x"',
        b"null",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a": 1} x',
        b'{"a": "\x00"}',
    ],
    ids=lambda body: repr(body[:12]),
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(CacheError) as caught:
        parse_object(body)
    assert caught.value.kind is Kind.BAD_REQUEST


def test_an_empty_body_is_an_empty_object() -> None:
    assert parse_object(b" \n").values == {}


def test_characters_beyond_ascii_are_kept() -> None:
    assert parse_object('{"a": "é\\u00e9\\ud83d\\ude00"}'.encode()).values == {"a": "éé😀"}


@pytest.mark.parametrize(
    "body",
    [
        '{"session_id": "a", "session_id": "b"}',
        '{"session_id": "a", "x": 1, "session_id": null}',
        '{"vllm_xargs": {"session_id": "a", "session_id": "b"}}',
    ],
)
def test_two_sessions_in_one_place_are_a_contradiction(body: str) -> None:
    with pytest.raises(CacheError) as caught:
        parse_object(body.encode())
    assert (caught.value.kind, caught.value.facts["param"]) == (Kind.BAD_REQUEST, "session_id")


def test_the_same_session_twice_or_in_two_places_is_none() -> None:
    for body in (
        '{"session_id": "a", "session_id": "a"}',
        '{"session_id": "a", "metadata": {"session_id": "b"}, "x": [{"session_id": "c"}]}',
        '{"session_id": "a", "prompt": "{\\"session_id\\": 1}"}',
    ):
        assert parse_object(body.encode()).values["session_id"] == "a"
