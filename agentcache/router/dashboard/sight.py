"""What there is to see of a router, gathered anew when somebody looks: from its store, its fleet and its workers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.router.context import Router
from agentcache.router.dashboard.answers import NO_CACHE, NO_SESSION, NO_TREE, Cache, Session, Tree, read
from agentcache.router.dashboard.families import Families, families
from agentcache.router.dashboard.fresh import Fresh
from agentcache.router.dashboard.rates import TIERS, Counted, Moment, Rates
from agentcache.router.fleet import WorkerView
from agentcache.router.forwarding import OURS, session_path
from agentcache.router.holders import Bearer, Get
from agentcache.router.upstream import Reply
from agentcache.store.api import SessionRecord, SessionRef, Store

T = TypeVar("T")
ASK_S: Final = 1.0
"""For one question to a worker, and for all that the store is asked."""
FRESH_S: Final = 2.0
"""How often anything is asked."""
AT_ONCE: Final = 16
"""Questions under way at a time."""
WORKERS: Final = 48
"""The most workers that are asked."""
READ: Final = 1_000
"""The most open sessions that are read, shared evenly by the tenants; those of each that were used last."""
TENANTS: Final = 64
"""The most tenants whose sessions are read."""
BRANCHES: Final = 150
VIEWS: Final = 16


@dataclass(frozen=True, slots=True)
class WorkerSight:
    """A worker. `said`: why `cache` is not what it has now; `as_of_s`: how old it is, negative where there is none."""

    view: WorkerView
    cache: Cache = NO_CACHE
    said: str = ""
    as_of_s: float = -1.0


@dataclass(frozen=True, slots=True)
class Overview:
    """All but what one worker or one session is asked for. `more_workers` were not asked."""

    families: Families
    workers: tuple[WorkerSight, ...]
    more_workers: int
    moments: tuple[Moment, ...]
    store_up: bool


@dataclass(frozen=True, slots=True)
class TreeSight:
    """The tree of a worker, "" for none."""

    worker: str = ""
    tree: Tree = NO_TREE
    said: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """What one worker says of a session."""

    worker: str
    session: Session = NO_SESSION
    said: str = ""


@dataclass(frozen=True, slots=True)
class SessionSight:
    """One session as the store has it, and what its workers say; `now_s` is Unix time."""

    record: SessionRecord
    now_s: float = 0.0
    held: tuple[Held, ...] = ()
    said: str = ""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where it all comes from."""

    store: Store
    tenants: tuple[str, ...]
    workers: Callable[[], tuple[WorkerView, ...]]
    get: Get
    bearer: Bearer
    clock: Clock
    now_ms: Callable[[], int]
    store_up: Callable[[], bool]


def sources(router: Router) -> Sources:
    return Sources(
        router.store,
        router.tenants.names,
        router.fleet.views,
        router.upstream.get,
        router.signer.bearer,
        router.clock,
        router.world.now_ms,
        lambda: router.store_state.up,
    )


