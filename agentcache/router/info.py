"""What a router says about itself and its workers: models, health, metrics, and the operator's view."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agentcache.errors import CacheError, Kind
from agentcache.router.context import Router
from agentcache.router.fleet import WorkerView
from agentcache.router.forwarding import OURS
from agentcache.router.settings import RouterSettings
from agentcache.web.headers import RequestHeaders
from agentcache.web.reply import json_response
from agentcache.web.status import error_body

MODELS_S: Final = 2.0
"""How long a worker may take to say which models it serves."""

Json = dict[str, Any]


class InfoRoutes:
    """The simple endpoints."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{model:path}", self.model, methods=["GET"]),
            Route("/v1/workers", self.workers, methods=["GET"]),
            Route("/v1/workers/{worker:path}/drain", self.drain, methods=["POST"]),
            Route("/v1/workers/{worker:path}/undrain", self.undrain, methods=["POST"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/ready", self.ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]

    async def models(self, request: Request) -> Response:
        """Every model that a worker serves, once."""
        self._router.tenants.authenticate(_headers(request))
        return json_response(200, {"object": "list", "data": list((await self._models(request)).values())})

    async def model(self, request: Request) -> Response:
        self._router.tenants.authenticate(_headers(request))
        found, name = await self._models(request), request.path_params["model"]
        if name in found:
            return json_response(200, found[name])
        said = f"no worker serves {name!r}; GET /v1/models lists what there is"
        return json_response(404, error_body(404, said, "model_not_found", "model"))

    async def workers(self, request: Request) -> Response:
        """All workers as this process sees them."""
        self._router.tenants.require_admin(_headers(request))
        listed = [_shown(view) for view in sorted(self._router.fleet.views(), key=lambda view: view.id)]
        return json_response(
            200, {"object": "list", "data": listed, "predictions": str(self._router.chooser.mode)}
        )

    async def drain(self, request: Request) -> Response:
        """Send a worker no new sessions; those that it has move with their next request."""
        return await self._marked(request, draining=True)

    async def undrain(self, request: Request) -> Response:
        return await self._marked(request, draining=False)

    async def health(self, _request: Request) -> Response:
        """200 while this process answers."""
        return json_response(200, {"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """200 while new work can be served.

        Errors  CacheError(SHUTTING_DOWN, STORE_FAILED, NO_WORKER)
        """
        router = self._router
        router.require_open()
        if router.ended_loop:
            said = (
                f"the loop {router.ended_loop!r} of this process has ended, its log says why: start it again"
            )
            return json_response(503, error_body(503, said, "background_ended"))
        usable = sum(view.answers for view in router.fleet.views())
        if router.settings.without_store == "refuse":
            router.store_state.require()
        if not usable and not router.store_state.up:
            said = "the session store is away, the log says why; and no worker that was known answers"
            raise CacheError(Kind.STORE_FAILED, said)
        if not usable:
            there = _who_is_there(router.fleet.views())
            raise CacheError(Kind.NO_WORKER, f"{there}; {_how_to_join(router.settings)}")
        store = "up" if router.store_state.up else "down"
        return json_response(200, {"status": "ready", "workers": usable, "store": store})

    async def metrics(self, _request: Request) -> Response:
        text = self._router.metrics.render(self._router.fleet.views(), self._router.store_state.up)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _marked(self, request: Request, draining: bool) -> Response:
        router, worker = self._router, request.path_params["worker"]
        router.tenants.require_admin(_headers(request))
        view = router.fleet.find(worker)
        if view and view.kind != OURS:
            said = "only workers of ours can be drained; take this server out of --upstream"
            raise CacheError(Kind.BAD_REQUEST, said, worker=worker)
        if not await router.store.drain(worker, draining):
            said = f"no worker is called {worker!r}; GET /v1/workers lists them"
            return json_response(404, error_body(404, said, "not_found", "worker"))
        await router.fleet.refresh(router.store)
        return json_response(200, {"worker": worker, "draining": draining})

    async def _models(self, request: Request) -> Mapping[str, Json]:
        """What the workers answer, by name; one of several workers with the same models is asked."""
        asked: dict[tuple[str, ...], WorkerView] = {}
        for view in self._router.fleet.views():
            if view.alive:
                asked.setdefault(view.models or (view.id,), view)
        lists = await asyncio.gather(*(self._listed(view, request) for view in asked.values()))
        return {model["id"]: model for models in reversed(lists) for model in models}

    async def _listed(self, view: WorkerView, request: Request) -> list[Json]:
        forwards = view.kind != OURS and self._router.settings.forward_keys
        keys = {
            name: request.headers[name]
            for name in ("authorization", "x-api-key")
            if forwards and name in request.headers
        }
        try:
            reply = await self._router.upstream.get(f"{view.url}/v1/models", keys, MODELS_S)
            data = json.loads(reply.body)["data"] if reply.status == 200 else []
            return [model for model in data if isinstance(model, dict) and isinstance(model.get("id"), str)]
        except (CacheError, ValueError, KeyError, TypeError, RecursionError):
            return []


def _who_is_there(views: Iterable[WorkerView]) -> str:
    """In place of workers that answer."""
    alive = [view for view in views if view.alive]
    if any(view.usable for view in alive):
        return "the workers that are there compute prompts only"
    return "the workers that are there are draining" if alive else "no worker is alive"


def _how_to_join(settings: RouterSettings) -> str:
    if settings.redis_url:
        return "start one with this router's --redis-url and --secret-file"
    return "start one with this router's --router-dir"


def _headers(request: Request) -> RequestHeaders:
    return RequestHeaders(request.headers.raw)


def _shown(view: WorkerView) -> Json:
    card = view.card
    return {
        "id": view.id,
        "url": view.url,
        "kind": view.kind,
        "alive": view.alive,
        "draining": view.draining,
        "state": "not_alive" if not view.alive else "draining" if view.draining else "alive",
        "waiting": view.waiting,
        "running": view.running,
        "seats": view.seats,
        "in_flight_here": view.in_flight,
        "models": list(view.models),
        "incarnation": card.incarnation if card else "",
        "role": card.role if card else "",
        "drain": f"/v1/workers/{quote(view.id)}/drain",
    }
