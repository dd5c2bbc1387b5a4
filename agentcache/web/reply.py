"""How answers leave: JSON, or server-sent events after headers that can be sent only once."""

import asyncio
import json
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import Send

from agentcache.errors import CacheError
from agentcache.web.headers import RawHeaders
from agentcache.web.status import ErrorAnswer, error_answer, error_headers

Json = dict[str, object]
StreamEvent = tuple[str, Json]
"""The name of an event ("" for those that have none) and its data."""

DONE = b"data: [DONE]\n\n"
REQUEST_ID: Final = "x-request-id"


def encode(value: object) -> bytes:
    """Compact JSON. ASCII only, so that no text of a model can break the encoding."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    """A complete answer of the simple endpoints."""
    told = dict(headers or {})
    return Response(encode(value), status_code=status, headers=told, media_type="application/json")


class Reply:
    """One answer on one connection; remembers with which status it began (0: not yet) and whether it is complete.

    `request_id` is what errors call the request, "" for one that has no id.
    """

    def __init__(self, send: Send, answer: ErrorAnswer = error_answer, request_id: str = "") -> None:
        self._send = send
        self._answer = answer
        self.request_id = request_id
        self.status = 0
        self.complete = False

    async def whole(self, status: int, body: Json, headers: RawHeaders) -> None:
        """A complete JSON answer."""
        content = encode(body)
        length = (b"content-length", str(len(content)).encode())
        await self._start(status, [(b"content-type", b"application/json"), length, *headers])
        await self._end(content)

    async def open_stream(self, headers: RawHeaders) -> None:
        """Send the headers of a stream of events."""
        no_store = (b"cache-control", b"no-store")
        await self._start(200, [(b"content-type", b"text/event-stream; charset=utf-8"), no_store, *headers])

    async def events(self, events: list[StreamEvent]) -> None:
        """Send events, at once, and let the loop look at the connection: a send that need not wait would never do so,
        and the rest would be written to a client that has left.
        """
        if events:
            await self._body(b"".join(_framed(name, value) for name, value in events))
            await asyncio.sleep(0)

    async def end_stream(self, tail: bytes = DONE) -> None:
        await self._end(tail)

    async def fail(self, error: CacheError) -> None:
        """Tell the client what went wrong: as a status, or in a stream that has begun as its last event."""
        status, body = self._answer(error, self.request_id)
        if self.status:
            await self.events([("error" if "type" in body else "", body)])
            await self.end_stream(b"")
        else:
            said = {REQUEST_ID: self.request_id, **error_headers(error)}
            told = [(name.encode(), value.encode()) for name, value in said.items() if value]
            await self.whole(status, body, told)

    async def _start(self, status: int, headers: RawHeaders) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _body(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _end(self, body: bytes) -> None:
        self.complete = True
        await self._send({"type": "http.response.body", "body": body, "more_body": False})


def _framed(name: str, value: Json) -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encode(value) + b"\n\n"
