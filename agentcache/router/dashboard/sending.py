"""Pages on their way to browsers, some of which never read."""

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.types import Receive, Scope, Send

from agentcache.errors import CacheError, Kind
from agentcache.web.headers import RawHeaders

PIECE_BYTES: Final = 1 << 16


class Sending:
    """Sends at most `limit` pages at a time, each within `limit_s`; what takes longer is broken off.

    A page is one object for all who get it, and goes out in pieces: of a reader that stands still a piece or two wait.
    """

    def __init__(self, limit: int, limit_s: float) -> None:
        self._limit = limit
        self._limit_s = limit_s
        self.under_way = 0
        self.given_up = 0

    def page(self, body: bytes, headers: Mapping[str, str]) -> "Page":
        """Errors: CacheError(QUEUE_FULL) while too many are being sent."""
        if self.under_way >= self._limit:
            said = f"{self._limit} browsers are being sent this page already: look again in a moment"
            raise CacheError(Kind.QUEUE_FULL, said)
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        return Page(self, body, [*raw, (b"content-length", str(len(body)).encode())])

    async def send(self, send: Send, body: bytes, headers: RawHeaders) -> None:
        """Send it, or what a reader takes of it in time."""
        self.under_way += 1
        try:
            async with asyncio.timeout(self._limit_s):
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                for at in range(0, len(body), PIECE_BYTES):
                    piece = body[at : at + PIECE_BYTES]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            self.given_up += 1  # the server closes what is not complete
        finally:
            self.under_way -= 1


class Page:
    """One answer, as an ASGI application."""

    def __init__(self, sending: Sending, body: bytes, headers: RawHeaders) -> None:
        self._sending = sending
        self._body = body
        self._headers = headers

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        await self._sending.send(send, self._body, self._headers)
