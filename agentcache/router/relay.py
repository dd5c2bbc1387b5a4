"""One answer on its way to a client: what was sent of it, and whether it is complete."""

from starlette.types import Send

from agentcache.web.headers import RawHeaders
from agentcache.web.reply import Json, encode


class Relay:
    """`status` is 0 until the answer has begun; what has begun and is never completed breaks off at the client."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.complete = False

    async def begin(self, status: int, headers: RawHeaders) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def pass_on(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, chunk: bytes = b"") -> None:
        self.complete = True
        await self._send({"type": "http.response.body", "body": chunk, "more_body": False})

    async def whole(self, status: int, body: Json, headers: RawHeaders) -> None:
        """An answer of our own."""
        content = encode(body)
        length = (b"content-length", str(len(content)).encode())
        await self.begin(status, [(b"content-type", b"application/json"), length, *headers])
        await self.end(content)
