"""A router for tests: in this process over a store in memory, on real sockets; upstreams that do as they are told."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
import uvicorn
from starlette.types import ASGIApp

from agentcache import wire
from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.router.app import create_app
from agentcache.router.assembly import make_router
from agentcache.router.context import Router, World
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import Tenants, load_tenants
from agentcache.router.tracing import NO_TRACING, Tracing
from agentcache.store.api import Opening, SessionRef, StoreRules
from agentcache.store.memory import MemoryStore
from agentcache.web.listening import bind
from tests.patience import PATIENCE_S, until

SECRET = b"a secret of thirty-two bytes, yes"
SIGNER = wire.TagSigner(SECRET)
EVENT = b'data: {"choices":[{"delta":{"content":"\xc3\xa9 %d"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
Json = dict[str, Any]
PATIENT = RouterSettings(refresh_s=30, sweep_s=30, close_wait_s=30)
"""For workers that answer a close, however long it takes."""


@dataclass
class Call:
    """One request as an upstream heard it, and the connection that it came on."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the other side closes the connection."""

    @property
    def fields(self) -> Json:
        fields: Json = json.loads(self.body)
        return fields

    def tag(self, worker: str) -> wire.Tag:
        """The router's word, checked as a worker checks it."""
        issued = self.headers[wire.TAG]
        return SIGNER.read(issued, worker, now_ms())

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in headers.items())]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def whole(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        told = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self.head(status, told)
        await self.send(body)


Script = Callable[[Call], Awaitable[None]]


async def plain_answer(call: Call) -> None:
    """What a worker says to a request that asks for no stream."""
    await call.whole(200, b'{"choices": [{"text": "hi"}]}', {wire.STATE: "open", wire.WHY: "full hit"})


async def streamed(call: Call) -> None:
    """Five events and the end."""
    await begin_stream(call)
    for number in range(5):
        await call.chunk(EVENT % number)
    await call.chunk(DONE)
    await call.chunk(b"")


async def begin_stream(call: Call) -> None:
    await call.head(
        200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", wire.STATE: "open"}
    )


class Upstream:
    """A server that hears requests and runs `script` for each; `heard` keeps them in order."""

    def __init__(self, script: Script = plain_answer) -> None:
        self.script = script
        self.heard: list[Call] = []
        self._news = asyncio.Condition()
        self._open: set[asyncio.Task[None]] = set()
        self.url = ""

    async def hears(self, count: int) -> Call:
        """Wait for the `count`-th request."""
        async with self._news:
            await self._news.wait_for(lambda: len(self.heard) >= count)
        return self.heard[count - 1]

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator["Upstream"]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", port)
        self.url = "http://{}:{}".format(*server.sockets[0].getsockname())
        try:
            yield self
        finally:
            server.close()
            for task in tuple(self._open):
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            await server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._open.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection is still there."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except asyncio.IncompleteReadError:
            return False
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value.encode("latin-1").decode() for name, value in pairs}
        method, target, _ = head[0].split(" ")
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        call = Call(method, target, headers, body, writer)
        if target.endswith("/v1/models") and method == "GET":  # a probe, no request of a client
            await call.whole(200, b'{"object": "list", "data": [{"id": "tiny", "object": "model"}]}')
            return True
        async with self._news:
            self.heard.append(call)
            self._news.notify_all()
        return await self._answer(call, reader)

    async def _answer(self, call: Call, reader: asyncio.StreamReader) -> bool:
        listening = asyncio.ensure_future(_ends(reader))
        listening.add_done_callback(lambda _: call.gone.set())
        try:
            await self.script(call)
        finally:
            if not call.gone.is_set():
                listening.cancel()
                await asyncio.wait((listening,))
        return not call.writer.is_closing() and listening.cancelled()


async def _ends(reader: asyncio.StreamReader) -> None:
    """Until the other side closes the connection, or breaks it off."""
    with suppress(OSError):
        await reader.read(1)


class FailingStore(MemoryStore):
    """A store in memory that can be out of reach."""

    down = False

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in _CALLS and super().__getattribute__("down"):
            return _unreachable
        return found


_CALLS = frozenset(
    {
        "open",
        "tag",
        "done",
        "assign",
        "close",
        "look",
        "list",
        "recent",
        "note",
        "workers",
        "sweep",
        "receipts",
        "drain",
    }
)


