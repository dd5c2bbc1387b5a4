"""The sessions API: `/v1/sessions` and the three calls that SGLang's clients know."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from agentcache.cache import Opened
from agentcache.engine.engine import Engine
from agentcache.errors import CacheError, Kind
from agentcache.records import Paused
from agentcache.types import ReleaseMode, SessionId
from agentcache.web.body import parse_object, read_body
from agentcache.web.fields import Fields
from agentcache.web.naming import named_id
from agentcache.web.query import query_flag, read_query
from agentcache.web.reply import Json, json_response
from agentcache.web.session_fields import (
    fence_in,
    fence_of,
    fork_of,
    mode_of,
    on_close_of,
    parent_of,
    pause_of,
    ttl_of,
)
from agentcache.web.status import refuse
from agentcache.witness import Explained
from agentcache.worker.context import Worker
from agentcache.worker.explaining import UnixTimes, explained_json
from agentcache.worker.session_shapes import closed_json, view_json
from agentcache.worker.tagged import EVERYBODY, Grant, granted

T = TypeVar("T")


class SessionRoutes:
    """Handlers over the cache's session calls; each runs on the engine's thread, between two steps."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._times = UnixTimes(worker.clock, worker.now_s)

    def routes(self) -> list[BaseRoute]:
        both = ["GET", "POST"]
        return [
            Route("/v1/sessions", self.open, methods=["POST"]),
            Route("/v1/sessions", self.list, methods=["GET"]),
            Route("/v1/sessions/{session:any}/touch", self.touch, methods=["POST"]),
            Route("/v1/sessions/{session:any}/pause", self.pause, methods=["POST"]),
            Route("/v1/sessions/{session:any}/resume", self.resume, methods=["POST"]),
            Route("/v1/sessions/{session:any}", self.look, methods=["GET"]),
            Route("/v1/sessions/{session:any}", self.close, methods=["DELETE"]),
            Route("/open_session", self.open_sglang, methods=both),
            Route("/close_session", self.close_sglang, methods=both),
            Route("/flush_cache", self.flush, methods=both),
        ]

    async def open(self, request: Request) -> Response:
        """Open: `{session_id?, parent_session_id?, ttl_s?, fence?, fork?, on_close?}`. An open one stays as it is."""
        fields = await self._fields(request)
        named = fields.text("session_id") if fields.has("session_id") else self._worker.new_id()
        asked_s = ttl_of(fields)
        ttl_s = self._worker.leases.clipped(asked_s) or None
        parent, on_close = parent_of(fields), on_close_of(fields)
        fence, fork = fields.flag("fence"), fork_of(fields)
        opened = await self._open(
            named,
            lambda engine, session: engine.cache.open_session(
                session, parent=parent or None, ttl_s=ttl_s, fence=fence, on_close=on_close, fork=fork
            ),
        )
        said = await _leased(self._worker, opened["session_id"], "ttl_s", asked_s)
        return json_response(201 if opened["created"] else 200, opened, said)

    async def list(self, request: Request) -> Response:
        """The open sessions, and how many markers they keep referenced."""
        grant = granted(request.scope)
        views, stats = await self._on_engine(lambda engine: (engine.cache.sessions(), engine.cache.stats()))
        said = [view_json(view, grant) for view in views if grant.shows(view.session)]
        answer: Json = {"object": "list", "data": said, "open_references": stats.open_references}
        if not grant.tag:
            events = self._worker.happenings
            answer["events"] = {"events_url": events.events_url, "replay_url": events.replay_url}
        return json_response(200, answer)

    async def look(self, request: Request) -> Response:
        """One session: what it holds per component and tier, what it waits for, and why its turns hit or did not."""
        grant = granted(request.scope)
        named = _path_id(request, grant)
        explained = await self._on_engine(_explained(named), grant)
        return json_response(200, explained_json(explained, self._times.start_s(), grant))

    async def close(self, request: Request) -> Response:
        """Close: `?generation=&subtree=&mode=release|demote|drop|preview`. Again: the same answer."""
        grant, query = granted(request.scope), read_query(request)
        named, subtree = _path_id(request, grant), query_flag(query, "subtree")
        mode = mode_of(query)
        if mode is not ReleaseMode.PREVIEW:
            self._require_own_sessions()
        fence = fence_of(request, query.get("generation", ""))
        closed = await self._on_engine(
            lambda engine: engine.cache.close_session(named, generation=fence, subtree=subtree, mode=mode),
            grant,
        )
        return json_response(200, closed_json(closed, grant))

    async def touch(self, request: Request) -> Response:
        """Renew the session's lease: `{generation?}`."""
        fence = fence_in(request, await self._fields(request))
        return await self._note(
            request, lambda engine, named: engine.cache.touch_session(named, generation=fence)
        )

    async def pause(self, request: Request) -> Response:
        """Say that the session waits: `{tool?, expected_s?, generation?}`. Its next request, or `resume`, ends it."""
        fields = await self._fields(request)
        fence, paused = fence_in(request, fields), Paused(*pause_of(fields), fields.flag("learned"))
        return await self._note(
            request, lambda engine, named: engine.cache.pause_session(named, paused, generation=fence)
        )

    async def resume(self, request: Request) -> Response:
        """Say that the session goes on: `{generation?}`."""
        fence = fence_in(request, await self._fields(request))
        return await self._note(
            request, lambda engine, named: engine.cache.pause_session(named, None, generation=fence)
        )

    async def open_sglang(self, request: Request) -> Response:
        """SGLang's open: `{capacity_of_str_len, session_id?, timeout?}` → the id. The capacity is not read."""
        fields = await self._fields(request, or_query=True)
        named = fields.text("session_id") if fields.has("session_id") else self._worker.new_id()
        asked_s = ttl_of(fields, "timeout")
        ttl_s = self._worker.leases.clipped(asked_s) or None
        opened = await self._open(
            named, lambda engine, session: engine.cache.open_session(session, ttl_s=ttl_s)
        )
        said = await _leased(self._worker, opened["session_id"], "timeout", asked_s)
        return json_response(200, opened["session_id"], said)

    async def close_sglang(self, request: Request) -> Response:
        """SGLang's close: `{session_id}` → 200 with an empty body."""
        self._require_own_sessions()
        fields = await self._fields(request, or_query=True)
        named = named_id(fields.text("session_id"), "session_id")
        await self._on_engine(lambda engine: engine.cache.close_session(named))
        return Response(status_code=200)

    async def flush(self, _request: Request) -> Response:
        """Empty the cache; refused while requests run or wait."""
        await self._on_engine(_flush)
        return PlainTextResponse("Cache flushed.\n")

    async def _open(self, named: str, call: Callable[[Engine, SessionId], Opened]) -> Json:
        self._worker.require_open()
        self._require_own_sessions()
        session = named_id(named, "session_id")
        try:
            opened = await self._on_engine(lambda engine: call(engine, session))
        except CacheError as error:
            if "parent" not in error.facts:
                raise
            raise CacheError(error.kind, error.message, **{**error.facts, "param": "parent"}) from None
        return {
            "object": "session",
            "session_id": opened.session,
            "generation": opened.generation,
            "created": opened.created,
        }

    async def _note(self, request: Request, note: Callable[[Engine, SessionId], None]) -> Response:
        grant = granted(request.scope)
        named = _path_id(request, grant)
        await self._on_engine(lambda engine: note(engine, named), grant)
        return json_response(200, await self._view(grant, named))

    async def _view(self, grant: Grant, named: SessionId) -> Json:
        return view_json(await self._on_engine(lambda engine: engine.cache.session(named), grant), grant)

    def _require_own_sessions(self) -> None:
        """Errors: CacheError(BAD_REQUEST) behind a router, which alone opens and closes."""
        if self._worker.gate.guarded:
            raise refuse("sessions of this worker are its routers': open and close them there", "session_id")

    async def _fields(self, request: Request, or_query: bool = False) -> Fields:
        """The body's fields; where there are none the query's, for calls that may come as GET."""
        body = await read_body(request.scope, request.receive, self._worker.body_limit_bytes)
        fields = parse_object(body)
        return fields if fields.values or not or_query else Fields({**read_query(request)})

    async def _on_engine(self, function: Callable[[Engine], T], grant: Grant = EVERYBODY) -> T:
        try:
            return await self._worker.thread.call(function)
        except CacheError as error:
            raise grant.in_own_words(error) from None


async def _leased(worker: Worker, session: object, name: str, asked_s: float) -> Mapping[str, str]:
    """What became of a lease that an open asked for, as a header; none where it asked for none."""
    if not asked_s:
        return {}
    view = await worker.thread.call(lambda engine: engine.cache.session(str(session)))
    return worker.leases.opened(name, asked_s, view.ttl_s)


def _explained(named: SessionId) -> Callable[[Engine], Explained]:
    return lambda engine: engine.cache.witness.explain(engine.cache.session(named))


def _flush(engine: Engine) -> None:
    if engine.active():
        raise CacheError(Kind.IN_USE, "requests are running or waiting: flush when the worker is idle")
    engine.cache.flush()


def _path_id(request: Request, grant: Grant) -> SessionId:
    return grant.session(request.path_params["session"], "session_id")
