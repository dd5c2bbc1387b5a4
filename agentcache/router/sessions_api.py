"""The router's sessions API: `/v1/sessions` and the two calls that SGLang's clients know.

Every session is the caller's tenant's: another tenant's id is an unknown one. Headers of requests are forgiven, this
API is not: what is malformed or cannot be is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agentcache import wire
from agentcache.errors import CacheError, Kind
from agentcache.router.context import Router
from agentcache.router.holders import Holders
from agentcache.router.pausing import Pausing
from agentcache.router.retaining import wishes
from agentcache.router.session_json import (
    NAMED_CHILDREN,
    closed_json,
    opened_json,
    preview_json,
    record_json,
    view_json,
)
from agentcache.router.tenants import Tenant
from agentcache.store.api import (
    DEPTH,
    CloseVerdict,
    Note,
    NoteKind,
    Opened,
    Opening,
    OpenVerdict,
    SessionRecord,
    SessionRef,
)
from agentcache.types import ReleaseMode, SessionState
from agentcache.web.body import parse_object, read_body, unless_gone
from agentcache.web.fields import Fields
from agentcache.web.headers import RequestHeaders
from agentcache.web.naming import named_id
from agentcache.web.query import query_flag, read_query
from agentcache.web.reply import Json, json_response
from agentcache.web.retention import Leases
from agentcache.web.session_fields import (
    Pause,
    fence_in,
    fence_of,
    fork_of,
    mode_of,
    on_close_of,
    parent_of,
    pause_of,
    ttl_of,
)
from agentcache.web.status import error_answer, error_headers, refuse

PAGE: Final = 100
MAX_PAGE: Final = 1000
MAX_SHOWN: Final = 1000
"""Sessions of a family that a preview asks for."""
NO_PAUSE: Final = Pause("", 0.0)
IN_DOUBT: Final = "unknown"
"""The state of a session whose close was sent to a store that did not answer."""


@dataclass(frozen=True, slots=True)
class _Close:
    """What a close asks for. `mode` "": each session's own `on_close`."""

    generation: int | None
    mode: str
    alone: bool = False


