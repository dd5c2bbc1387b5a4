"""A router, its store and one worker that keeps account, in one process and on one clock."""

import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from starlette.types import ASGIApp

from agentcache.clock import Clock
from agentcache.config import Settings
from agentcache.engine.accounting_build import CountedModel, keep_account
from agentcache.engine.api import EngineInfo
from agentcache.engine.engine import Engine
from agentcache.engine.inloop import EngineInLoop
from agentcache.engine.thread import EngineThread
from agentcache.replay.lab.serving import Machine
from agentcache.replay.lab.world import Script
from agentcache.replay.paged import Workload
from agentcache.replay.routed.agents import Agents, Heard, Taken
from agentcache.replay.routed.asgi import Exchange, InProcess
from agentcache.replay.routed.loop import VirtualLoop, run_virtual
from agentcache.replay.routed.pages import PAGE, PageTokenizer, spoken_by
from agentcache.router.app import create_app as create_router
from agentcache.router.assembly import make_router, store_rules
from agentcache.router.background import Background
from agentcache.router.context import World
from agentcache.router.metrics import NAMESPACE
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import load_tenants
from agentcache.router.tracing import NoTracing
from agentcache.session_events import NOBODY, SessionEvent, SessionSink
from agentcache.store.memory import MemoryStore
from agentcache.types import full_spec
from agentcache.web.retention import Leases
from agentcache.wire import Receipt, WorkerCard
from agentcache.worker.app import create_app as create_worker
from agentcache.worker.context import Worker
from agentcache.worker.link import RouterLink
from agentcache.worker.link_standing import Pace
from agentcache.worker.tagged import TagGate

SECRET: Final = b"known to this process alone, once"
WORKER, URL, MODEL = "w1", "http://w1", "pages"
FOR_EVER_S: Final = 1e9
BEAT_S, LOOK_S = 30.0, 60.0
"""Nothing gets lost in one process: it is enough to look now and then."""
BEGAN_MS: Final = 1_700_000_000_000
"""What Unix time is where a clock that jumps begins."""
CONTEXT: Final = 2**30
SEATS: Final = 1024


@dataclass(frozen=True, slots=True)
class Setting:
    """What a replay runs on. Units: `slots` of one page each; `page_tokens`: tokens of the trace in one."""

    order: str
    slots: int
    machine: Machine
    page_tokens: int
    learns: bool = False

    def of_worker(self) -> Settings:
        """The worker's settings: pages of one token, and speeds in pages."""
        return Settings.model_validate(
            {
                "engine": "accounting",
                "page_tokens": PAGE,
                "grid_tokens": PAGE,
                "fork_chunks": CONTEXT,
                "full_slots": self.slots,
                "eviction_policy": self.order,
                "max_running": SEATS,
                "queue_limit": SEATS,
                "prefill_tokens": CONTEXT,
                "ttl_s": FOR_EVER_S,
                "accounting_prefill_tokens_per_s": self.machine.prefill / self.page_tokens,
                "accounting_decode_tokens_per_s": self.machine.decode / self.page_tokens,
            }
        )

    def of_router(self) -> RouterSettings:
        """The router's."""
        return RouterSettings(
            ttl_s=FOR_EVER_S, worker_s=10 * BEAT_S, refresh_s=LOOK_S, sweep_s=LOOK_S, learn_waits=self.learns
        )


@dataclass(frozen=True, slots=True)
class Behind:
    """`agents.Router` in this process."""

    app: ASGIApp

    async def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Heard:
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        exchange = Exchange(self.app, method, target, raw, body)
        await exchange.begun()
        whole = b"".join([chunk async for chunk in exchange.chunks()])
        exchange.leave()
        named = {name.decode("latin-1").lower(): value.decode() for name, value in exchange.headers}
        return Heard(exchange.status, named, whole)


@dataclass(slots=True)
class Numbers:
    """Ids that count."""

    prefix: str
    _next: "itertools.count[int]" = field(default_factory=itertools.count)

    def __call__(self) -> str:
        return f"{self.prefix}{next(self._next):024x}"


class _Patient(MemoryStore):
    """A store whose readers look again when something has come for them, and seldom else."""

    async def receipts(self, router: str, after: str, wait_s: float) -> tuple[tuple[str, Receipt], ...]:
        return await super().receipts(router, after, max(wait_s, LOOK_S))


