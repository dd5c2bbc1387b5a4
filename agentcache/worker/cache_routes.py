"""The cache as the worker shows it, `/v1/cache`, and its external store, which may come and go at run time."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agentcache.build import open_store
from agentcache.config import TierSettings, other_store, without_password
from agentcache.engine.engine import Engine
from agentcache.errors import CacheError, Kind
from agentcache.stats import CacheStats, PoolUse
from agentcache.tree.api import CoreConfig
from agentcache.types import Checkpoint, ComponentName, ComponentSpec, TierName
from agentcache.views import ABSENT, Branch, ExternalStatus, Outline
from agentcache.web.body import parse_object, read_body
from agentcache.web.fields import Fields
from agentcache.web.query import read_query
from agentcache.web.reply import Json, json_response
from agentcache.web.status import refuse
from agentcache.worker.context import Worker
from agentcache.worker.metrics import SLOT_STATES

T = TypeVar("T")
MOST_BRANCHES: Final = 1000
_SETTINGS: Final = {"backend": "l3", "path": "l3_path", "url": "l3_url", "mib": "l3_mib"}
_ORIGINS: Final = {setting: f"{field!r} of the request" for field, setting in _SETTINGS.items()}


class CacheRoutes:
    """What lies where, and the external store. One store is attached at a time, by one request at a time."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._changing = asyncio.Lock()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/cache", self.look, methods=["GET"]),
            Route("/v1/cache/tree", self.tree, methods=["GET"]),
            Route("/v1/cache/external", self.status, methods=["GET"]),
            Route("/v1/cache/external", self.attach, methods=["PUT"]),
            Route("/v1/cache/external", self.detach, methods=["DELETE"]),
        ]

    async def look(self, _request: Request) -> Response:
        """Residency by tier and component, hits by tier, the external store, and the policies."""
        config, stats = await self._on_engine(lambda engine: (engine.cache.config, engine.cache.stats()))
        said = cache_json(config, stats, self._worker.tiers)
        return json_response(200, {**said, "core": self._worker.info.core})

    async def tree(self, request: Request) -> Response:
        """The branches of the radix tree that were used last: `?limit=`, 100 if not said and at most 1,000."""
        asked = read_query(request).get("limit", "100")
        if not (
            asked.isascii() and asked.isdecimal() and len(asked) < 5 and 1 <= int(asked) <= MOST_BRANCHES
        ):
            raise refuse(f"limit is a number from 1 to {MOST_BRANCHES}", "limit")
        outline, now_ns = await self._on_engine(lambda engine: engine.cache.outline(int(asked)))
        return json_response(200, tree_json(outline, now_ns))

    async def status(self, _request: Request) -> Response:
        return json_response(200, external_json(await self._status()))

    async def attach(self, request: Request) -> Response:
        """Attach a store: `{backend, path?, url?, mib?}`. What cannot be opened is the request's fault."""
        self._worker.require_open()
        fields = parse_object(await read_body(request.scope, request.receive, self._worker.body_limit_bytes))
        try:
            await self._attach(wanted_store(fields, self._worker.tiers))
        except CacheError as error:
            if error.kind is not Kind.BAD_CONFIG:
                raise
            raise CacheError(Kind.BAD_REQUEST, error.message, **error.facts) from None
        return json_response(200, external_json(await self._status()))

    async def detach(self, _request: Request) -> Response:
        """Let go of the store; what lies in it stays there. Without one: the same answer."""
        async with self._changing:
            await self._on_engine(lambda engine: engine.detach())
        return json_response(200, external_json(await self._status()))

    async def _attach(self, wanted: TierSettings) -> None:
        async with self._changing:
            if (await self._status()).state != ABSENT:
                raise CacheError(
                    Kind.IN_USE, "an external store is attached: DELETE /v1/cache/external first"
                )
            store = await asyncio.to_thread(open_store, wanted)
            try:
                await self._on_engine(lambda engine: engine.attach(store))
            except Exception:
                await asyncio.to_thread(store.close)
                raise

    async def _status(self) -> ExternalStatus:
        return await self._on_engine(lambda engine: engine.cache.stats().external)

    async def _on_engine(self, function: Callable[[Engine], T]) -> T:
        return await self._worker.thread.call(function)