class Sight:
    """Asks for what is looked at, each at most once in `FRESH_S` however many look, and for at most `ASK_S`."""

    def __init__(self, sources: Sources) -> None:
        self._from = sources
        self._rates = Rates()
        self._last: dict[str, tuple[int, Cache]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._overviews: Fresh[Overview] = Fresh(sources.clock, FRESH_S, 1)
        self._trees: Fresh[TreeSight] = Fresh(sources.clock, FRESH_S, VIEWS)
        self._sessions: Fresh[SessionSight] = Fresh(sources.clock, FRESH_S, VIEWS)

    async def overview(self) -> Overview:
        """Sessions, workers, and what prompts were read from so far."""
        return await self._overviews.get("", self._overview)

    async def tree(self, worker: str) -> TreeSight:
        """The tree of a worker, of the first that can be asked where none is named."""
        named = worker or next((view.id for view in self._views() if _answers(view)), "")
        return await self._trees.get(named, lambda: self._tree(named))

    async def session(self, ref: SessionRef) -> SessionSight:
        """One session of a tenant; of another than the router has, one that nobody knows."""
        return await self._sessions.get(ref, lambda: self._session(ref))

    # making

    async def _overview(self) -> Overview:
        views = self._views()
        asked = views[:WORKERS]
        found, *workers = await asyncio.gather(self._families(), *(self._worker(view) for view in asked))
        assert isinstance(found, Families)
        seen = tuple(one for one in workers if isinstance(one, WorkerSight))
        names = {view.id for view in views}
        self._last = {worker: last for worker, last in self._last.items() if worker in names}
        self._rates.forget(names)
        now_s = self._from.clock.now_ns() / 1e9
        self._rates.add(now_s, {one.view.id: _counted(one.cache) for one in seen if not one.said})
        return Overview(found, seen, len(views) - len(asked), self._rates.moments(), self._from.store_up())

    async def _families(self) -> Families:
        try:
            async with asyncio.timeout(ASK_S):
                return await self._listed()
        except CacheError as error:
            return Families(said=error.message)
        except TimeoutError:
            return Families(said=f"the session store did not answer within {ASK_S:g} s")

    async def _listed(self) -> Families:
        tenants = self._from.tenants[:TENANTS]
        records: list[SessionRecord] = []
        there = 0
        for tenant in tenants:
            page = await self._from.store.recent(tenant, READ // len(tenants))
            records += sorted(page.records, key=lambda record: record.generation)
            there += max(page.open_sessions, len(page.records))
        said = (
            f"{len(self._from.tenants)} tenants; shown are {TENANTS}" if self._from.tenants != tenants else ""
        )
        return families(records, there - len(records), self._from.now_ms(), said)

    async def _worker(self, view: WorkerView) -> WorkerSight:
        now_ns = self._from.clock.now_ns()
        try:
            cache = await self._ask(view, "/v1/cache", Cache)
        except CacheError as error:
            if view.id not in self._last:
                return WorkerSight(view, said=error.message)
            then_ns, cache = self._last[view.id]
            return WorkerSight(view, cache, error.message, (now_ns - then_ns) / 1e9)
        self._last[view.id] = (now_ns, cache)
        return WorkerSight(view, cache, as_of_s=0.0)

    async def _tree(self, worker: str) -> TreeSight:
        view = self._view(worker)
        if not view:
            return TreeSight(worker, said="no worker has this name now" if worker else "there is no worker")
        try:
            return TreeSight(worker, await self._ask(view, f"/v1/cache/tree?limit={BRANCHES}", Tree))
        except CacheError as error:
            return TreeSight(worker, said=error.message)

    async def _session(self, ref: SessionRef) -> SessionSight:
        nobody = SessionRecord(ref, "none")
        if ref.tenant not in self._from.tenants:
            return SessionSight(nobody)
        try:
            async with asyncio.timeout(ASK_S):
                record = await self._from.store.look(ref)
        except CacheError as error:
            return SessionSight(nobody, said=error.message)
        except TimeoutError:
            return SessionSight(nobody, said=f"the session store did not answer within {ASK_S:g} s")
        held = await asyncio.gather(*(self._held(ref, worker) for worker in record.holders[:WORKERS]))
        return SessionSight(record, self._from.now_ms() / 1000, tuple(held))

    async def _held(self, ref: SessionRef, worker: str) -> Held:
        view = self._view(worker)
        if not view:
            return Held(worker, said="no worker has this name now")
        try:
            return Held(worker, await self._ask(view, session_path(ref.tenant, ref.session), Session))
        except CacheError as error:
            return Held(worker, said=error.message)

    async def _ask(self, view: WorkerView, path: str, kind: type[T]) -> T:
        """Errors: CacheError says why there is no answer."""
        if not view.alive:
            raise _silent("it is not alive")
        if view.kind != OURS:
            raise _silent("it does not say what it has")
        headers = {"authorization": f"Bearer {self._from.bearer(view.id, view.url)}"}
        return read(await self._in_turn(self._from.get(f"{view.url}{path}", headers, ASK_S)), kind)

    async def _in_turn(self, question: Awaitable[Reply]) -> Reply:
        async with self._turns:
            return await question

    def _views(self) -> list[WorkerView]:
        return sorted(self._from.workers(), key=lambda view: view.id)

    def _view(self, worker: str) -> WorkerView | None:
        return next((view for view in self._from.workers() if view.id == worker), None)


def _answers(view: WorkerView) -> bool:
    return view.alive and view.kind == OURS


def _counted(cache: Cache) -> Counted:
    return Counted(cache.prompt_tokens, tuple(cache.cached_tokens.get(tier, 0) for tier in TIERS))


def _silent(why: str) -> CacheError:
    return CacheError(Kind.UPSTREAM_FAILED, why)
