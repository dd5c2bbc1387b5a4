"""The agents of a small trace over HTTP and Valkey: the same happens as on the clock that jumps."""

import asyncio
import heapq
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from random import Random
from uuid import uuid4

import httpx2
import pytest
import zmq
from starlette.types import Receive, Scope, Send

from agentcache.bench.agents_world import (
    WORKER,
    Setting,
    Told,
    in_one_process,
    page_card,
    page_engine,
    page_worker,
)
from agentcache.engine.engine import Engine
from agentcache.engine.thread import EngineThread
from agentcache.ids import unscoped
from agentcache.kv_events import END_SEQ, pack_seq, unpack_seq
from agentcache.replay.lab.serving import Machine
from agentcache.replay.lab.world import Script
from agentcache.replay.paged import page
from agentcache.replay.routed.agents import Agents, Heard, Taken
from agentcache.replay.routed.loop import VirtualLoop, run_virtual
from agentcache.replay.routed.pages import in_whole_pages
from agentcache.replay.trace import Call, Facts, Gap, Link, Origin, Session
from agentcache.router.app import create_app as create_router
from agentcache.router.assembly import make_router, store_rules
from agentcache.router.context import World
from agentcache.router.tenants import load_tenants
from agentcache.session_feed import decode_sessions, told
from agentcache.store.connect import connect, open_home
from agentcache.types import SessionId
from agentcache.waits import WaitKind
from agentcache.worker.app import create_app as create_worker
from agentcache.worker.link import RouterLink
from agentcache.worker.linking import unix_ms
from agentcache.worker.session_publisher import open_session_publisher
from agentcache.worker.tagged import TagGate
from tests.routing import serving
from tests.serving import nothing_left
from tests.sessionstores import PATIENT_S

SETTING = Setting("ert", slots=130, machine=Machine(prefill=1e6, decode=1e4), page_tokens=64)
"""Room for three sessions: the fourth pushes out the one that is expected back last."""
STARTS_S = (0.0, 1.0, 2.0, 3.0)
GAPS_S = ((0.0, 9.0), (0.0, 6.0), (0.0, 3.0), (0.0,))
CHILD_AFTER_S = 4.0
"""Whatever happens is a second apart from all else."""
MOST_NS = 50_000_000
FIRST, MORE = 40, 20
Events = dict[str, list[tuple[str, str, float]]]


def session(name: str, turns: int, origin: Origin | None = None) -> Session:
    """Its prompts have so many blocks first, and more with every turn."""
    ends = [FIRST + MORE * turn for turn in range(turns)]
    calls = tuple(
        Call(
            keep=begin,
            blocks=tuple(range(begin, end)),
            facts=Facts(Gap(WaitKind.TOOL, 1.0), prompt_tokens=64 * end + 1, output_tokens=64),
        )
        for begin, end in pairwise([0, *ends])
    )
    return Session(name, calls, "here", block_tokens=64, scope=name, origin=origin or Origin())


def script() -> Script:
    child = session("e", 1, Origin("a", Link.SPAWN, after_call=1))
    sessions = [*(session(name, len(gaps)) for name, gaps in zip("abcd", GAPS_S, strict=True)), child]
    workload = in_whole_pages(page(sessions, lambda _: []))
    gaps = [*GAPS_S, (CHILD_AFTER_S,)]
    return Script(
        workload,
        {index: round(start * 1e9) for index, start in enumerate(STARTS_S)},
        [[round(gap * 1e9) for gap in of_one] for of_one in gaps],
        closes=True,
    )


