"""`agentcache serve`: one engine behind HTTP, from the start banner to the last stream's end."""

import asyncio
import gc
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType

import structlog
import uvicorn

from agentcache import logs
from agentcache.clock import SystemClock
from agentcache.config import Settings
from agentcache.engine.api import EngineInfo
from agentcache.engine.build import build_engine, load_tokenizer_for
from agentcache.engine.engine import Engine
from agentcache.engine.thread import EngineThread
from agentcache.engine.tokenizer import ChatTokenizer
from agentcache.web.leaving import leave_at_once, leaving_early
from agentcache.web.listening import bind, url_of
from agentcache.web.retention import Leases
from agentcache.worker.app import create_app
from agentcache.worker.banner import banner, tiers_row
from agentcache.worker.context import Worker
from agentcache.worker.kv_publisher import NO_PUBLISHER, Publisher, open_publisher
from agentcache.worker.leaving import stopped
from agentcache.worker.link import NO_LINK, Link
from agentcache.worker.linking import Membership, NowMs, membership
from agentcache.worker.session_publisher import (
    NO_SESSION_PUBLISHER,
    SessionPublisher,
    open_session_publisher,
)
from agentcache.worker.tracing import NO_TRACING, Tracing, tracing_of

CUT_S = 2
"""Seconds for cut answers to leave after the engine has stopped; a client that does not read loses them."""


def serve(settings: Settings, store_now_ms: NowMs | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C, then drain; the exit code. `store_now_ms`: Unix time for the routers' store.

    Errors   CacheError(BAD_CONFIG) for an address that cannot be had; as `membership` and `build_engine`
    """
    logs.configure(settings.log_format, settings.log_level, sys.stderr)
    incarnation = uuid.uuid4().hex
    with (
        leaving_early(leave_at_once),
        bind(settings.host, settings.port) as listener,
        ExitStack() as open_until_the_end,
    ):
        tracing = tracing_of(settings, SystemClock())
        open_until_the_end.callback(tracing.close)
        member = membership(settings, url_of(listener), store_now_ms)
        events = open_publisher(settings, incarnation, time.time, seal=member.seal)
        open_until_the_end.callback(events.close)
        structlog.get_logger().info("loading", model=settings.model, device=settings.device)
        happenings = open_session_publisher(settings, incarnation, time.time, seal=member.seal)
        open_until_the_end.callback(happenings.close)
        worker = start_worker(settings, events, happenings)
        worker.gate = member.gate(incarnation)
        gc.freeze()  # what is loaded stays: a full collection need not walk it during somebody's first token
        return asyncio.run(_live(worker, member, listener, settings.grace_s, tracing))


def start_worker(
    settings: Settings, events: Publisher, happenings: SessionPublisher = NO_SESSION_PUBLISHER
) -> Worker:
    """Build the engine on its thread, begin to tell its events, put a worker around it. Errors: as `build_engine`."""

    def build() -> Engine:
        engine = build_engine(settings, events=events)
        engine.cache.witness.tell(happenings)
        return engine

    thread = EngineThread(build)
    engine = thread.start()
    events.start(engine.cache.config.specs, settings.page)
    happenings.start()
    worker = make_worker(thread, engine.info, load_tokenizer_for(settings), settings, events)
    worker.happenings = happenings
    return worker


def make_worker(
    thread: EngineThread,
    info: EngineInfo,
    tokenizer: ChatTokenizer,
    settings: Settings,
    events: Publisher = NO_PUBLISHER,
) -> Worker:
    """A worker over a running engine, with the machine's clocks and random ids."""
    return Worker(
        events=events,
        thread=thread,
        tokenizer=tokenizer,
        info=info,
        body_limit_bytes=settings.body_limit_bytes,
        tiers=settings,
        clock=SystemClock(),
        now_s=time.time,
        new_id=lambda: uuid.uuid4().hex,
        leases=Leases(settings.ttl_s, max(settings.ttl_s, settings.ttl_max_s)),
    )


async def _live(
    worker: Worker, member: Membership, listener: socket.socket, grace_s: float, tracing: Tracing
) -> int:
    url = url_of(listener)
    link = await member.link(worker)

    async def started() -> None:
        await link.start()
        await _announce(worker, url)

    return await run(worker, listener, Life(grace_s, started, link, tracing))


@dataclass(frozen=True, slots=True)
class Life:
    """How a server begins and ends: `started` is called once requests are taken, `link` is told of the end.

    `tracing` is told of the requests.
    """

    grace_s: float
    started: Callable[[], Awaitable[None]]
    link: Link = NO_LINK
    tracing: Tracing = NO_TRACING


async def run(worker: Worker, listener: socket.socket, life: Life) -> int:
    """Serve on a bound socket until a signal."""
    config = uvicorn.Config(
        create_app(worker, life.tracing),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        ws="none",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=CUT_S,
    )
    try:
        await WorkerServer(config, worker, life).serve(sockets=[listener])
    finally:
        await life.link.stop()
        await stopped(worker.thread, 0)
    return 0


class WorkerServer(uvicorn.Server):
    """Drains on the first signal, cuts on the second, and ends with exit code 0.

    While it drains, the port stays open: new work gets 503, `/ready` too.
    """

    def __init__(self, config: uvicorn.Config, worker: Worker, life: Life) -> None:
        super().__init__(config)
        self._worker = worker
        self._life = life
        self._loop = asyncio.get_running_loop()
        self._leaving: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await self._life.started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called in the main thread, between two steps of the loop."""
        leave = self._cut if self._worker.draining else self._drain
        self._worker.draining = True
        self._loop.call_soon_threadsafe(self._begin, leave)

    def _begin(self, leave: Callable[[], Coroutine[object, object, None]]) -> None:
        self._leaving.add(self._loop.create_task(leave()))

    async def _drain(self) -> None:
        """Whatever fails meanwhile, the process ends."""
        try:
            structlog.get_logger().info("draining", grace_s=self._life.grace_s)
            await self._life.link.drain()
            await stopped(self._worker.thread, self._life.grace_s)
            await self._life.link.stop()
        finally:
            self.should_exit = True

    async def _cut(self) -> None:
        await self._worker.thread.call(_abort_all)


async def _announce(worker: Worker, url: str) -> None:
    stats = await worker.thread.call(lambda engine: engine.cache.stats())
    tiers = tiers_row(worker.tiers, stats)
    print(banner(worker.info, url, tiers, worker.gate.guarded), flush=True)


def _abort_all(engine: Engine) -> None:
    for request_id in engine.active():
        engine.abort(request_id)
