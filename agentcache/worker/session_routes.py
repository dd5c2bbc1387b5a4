"""The sessions API: `/v1/sessions` and the three calls that SGLang's clients know."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from agentcache.cache import Closed, Holding, SessionView
from agentcache.engine.engine import Engine
from agentcache.errors import CacheError, Kind
from agentcache.types import ReleaseMode, SessionId
from agentcache.web.body import parse_object, read_body
from agentcache.web.fields import Fields
from agentcache.web.headers import RequestHeaders
from agentcache.web.query import query_flag, read_query
from agentcache.web.reply import Json, json_response
from agentcache.web.status import refuse
from agentcache.wire import GENERATION
from agentcache.worker.context import Worker
from agentcache.worker.headers import read_generation, session_id

T = TypeVar("T")


class SessionRoutes:
    """Handlers over the cache's session calls; each runs on the engine's thread, between two steps."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def routes(self) -> list[BaseRoute]:
        both = ["GET", "POST"]
        return [
            Route("/v1/sessions", self.open, methods=["POST"]),
            Route("/v1/sessions", self.list, methods=["GET"]),
            Route("/v1/sessions/{session:any}", self.look, methods=["GET"]),
            Route("/v1/sessions/{session:any}", self.close, methods=["DELETE"]),
            Route("/open_session", self.open_sglang, methods=both),
            Route("/close_session", self.close_sglang, methods=both),
            Route("/flush_cache", self.flush, methods=both),
        ]

    async def open(self, request: Request) -> Response:
        """Open a session: `{session_id?, parent?, ttl_s?, fence?}`. An open one is answered unchanged."""
        fields = await self._fields(request)
        opened = await self._open(
            fields.text("session_id") if fields.has("session_id") else self._worker.new_id(),
            fields.text("parent") if fields.has("parent") else None,
            fields.number("ttl_s", 0.0, 0.0, 1e9) if fields.has("ttl_s") else None,
            fields.flag("fence"),
        )
        return json_response(201 if opened["created"] else 200, opened)

    async def list(self, _request: Request) -> Response:
        """The open sessions, and how many markers they keep referenced."""
        views, stats = await self._on_engine(lambda engine: (engine.cache.sessions(), engine.cache.stats()))
        said = [view_json(view) for view in views]
        return json_response(200, {"object": "list", "data": said, "open_references": stats.open_references})

    async def look(self, request: Request) -> Response:
        """One session, with what it holds per component and tier."""
        named = _path_id(request)
        return json_response(
            200, view_json(await self._on_engine(lambda engine: engine.cache.session(named)))
        )

    async def close(self, request: Request) -> Response:
        """Close: `?generation=&subtree=&mode=release|demote|drop|preview`. Again: the same answer."""
        query = read_query(request)
        named, subtree = _path_id(request), query_flag(query, "subtree")
        mode = _mode(query.get("mode", ReleaseMode.RELEASE))
        fence = read_generation(query.get("generation", ""), "generation")
        if fence is None:
            fence = read_generation(RequestHeaders(request.scope["headers"]).text(GENERATION), GENERATION)
        closed = await self._on_engine(
            lambda engine: engine.cache.close_session(named, generation=fence, subtree=subtree, mode=mode)
        )
        return json_response(200, closed_json(closed))

    async def open_sglang(self, request: Request) -> Response:
        """SGLang's open: `{capacity_of_str_len, session_id?, timeout?}` → the id. The capacity is not read."""
        fields = await self._fields(request)
        named = fields.text("session_id") if fields.has("session_id") else self._worker.new_id()
        ttl_s = fields.number("timeout", 0.0, 0.0, 1e9) if fields.has("timeout") else None
        opened = await self._open(named, None, ttl_s, False)
        return json_response(200, opened["session_id"])

    async def close_sglang(self, request: Request) -> Response:
        """SGLang's close: `{session_id}` → 200 with an empty body."""
        fields = await self._fields(request)
        named = session_id(fields.text("session_id"), "session_id")
        await self._on_engine(lambda engine: engine.cache.close_session(named))
        return Response(status_code=200)

    async def flush(self, _request: Request) -> Response:
        """Empty the cache; refused while requests run or wait."""
        await self._on_engine(_flush)
        return PlainTextResponse("Cache flushed.\n")

    async def _open(self, named: str, parent: str | None, ttl_s: float | None, fence: bool) -> Json:
        self._worker.require_open()
        session = session_id(named, "session_id")
        above = session_id(parent, "parent") if parent is not None else None
        opened = await self._on_engine(
            lambda engine: engine.cache.open_session(session, parent=above, ttl_s=ttl_s, fence=fence)
        )
        return {
            "object": "session",
            "session_id": opened.session,
            "generation": opened.generation,
            "created": opened.created,
        }

    async def _fields(self, request: Request) -> Fields:
        """The body's fields; for a GET without a body, the query's."""
        body = await read_body(request.scope, request.receive, self._worker.body_limit_bytes)
        fields = parse_object(body)
        return fields if fields.values else Fields({**read_query(request)})

    async def _on_engine(self, function: Callable[[Engine], T]) -> T:
        return await self._worker.thread.call(function)


def view_json(view: SessionView) -> Json:
    """A session as the API shows it. Times in seconds."""
    return {
        "object": "session",
        "session_id": view.session,
        "state": str(view.state),
        "generation": view.generation,
        "closed_through": view.closed_through,
        "parent": view.parent,
        "queued": view.queued,
        "running": view.running,
        "idle_s": view.idle_s,
        "ttl_s": view.ttl_s,
        "markers": view.markers,
        "held": held_json(view.held),
    }


def held_json(held: Iterable[Holding]) -> list[Json]:
    """Tokens, slots and bytes by component and tier."""
    return [{**asdict(part), "tier": str(part.tier)} for part in held]


def closed_json(closed: Closed) -> Json:
    """The answer to a close, with those of its descendants; `mode` is what was done."""
    return {
        "object": "session.closed",
        "session_id": closed.session,
        "state": str(closed.state),
        "generation": closed.generation,
        "mode": str(closed.mode),
        "markers": closed.markers,
        "released": held_json(closed.released),
        "children": [closed_json(child) for child in closed.children],
    }


def _flush(engine: Engine) -> None:
    if engine.active():
        raise CacheError(Kind.IN_USE, "requests are running or waiting: flush when the worker is idle")
    engine.cache.flush()


def _path_id(request: Request) -> SessionId:
    return session_id(request.path_params["session"], "session_id")


def _mode(name: str) -> ReleaseMode:
    if name not in list(ReleaseMode):
        raise refuse(f"mode must be one of {', '.join(ReleaseMode)}", "mode")
    return ReleaseMode(name)
