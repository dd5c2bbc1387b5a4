"""Answers as they leave, event by event."""

from collections.abc import MutableMapping
from typing import Any

import pytest

from agentcache.web.body import ClientGoneError, unless_gone
from agentcache.web.reply import Reply

Message = MutableMapping[str, Any]
pytestmark = pytest.mark.asyncio


async def test_a_stream_whose_client_has_left_is_not_written_on() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)  # as to a socket that takes it: without a pause

    async def left() -> Message:
        return {"type": "http.disconnect"}

    async def stream() -> None:
        reply = Reply(send)
        await reply.open_stream([])
        for number in range(1000):
            await reply.events([("", {"number": number})])
        await reply.end_stream()

    with pytest.raises(ClientGoneError):
        await unless_gone(left, stream())
    assert len(sent) < 5  # asyncio complains of each write after the fifth to a connection that is lost
    assert sent[0]["status"] == 200
