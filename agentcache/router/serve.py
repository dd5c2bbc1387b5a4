"""`agentcache router`: one or several processes behind one port, from the start banner to the last stream's end."""

import asyncio
import gc
import os
import random
import socket
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final, NoReturn

import structlog
import uvicorn

from agentcache import logs
from agentcache.clock import SystemClock
from agentcache.router.app import create_app
from agentcache.router.assembly import make_router, store_rules
from agentcache.router.banner import banner
from agentcache.router.context import Router, World
from agentcache.router.home import Place, kept, opened, prepared
from agentcache.router.metrics import RouterMetrics
from agentcache.router.processes import StoreTime, run_several
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import VARIABLE, Tenants, load_tenants
from agentcache.router.tracing import need_tracing, tracing_of
from agentcache.store.connect import connect
from agentcache.web.leaving import leaving_early
from agentcache.web.listening import bind, url_of

YOUNG_OBJECTS: Final = 10_000
"""Objects between two small collections. Requests leave few cycles, and each collection holds up all streams."""
CUT_S: Final = 1
"""Seconds for answers to leave that were cut; a client that does not read loses them."""


def serve(
    settings: RouterSettings,
    store_now_ms: StoreTime = None,
    forget: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> int:
    """Serve until SIGTERM or Ctrl-C, then drain; the exit code. `forget`: begin with an empty session store.

    Errors   CacheError(BAD_CONFIG) for an address that cannot be had, a store that is not for us, bad tenants, spans
             without what makes them
    """
    logs.configure(settings.log_format, settings.log_level, sys.stderr)
    tenants = load_tenants(settings.tenants_file, environ.get(VARIABLE, ""), settings.admin_key_file)
    need_tracing(settings)
    with leaving_early(_leave), opened(settings, SystemClock()) as place:
        asyncio.run(prepared(place, settings, store_now_ms, forget))
        if settings.workers > 1:
            return run_several(settings, place, environ, store_now_ms)
        with bind(settings.host, settings.port) as listener:
            url = url_of(listener)
            said = banner(settings, url, place.shown)
            run = Run(lambda: print(said, flush=True), store_now_ms)
            return run_one(settings, place, tenants, listener, run)


@dataclass(frozen=True, slots=True)
class Run:
    """What differs between a router alone and one of several processes. `started` is called once it serves."""

    started: Callable[[], object]
    store_now_ms: StoreTime = None
    shared_metrics: str = ""


def run_one(
    settings: RouterSettings, place: Place, tenants: Tenants, listener: socket.socket, run: Run
) -> int:
    """Serve in this process, on the fastest loop that there is."""
    loop = uvicorn.Config(_nothing, log_config=None).get_loop_factory()
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_served(settings, place, tenants, listener, run))
    return 0


async def _served(
    settings: RouterSettings, place: Place, tenants: Tenants, listener: socket.socket, run: Run
) -> None:
    store = await connect(place.url, store_rules(settings), now_ms=run.store_now_ms)
    metrics = RouterMetrics(run.shared_metrics)
    world = _world(settings)
    router = make_router(settings, store, place.secret, tenants, world, metrics)
    config = uvicorn.Config(
        create_app(router),
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        proxy_headers=False,  # nothing here asks for a client's address
        ws="none",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=CUT_S,
        backlog=4096,
    )
    keeping = asyncio.ensure_future(kept(place))
    try:
        await RouterServer(config, router, run.started).serve(sockets=[listener])
    finally:
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        await store.aclose()
        await asyncio.to_thread(world.tracing.close)


class RouterServer(uvicorn.Server):
    """Drains on the first signal, cuts on the second, and ends with exit code 0.

    While it drains, the port stays open: new work gets 503, `/ready` too.
    """

    def __init__(self, config: uvicorn.Config, router: Router, started: Callable[[], object]) -> None:
        super().__init__(config)
        self._router = router
        self._on_started = started
        self._loop = asyncio.get_running_loop()
        self._leaving: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # what is loaded stays: no collection need walk it while clients wait
        gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called in the main thread, between two steps of the loop."""
        leave = self._cut if self._router.draining else self._drain
        self._router.draining = True
        self._loop.call_soon_threadsafe(self._begin, leave)

    def _begin(self, leave: Callable[[], Coroutine[object, object, None]]) -> None:
        self._leaving.add(self._loop.create_task(leave()))

    async def _drain(self) -> None:
        """Whatever fails meanwhile, the process ends."""
        active, grace_s = self._router.active, self._router.settings.grace_s
        try:
            structlog.get_logger().info("draining", requests=active.count, grace_s=grace_s)
            await active.idle(grace_s)
        finally:
            self.should_exit = True

    async def _cut(self) -> None:
        self.should_exit = True


def _world(settings: RouterSettings) -> World:
    clock = SystemClock()
    return World(
        clock=clock,
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: uuid.uuid4().hex,
        jitter=random.random,
        tracing=tracing_of(settings, clock),
    )


def _leave() -> NoReturn:
    """Before it serves: nothing runs that would have to be ended in order."""
    raise SystemExit(0)


async def _nothing(_scope: object, _receive: object, _send: object) -> None:
    """An application for nobody."""
