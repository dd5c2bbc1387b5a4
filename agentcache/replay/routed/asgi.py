"""ASGI applications asked without sockets: by clients, and by a router as its workers."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import structlog
from starlette.types import ASGIApp, Message, Scope

from agentcache.router.upstream import Answer, Failure, NoAnswer, Upstreams, end_to_end
from agentcache.web.headers import RawHeaders

log = structlog.get_logger(__name__)


class Exchange:
    """One request to an application, and its answer as it comes. Leaving is told to the application, as by a socket."""

    def __init__(self, app: ASGIApp, method: str, target: str, headers: RawHeaders, body: bytes) -> None:
        self._app = app
        self._scope = _scope(method, target, headers, body)
        self._body = body
        self._left = asyncio.Event()
        self._news = asyncio.Event()
        self._chunks: deque[bytes] = deque()
        self._asked = False
        self._ended = False
        self.status = 0
        self.headers: RawHeaders = []
        self._running = asyncio.ensure_future(self._run())

    async def begun(self) -> bool:
        """Whether an answer has begun: False where the application ended without one."""
        while not (self.status or self._ended):
            await self._new()
        return self.status > 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body."""
        while True:
            while self._chunks:
                yield self._chunks.popleft()
            if self._ended:
                return
            await self._new()

    def leave(self) -> None:
        """The client goes, or has heard all."""
        self._left.set()

    async def _new(self) -> None:
        await self._news.wait()
        self._news.clear()

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        except Exception:
            log.exception("application.failed", path=self._scope["path"])
        finally:
            self._ended = True
            self._news.set()

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        elif body := message.get("body", b""):
            self._chunks.append(body)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self._ended = True
        self._news.set()


class InProcess(Upstreams):
    """A router's way to workers in its own process, by their URLs. What is not among them cannot be reached."""

    def __init__(self, apps: Mapping[str, ASGIApp]) -> None:
        super().__init__()
        self._apps = apps

    async def send(self, method: str, url: str, headers: RawHeaders, body: bytes = b"") -> Answer | NoAnswer:
        """As over HTTP; the loop's time is all that it takes."""
        parts = urlsplit(url)
        app = self._apps.get(f"{parts.scheme}://{parts.netloc}")
        if app is None:
            return NoAnswer(Failure.UNSENT, f"there is nobody at {url}")
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        exchange = Exchange(app, method, target, headers, body)
        if not await exchange.begun():
            return NoAnswer(Failure.BROKEN, "the application ended without an answer")
        return AnswerInProcess(exchange)


class AnswerInProcess(Answer):
    """An answer of an application in this process."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._named = {name.decode("latin-1").lower(): value.decode() for name, value in exchange.headers}
        self.status = exchange.status

    @property
    def headers(self) -> RawHeaders:
        return end_to_end(self._exchange.headers)

    def header(self, name: str) -> str:
        return self._named.get(name, "")

    async def chunks(self) -> AsyncIterator[bytes]:
        async for chunk in self._exchange.chunks():
            yield chunk

    def close(self) -> None:
        self._exchange.leave()


def _scope(method: str, target: str, headers: RawHeaders, body: bytes) -> Scope:
    path, _, query = target.partition("?")
    length = (b"content-length", str(len(body)).encode())
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"in-process"), length, *headers],
        "client": ("127.0.0.1", 1),
        "server": ("in-process", 80),
    }
    return scope