async def _unreachable(*_arguments: object, **_named: object) -> None:
    raise CacheError(Kind.STORE_FAILED, "the session store did not answer within 0.5 s")


@dataclass
class Routed:
    """A router that serves, and what is around it."""

    router: Router
    store: FailingStore
    http: httpx2.AsyncClient
    url: str
    clock: ManualClock
    """Of the router; the store's time is this machine's."""

    async def register(self, worker: str, url: str, **more: Any) -> None:
        """Make a worker known, and let the router look."""
        await self.store.register(card(worker, url, **more))
        await self.store.heartbeat(worker, f"{worker}-1", 0, wire.WorkerLoad())
        await self.look()

    async def look(self) -> None:
        await self.router.chooser.refresh(self.store)

    async def settled(self) -> None:
        """Wait until no request is under way, and the store was told of every end."""
        await until(lambda: not (self.router.active.count or self.router.endings.pending))

    async def post(
        self, path: str = "/v1/completions", body: Json | None = None, **headers: str
    ) -> httpx2.Response:
        """Headers in snake case: `x_agentcache_session="a"`."""
        told = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        return await self.http.post(path, json=body or {"prompt": "hi"}, headers=told)


async def opened_at(routed: Routed, ref: SessionRef, worker: str) -> tuple[SessionRef, int, int, str]:
    """A session that is open and nowhere yet, as `assign` wants it."""
    opened = await routed.store.open(ref, Opening())
    return ref, opened.generation, 0, worker


def card(worker: str, url: str, **more: Any) -> wire.WorkerCard:
    told: Json = {"model": "tiny", "context_tokens": 4096, "page_tokens": 16, "grid_tokens": 16}
    told |= {"seats": 8, "queue_limit": 64, **more}
    return wire.WorkerCard(worker=worker, incarnation=f"{worker}-1", url=url, **told)


def now_ms() -> int:
    return 1_700_000_000_000


@asynccontextmanager
async def routing(
    settings: RouterSettings | None = None,
    tenants: Tenants | None = None,
    rules: StoreRules | None = None,
    tracing: Tracing = NO_TRACING,
) -> AsyncIterator[Routed]:
    """A router on a free port. Its clock stands still unless a test moves it."""
    clock, numbers = ManualClock(1), itertools.count(1)
    world = World(clock, now_ms, lambda: f"id{next(numbers)}", lambda: 0.5, tracing)
    epochs = itertools.count(1)
    store = FailingStore(rules or StoreRules(worker_s=1e6), now_ms, lambda: f"epoch{next(epochs)}")
    await store.prepare()
    chosen = settings or RouterSettings(refresh_s=30, sweep_s=30)
    router = make_router(chosen, store, SECRET, tenants or load_tenants("", ""), world)
    async with (
        serving(create_app(router)) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as http,
    ):
        yield Routed(router, store, http, url, clock)


@asynccontextmanager
async def serving(app: ASGIApp, grace_s: int = 20) -> AsyncIterator[str]:
    """An application behind a socket, as in its own process. `grace_s`: for requests that are under way at the end."""
    listener = bind("127.0.0.1", 0)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=grace_s,
    )
    server = uvicorn.Server(config)
    running = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        while not server.started:
            await asyncio.sleep(0)
            assert not running.done(), running.exception()
        yield "http://{}:{}".format(*listener.getsockname())
    finally:
        server.should_exit = True
        await running
        listener.close()


@asynccontextmanager
async def routed_to(
    *scripts: Script, settings: RouterSettings | None = None, tenants: Tenants | None = None
) -> AsyncIterator[tuple[Routed, list[Upstream]]]:
    """A router with one registered worker for each script: w1, w2, …"""
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(Upstream(script).serving()) for script in scripts]
        routed = await stack.enter_async_context(routing(settings, tenants))
        for number, worker in enumerate(workers, start=1):
            await routed.register(f"w{number}", worker.url)
        yield routed, workers


@asynccontextmanager
async def raw_client(
    url: str, path: str, body: Json, **headers: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client that writes its own bytes, and closes at the end of the block."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    content = json.dumps(body).encode()
    told = {"host": "router", "content-length": str(len(content)), **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in told.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + content)
    await writer.drain()
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