def wanted_store(fields: Fields, tiers: TierSettings) -> TierSettings:
    """The worker's tiers with the store that a request names. Errors: BAD_REQUEST, BAD_CONFIG."""
    for name in fields.values.keys() - _SETTINGS.keys():
        raise refuse(f"{name} is no field of a store; there are {', '.join(_SETTINGS)}", name)
    backend = fields.text("backend")
    if backend in ("", "none"):
        raise refuse("backend must name a store: file, redis, mooncake or memory", "backend")
    changes = {
        "l3": backend,
        "l3_path": fields.text("path"),
        "l3_url": fields.text("url"),
        "l3_mib": fields.number("mib", TierSettings().l3_mib, 0.0, 1e12),
    }
    return other_store(tiers, changes, _ORIGINS)


def cache_json(config: CoreConfig, stats: CacheStats, tiers: TierSettings) -> Json:
    """What `/v1/cache` shows. Counts of hits are since the start, all else is now."""
    return {
        "object": "cache",
        "page_tokens": config.page_tokens,
        "grid_tokens": config.grid,
        "eviction_policy": str(config.order),
        "eviction_base": str(config.base),
        "write_policy": str(config.write_policy),
        "prefetch": tiers.prefetch,
        "tiers": {tier: _tier(config, stats.pools, tier) for tier in (TierName.DEVICE, TierName.HOST)},
        "external": external_json(stats.external),
        "prompt_tokens": stats.turns.prompt_tokens,
        "cached_tokens": {tier: stats.turns.cached_by_tier.get(tier, 0) for tier in TierName},
        "prefetched_tokens": stats.prefetched_tokens,
        "promoted": asdict(stats.returns),
        "hit_rate": round(stats.hit_rate, 6),
        "jobs_in_flight": stats.jobs_in_flight,
    }


def tree_json(outline: Outline, now_ns: int) -> Json:
    """What `/v1/cache/tree` shows. Positions in tokens, residency in slots; namespaces by a part of their digest."""
    return {
        "object": "cache.tree",
        "branches": [_branch(branch, now_ns) for branch in outline.branches],
        "more": outline.more,
    }


def _branch(branch: Branch, now_ns: int) -> Json:
    resident: dict[str, dict[str, int]] = {}
    for component, tier, count in branch.resident:
        resident.setdefault(tier, {})[component] = count
    return {
        "parent": branch.parent if branch.parent >= 0 else None,
        "start": branch.start,
        "end": branch.end,
        "reusable": branch.reusable,
        "namespace": branch.namespace[:8],
        "resident": resident,
        "referenced_pages": branch.referenced,
        "running_pages": branch.running,
        "markers": branch.markers,
        "idle_s": round((now_ns - branch.used_ns) / 1e9, 3),
    }


def external_json(status: ExternalStatus) -> Json:
    """The store as it is now; addresses and errors without passwords."""
    shown = {name: without_password(getattr(status, name)) for name in ("address", "error")}
    return {"object": "cache.external", **asdict(status), **shown}


def _tier(config: CoreConfig, pools: Iterable[PoolUse], tier: TierName) -> dict[ComponentName, Json]:
    specs = {spec.name: spec for spec in config.specs}
    here = [use for use in pools if use.pool.tier is tier]
    return {use.pool.component: _pool(use, specs[use.pool.component], config.page_tokens) for use in here}


def _pool(use: PoolUse, spec: ComponentSpec, page_tokens: int) -> Json:
    slot_tokens = 0 if isinstance(spec.rule, Checkpoint) else page_tokens
    return {
        "slot_tokens": slot_tokens,
        "slot_bytes": spec.slot_bytes,
        "slots": {state: getattr(use, state) for state in SLOT_STATES},
        "cached_tokens": use.cached * slot_tokens,
        "cached_bytes": use.cached * spec.slot_bytes,
    }