class Elastic:
    """The machine's clock, but for what it stands still; it goes ahead when told."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._seen_ns = time.monotonic_ns()
        self._now_ns = self._seen_ns

    def now_ns(self) -> int:
        """At most `MOST_NS` after whoever looked before."""
        with self._turn:
            seen_ns = time.monotonic_ns()
            self._now_ns += min(seen_ns - self._seen_ns, MOST_NS)
            self._seen_ns = seen_ns
            return self._now_ns

    def go_to(self, now_ns: int) -> None:
        with self._turn:
            self._now_ns = max(now_ns, self._now_ns)


@dataclass
class OverHttp:
    """A router behind a socket. Agents sleep until nobody is at anything, and then wake one by one, each in its time:
    what the script has apart is apart, however long a machine takes for it."""

    http: httpx2.AsyncClient
    clock: Elastic
    idle: Callable[[], Awaitable[bool]]
    _asking: int = 0
    _numbers: "count[int]" = field(default_factory=count)
    _asleep: list[tuple[int, int, asyncio.Event]] = field(default_factory=list)

    async def ask(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Heard:
        self._asking += 1
        try:
            answer = await self.http.request(method, target, headers=dict(headers), content=body)
        finally:
            self._asking -= 1
        return Heard(answer.status_code, dict(answer.headers), answer.content)

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        until_ns = self.clock.now_ns() + round(seconds * 1e9)
        heapq.heappush(self._asleep, (until_ns, next(self._numbers), woken))
        await woken.wait()

    async def wake(self) -> None:
        """Until cancelled."""
        while True:
            idle = await self.idle()
            for _ in range(3):  # who was answered asks again, or sleeps
                await asyncio.sleep(0)
            if idle and self._asleep and not self._asking:
                until_ns, _, woken = heapq.heappop(self._asleep)
                self.clock.go_to(until_ns)
                woken.set()
                await asyncio.sleep(0)


@asynccontextmanager
async def with_sockets(told: Script, folder: Path) -> AsyncIterator[tuple[OverHttp, str]]:
    """A router over Valkey and a worker, each behind a socket; where the worker's session events are told again."""
    clock, workload = Elastic(), told.workload
    settings = SETTING.of_worker().model_copy(update={"session_events": "tcp://127.0.0.1:*"})
    happenings = open_session_publisher(settings, "life-1", time.time)
    thread = EngineThread(lambda: page_engine(workload, settings, clock, happenings))
    worker = page_worker(workload, settings, thread, thread.start().info, clock)
    happenings.start()
    home = await asyncio.to_thread(open_home, folder, clock)
    rules = SETTING.of_router()
    store = await connect(home.url, store_rules(rules), call_s=PATIENT_S)
    await store.prepare()
    router = make_router(
        rules,
        store,
        home.secret,
        load_tenants("", ""),
        World(clock, unix_ms, lambda: uuid4().hex, Random(0).random),
    )

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await create_worker(worker)(scope, receive, send)

    try:
        async with serving(app) as url:
            worker.gate = TagGate(router.signer, WORKER, unix_ms, url=url)
            link = RouterLink(store, page_card(worker.info, settings, url), thread, clock)
            await link.start()
            async with (
                serving(create_router(router)) as at,
                httpx2.AsyncClient(base_url=at, timeout=PATIENT_S) as http,
            ):
                yield OverHttp(http, clock, lambda: thread.call(Engine.idle)), happenings.replay_url
            await link.stop()
            await thread.call(nothing_left)
    finally:
        await thread.stop(0)
        happenings.close()
        await store.aclose()
        await asyncio.to_thread(home.close)


def heard(replay_url: str) -> Events:
    """All that the worker has told of its sessions, from its socket."""
    events: Events = {}
    with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
        asking.linger = 0
        asking.connect(replay_url)
        asking.send_multipart([b"", pack_seq(0)])
        while asking.poll(60_000):
            _, _, seq, payload = asking.recv_multipart()
            if unpack_seq(seq) == END_SEQ:
                return events
            for event in decode_sessions(payload).events:
                note(events, event)
        raise AssertionError("no end marker")


def note(events: Events, event: object) -> None:
    """One more, by its session: what, and of a pause for what tool and how long."""
    named = unscoped(SessionId(getattr(event, "session_id")))[1]  # noqa: B009
    said = type(event).__name__, getattr(event, "tool", ""), getattr(event, "expected_s", 0.0)
    events.setdefault(named, []).append(said)


def in_virtual_time(script: Script) -> tuple[list[Taken], Events]:
    sink = Told()

    async def main(loop: VirtualLoop) -> list[Taken]:
        async with in_one_process(script.workload, SETTING, loop, sink) as router:
            return await Agents(script, router, states=True).run()

    taken, events = run_virtual(main), Events()
    for event in sink.events:
        note(events, told(event, routed=False))
    return taken, events


def counted(taken: list[Taken]) -> dict[tuple[int, int], tuple[int, int]]:
    return {(one.session, one.turn): (one.prompt_tokens, one.cached_tokens) for one in taken}


@pytest.mark.asyncio
async def test_what_happens_over_sockets_is_what_happens_in_one_process(tmp_path: Path) -> None:
    told = script()
    taken, events = await asyncio.to_thread(in_virtual_time, told)
    assert {what for said in events.values() for what, *_ in said} == {
        "SessionOpened",
        "SessionPaused",
        "SessionResumed",
        "SessionEvicted",
        "SessionClosed",
    }
    async with with_sockets(told, tmp_path) as (router, replay_url):
        waking = asyncio.ensure_future(router.wake())
        real = await Agents(told, router, states=True, sleep=router.sleep).run()
        waking.cancel()
        assert counted(real) == counted(taken)
        assert await asyncio.to_thread(heard, replay_url) == events
