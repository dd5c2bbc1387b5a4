"""Pages to browsers that read, and to some that never do."""

import asyncio

import pytest
from starlette.types import Message

from agentcache.errors import CacheError, Kind
from agentcache.router.dashboard.sending import PIECE_BYTES, Sending

pytestmark = pytest.mark.asyncio
BODY = bytes(range(256)) * (3 * PIECE_BYTES // 256) + b"end"


class Browser:
    """Takes so many messages, then stands still."""

    def __init__(self, takes: int = 100) -> None:
        self.took: list[Message] = []
        self.still = asyncio.Event()
        self._takes = takes

    async def send(self, message: Message) -> None:
        if len(self.took) >= self._takes:
            self.still.set()
            await asyncio.Event().wait()
        self.took.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.took)


async def hears() -> Message:
    return {"type": "http.disconnect"}


async def test_a_page_comes_whole() -> None:
    browser, sending = Browser(), Sending(limit=1, limit_s=5.0)
    await sending.page(BODY, {"x-a": "1"})({}, hears, browser.send)
    start, *_, last = browser.took
    assert start["headers"] == [(b"x-a", b"1"), (b"content-length", str(len(BODY)).encode())]
    assert browser.body == BODY
    assert last["more_body"] is False
    assert max(len(message.get("body", b"")) for message in browser.took) == PIECE_BYTES
    assert not sending.under_way


async def test_who_never_reads_is_given_up_after_a_while_with_a_piece_taken() -> None:
    browser, sending = Browser(takes=2), Sending(limit=1, limit_s=0.01)
    await sending.page(BODY, {})({}, hears, browser.send)
    assert len(browser.body) == PIECE_BYTES
    assert all(message.get("more_body", True) for message in browser.took)
    assert (sending.under_way, sending.given_up) == (0, 1)


async def test_no_more_are_sent_at_a_time_than_may_be() -> None:
    browser, sending = Browser(takes=1), Sending(limit=1, limit_s=5.0)
    under_way = asyncio.ensure_future(sending.page(BODY, {})({}, hears, browser.send))
    await browser.still.wait()
    with pytest.raises(CacheError) as refused:
        sending.page(BODY, {})
    assert refused.value.kind is Kind.QUEUE_FULL
    under_way.cancel()
    await asyncio.wait({under_way})
    sending.page(BODY, {})