class SessionsApi:
    """Handlers over one router's session store."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._holders = Holders(router.fleet.find, router.upstream.get, router.signer.bearer)
        self._pausing = Pausing(router.fleet.find, router.upstream.post, router.signer.bearer)
        self._leases = wishes(router.settings).leases

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
        ]

    async def open(self, request: Request) -> Response:
        """Open: `{session_id?, parent_session_id?, ttl_s?, fence?, fork?, on_close?}`. An open one stays as it is."""
        tenant, fields = self._tenant(request), await self._fields(request)
        asked_s = ttl_of(fields)
        opening = Opening(
            parent=parent_of(fields),
            ttl_s=self._leases.clipped(asked_s),
            fence=fields.flag("fence"),
            fork=fork_of(fields),
            on_close=on_close_of(fields),
            limit=tenant.session_limit,
        )
        ref = self._new_ref(tenant, fields)
        opened = await self._open(ref, opening)
        status = 201 if opened.verdict is OpenVerdict.CREATED else 200
        said = await _leased(self._router, self._leases, ref, "ttl_s", asked_s)
        return json_response(status, opened_json(ref.session, opened), said)

    async def list(self, request: Request) -> Response:
        """The tenant's open sessions, oldest first: `?limit=&after=`; `after` of the answer goes on."""
        tenant, query = self._tenant(request), read_query(request)
        limit, after = _limit(query), _after(query)
        page = await self._router.store.list(tenant.name, after, limit)
        return json_response(
            200,
            {
                "object": "list",
                "data": [record_json(record) for record in page.records],
                "has_more": bool(page.after),
                "after": page.after or None,
                "open_sessions": page.open_sessions,
                "session_limit": tenant.session_limit or None,
            },
        )

    async def look(self, request: Request) -> Response:
        """One session: where it is, and what its holders have of it by component and tier."""
        record = await self._known(_path_ref(self._tenant(request), request), NAMED_CHILDREN)
        asked = await self._holders.ask(record.ref, record.holders)
        return json_response(200, view_json(record, asked))

    async def close(self, request: Request) -> Response:
        """Close with all descendants: `?generation=&mode=release|demote|drop|preview`. Again: the same answer."""
        ref, query = _path_ref(self._tenant(request), request), read_query(request)
        fence, mode = fence_of(request, query.get("generation", "")), mode_of(query)
        asked = _Close(fence, mode or "", _alone(query))
        if mode is ReleaseMode.PREVIEW:
            return await unless_gone(request.receive, self._preview(ref, asked))
        if asked.alone and (await self._known(ref)).children:
            raise refuse(
                "a session is closed with its descendants; close these first, or leave subtree out", "subtree"
            )
        return await self._closed(ref, asked)

    async def touch(self, request: Request) -> Response:
        """Renew the session's lease: `{generation?}`."""
        return await self._note(request, await self._fields(request), NoteKind.TOUCH)

    async def pause(self, request: Request) -> Response:
        """Say that the session waits: `{tool?, expected_s?, generation?}`. Its next request, or `resume`, ends it."""
        fields = await self._fields(request)
        return await self._note(request, fields, NoteKind.PAUSE, pause_of(fields))

    async def resume(self, request: Request) -> Response:
        """Say that the session goes on: `{generation?}`."""
        return await self._note(request, await self._fields(request), NoteKind.RESUME)

    async def open_sglang(self, request: Request) -> Response:
        """SGLang's open: `{capacity_of_str_len, session_id?, timeout?}` → the id. The capacity is not read."""
        tenant, fields = self._tenant(request), await self._fields(request, or_query=True)
        asked_s = ttl_of(fields, "timeout")
        opening = Opening(ttl_s=self._leases.clipped(asked_s), limit=tenant.session_limit)
        ref = self._new_ref(tenant, fields)
        await self._open(ref, opening)
        said = await _leased(self._router, self._leases, ref, "timeout", asked_s)
        return json_response(200, ref.session, said)

    async def close_sglang(self, request: Request) -> Response:
        """SGLang's close: `{session_id}` → 200 with an empty body."""
        tenant, fields = self._tenant(request), await self._fields(request, or_query=True)
        named = named_id(fields.text("session_id"), "session_id")
        closed = await self._closed(SessionRef(tenant.name, named), _Close(None, ""))
        return Response(status_code=200) if closed.status_code == 200 else closed

    # inside

    async def _open(self, ref: SessionRef, opening: Opening) -> Opened:
        """Errors: every verdict that opens nothing, by name."""
        self._router.require_open()
        opened = await self._router.store.open(ref, opening)
        match opened.verdict:
            case OpenVerdict.NO_PARENT:
                raise CacheError(
                    Kind.SESSION_UNKNOWN, "no open session has the parent's id; open it first", param="parent"
                )
            case OpenVerdict.PARENT_CLOSED:
                raise CacheError(
                    Kind.SESSION_CLOSED, "the parent is closed; open it again first", param="parent"
                )
            case OpenVerdict.CYCLE:
                raise refuse("the parent is the session itself, or descends from it", "parent")
            case OpenVerdict.TOO_DEEP:
                raise refuse(
                    f"a session has at most {DEPTH} sessions above it: name a parent higher up", "parent"
                )
            case OpenVerdict.LIMITED:
                raise CacheError(
                    Kind.SESSION_LIMIT, _limit_said(ref.tenant, opened.open_sessions, opening.limit)
                )
        return opened

    async def _closed(self, ref: SessionRef, asked: _Close) -> Response:
        try:
            answer = await self._router.closer.close(ref, asked.generation, asked.mode)
        except CacheError as error:
            if error.kind is not Kind.STORE_FAILED:
                raise
            return _in_doubt(ref, error)
        if answer.verdict is CloseVerdict.STALE:
            raise _stale(answer.generation)
        if answer.verdict is CloseVerdict.UNKNOWN:
            raise _unknown()
        return json_response(200, closed_json(ref.session, answer, asked.mode))

    async def _preview(self, ref: SessionRef, asked: _Close) -> Response:
        """What a close would let go of, of at most `MAX_SHOWN` sessions.

        Cost: a call to every holder; with descendants the tenant's whole list.
        """
        record = await self._known(ref)
        if asked.generation not in (None, record.generation):
            raise _stale(record.generation)
        family = await self._descendants(record) if record.children and not asked.alone else ()
        shown = (record, *family)[:MAX_SHOWN]
        answers = await self._holders.ask_all([(one.ref, one.holders) for one in shown])
        own, *below = [preview_json(one, said) for one, said in zip(shown, answers, strict=True)]
        return json_response(200, {**own, "children": below, "more": len(family) >= len(shown)})

    async def _descendants(self, root: SessionRecord) -> tuple[SessionRecord, ...]:
        """Those of an open session, parents first."""
        below: dict[str, list[SessionRecord]] = {}
        after = ""
        while True:
            page = await self._router.store.list(root.ref.tenant, after, MAX_PAGE)
            for record in page.records:
                below.setdefault(record.parent, []).append(record)
            after = page.after
            if not after:
                break
        found = [root]
        for record in found:
            found += below.pop(record.ref.session, [])
        return tuple(found[1:])

    async def _note(
        self, request: Request, fields: Fields, kind: NoteKind, pause: Pause = NO_PAUSE
    ) -> Response:
        tenant, fence = self._tenant(request), fence_in(request, fields)
        ref, heard = _path_ref(tenant, request), kind is NoteKind.TOUCH or tenant.hints
        note = Note(kind, fence, pause.tool, pause.expected_s) if heard else Note(NoteKind.TOUCH, fence)
        record = await self._router.store.note(ref, note)
        if record.state == SessionState.CLOSED:
            raise CacheError(
                Kind.SESSION_CLOSED, "the session is closed; open it again with POST /v1/sessions"
            )
        if record.state != SessionState.OPEN:
            raise _unknown()
        if fence not in (None, record.generation):
            raise _stale(record.generation)
        if note.kind is not NoteKind.TOUCH:
            self._router.waits.spoken(ref)
        await self._pausing.tell(record, note)
        return json_response(200, record_json(record), {} if heard else {wire.HINTS: "ignored"})

    async def _known(self, ref: SessionRef, children: int = 0) -> SessionRecord:
        """Errors: CacheError(SESSION_UNKNOWN), whoever else may have a session of this name."""
        record = await self._router.store.look(ref, children)
        if record.state not in (SessionState.OPEN, SessionState.CLOSED):
            raise _unknown()
        return record

    def _tenant(self, request: Request) -> Tenant:
        return self._router.tenants.authenticate(RequestHeaders(request.scope["headers"]))

    def _new_ref(self, tenant: Tenant, fields: Fields) -> SessionRef:
        """The session that is named, or one with a new name."""
        named = fields.text("session_id") if fields.has("session_id") else self._router.new_id()
        return SessionRef(tenant.name, named_id(named, "session_id"))

    async def _fields(self, request: Request, or_query: bool = False) -> Fields:
        """The body's fields; where there are none the query's, for calls that may come as GET."""
        body = await read_body(
            request.scope, request.receive, self._router.settings.body_limit_bytes, "router"
        )
        fields = parse_object(body)
        return fields if fields.values or not or_query else Fields({**read_query(request)})