class _WithoutSockets(NoTracing):
    """The plain parts, and workers of this process."""

    def __init__(self, apps: Mapping[str, ASGIApp]) -> None:
        self._apps = apps

    def upstreams(self) -> InProcess:
        return InProcess(self._apps)


@asynccontextmanager
async def in_one_process(
    workload: Workload, setting: Setting, loop: VirtualLoop, sink: SessionSink = NOBODY
) -> AsyncIterator[Behind]:
    """A router over a store in memory, one worker behind it; `sink` hears what happens to sessions there."""
    settings = setting.of_worker()
    thread = EngineInLoop(lambda: page_engine(workload, settings, loop, sink), loop, LOOK_S)
    worker = page_worker(workload, settings, thread, thread.start().info, loop)
    rules = setting.of_router()
    store = _Patient(store_rules(rules), lambda: BEGAN_MS + loop.now_ns() // 1_000_000, Numbers("epoch"))
    await store.prepare()
    apps: dict[str, ASGIApp] = {}
    world = World(loop, store.books.now_ms, Numbers("router"), random.Random(0).random, _WithoutSockets(apps))
    router = make_router(rules, store, SECRET, load_tenants("", ""), world)
    worker.gate = TagGate(router.signer, WORKER, world.now_ms, url=URL)
    apps[URL] = create_worker(worker)
    link = RouterLink(store, page_card(worker.info, settings, URL), thread, loop, Pace(BEAT_S, mail_s=LOOK_S))
    await link.start()
    try:
        async with Background(router).running():
            yield Behind(create_router(router))
    finally:
        await link.stop()
        await thread.stop(0)


def page_engine(workload: Workload, settings: Settings, clock: Clock, sink: SessionSink = NOBODY) -> Engine:
    """An engine that keeps account of the pages of a workload; `sink` hears what happens to sessions."""
    model = CountedModel(
        MODEL, (full_spec(),), CONTEXT, len(workload.before), ((0,),), forward_tokens=CONTEXT
    )
    engine = keep_account(model, settings, clock)
    engine.cache.witness.tell(sink)
    return engine


def page_worker(
    workload: Workload, settings: Settings, thread: EngineThread, info: EngineInfo, clock: Clock
) -> Worker:
    """A worker over such an engine, that reads and says pages."""
    return Worker(
        thread=thread,
        tokenizer=PageTokenizer(spoken_by(workload)),
        info=info,
        body_limit_bytes=settings.body_limit_bytes,
        tiers=settings,
        clock=clock,
        now_s=lambda: BEGAN_MS / 1000 + clock.now_ns() / 1e9,
        new_id=Numbers(""),
        leases=Leases(settings.ttl_s, settings.ttl_s),
    )


def page_card(info: EngineInfo, settings: Settings, url: str) -> WorkerCard:
    """What the router is told of it."""
    return WorkerCard(
        worker=WORKER,
        incarnation=f"{WORKER}-1",
        url=url,
        model=info.model,
        context_tokens=info.context_tokens,
        page_tokens=info.page_tokens,
        grid_tokens=info.grid_tokens,
        seats=settings.max_running,
        queue_limit=settings.queue_limit,
    )


class Told:
    """Hears what happens to sessions, in order."""

    listening = True

    def __init__(self) -> None:
        self.events: list[SessionEvent] = []

    def happened(self, event: SessionEvent) -> None:
        self.events.append(event)


def played(script: Script, setting: Setting, states: bool) -> tuple[list[Taken], dict[str, float]]:
    """A script's agents at a router of their own, to the end: their turns, and how often what happened.

    `hints` are those that the router sent of what it has learned; `hints_off`: how far the waits were from them, in
    natural logarithm, on the average.
    """
    sink = Told()

    async def main(loop: VirtualLoop) -> tuple[list[Taken], dict[str, float]]:
        async with in_one_process(script.workload, setting, loop, sink) as router:
            taken = await Agents(script, router, states).run()
            return taken, await _hints(router)

    taken, hints = run_virtual(main)
    return taken, {**Counter(event.what.value for event in sink.events), **hints}


async def _hints(router: Behind) -> dict[str, float]:
    """From the router's own metrics."""
    text = (await router.ask("GET", "/metrics", {}, b"")).body.decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    seen = float(values[f"{NAMESPACE}_wait_hint_error_count"])
    off = float(values[f"{NAMESPACE}_wait_hint_error_sum"])
    sent = float(values[f'{NAMESPACE}_wait_hints_total{{outcome="sent"}}'])
    return {"hints": sent, "hints_off": off / max(1.0, seen)}