async def _leased(
    router: Router, leases: Leases, ref: SessionRef, name: str, asked_s: float
) -> Mapping[str, str]:
    """What became of a lease that an open asked for, as a header; none where it asked for none."""
    if not asked_s:
        return {}
    return leases.opened(name, asked_s, (await router.store.look(ref)).ttl_s)


def _path_ref(tenant: Tenant, request: Request) -> SessionRef:
    return SessionRef(tenant.name, named_id(request.path_params["session"], "session_id"))


def _alone(query: dict[str, str]) -> bool:
    """Whether the descendants are expressly not meant."""
    return "subtree" in query and not query_flag(query, "subtree")


def _limit(query: Mapping[str, str]) -> int:
    said = query.get("limit", str(PAGE))
    if not (said.isascii() and said.isdigit() and len(said) < 5 and 1 <= int(said) <= MAX_PAGE):
        raise refuse(f"limit must be a whole number from 1 to {MAX_PAGE}", "limit")
    return int(said)


def _after(query: Mapping[str, str]) -> str:
    """A place in the list, as it was answered."""
    said = query.get("after", "")
    if said and not (said.isascii() and said.isdigit() and len(said) < 20):
        raise refuse("after must be what the page before answered as after", "after")
    return said


def _limit_said(tenant: str, open_sessions: int, limit: int) -> str:
    return (
        f"{tenant} has {open_sessions} open sessions and may have {limit}: close some, let them idle out with a "
        "shorter ttl_s, or have session_limit raised"
    )


def _unknown() -> CacheError:
    return CacheError(Kind.SESSION_UNKNOWN, "no session has this id; open it with POST /v1/sessions")


def _stale(generation: int) -> CacheError:
    return CacheError(Kind.SESSION_STALE, "the session has another generation now", current=generation)


def _in_doubt(ref: SessionRef, error: CacheError) -> Response:
    status, body = error_answer(
        CacheError(
            error.kind, "the session store did not answer: the session may be closed or not; close it again"
        )
    )
    said: Json = {**body, "session_id": ref.session, "state": IN_DOUBT}
    return json_response(status, said, {**error_headers(error), wire.STATE: IN_DOUBT})
