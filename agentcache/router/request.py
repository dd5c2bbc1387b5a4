"""One request that is passed on, as it goes to a worker, and what its answer says of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from agentcache import wire
from agentcache.router.choosing import Chosen
from agentcache.router.context import Router
from agentcache.router.fleet import WorkerView
from agentcache.router.forwarding import (
    OURS,
    plain_body,
    plain_headers,
    plain_session,
    worker_headers,
)
from agentcache.router.identity import Identity
from agentcache.router.retaining import plainly_kept
from agentcache.router.routes import PassedRoute
from agentcache.router.standing import Standing
from agentcache.router.tenants import Tenant
from agentcache.types import SessionState
from agentcache.web.fields import Fields
from agentcache.web.headers import RawHeaders
from agentcache.web.reply import REQUEST_ID
from agentcache.web.retention import NOTHING_ASKED, Retention


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks what. `headers` as they came, names in lower case; `pinned`: the worker that it insists on, or "".

    `retention`: how long it wants its prompt kept. Our workers say what became of that, for others we do.
    """

    route: PassedRoute
    request_id: str
    tenant: Tenant
    identity: Identity
    salt: str
    fields: Fields
    body: bytes
    headers: RawHeaders
    query: bytes
    pinned: str
    retention: Retention = NOTHING_ASKED

    @property
    def target(self) -> str:
        """Path and query, as they go on."""
        query = self.query.decode("latin-1")
        return f"{self.route.path}?{query}" if query else self.route.path

    @property
    def expected_s(self) -> float:
        """In how many seconds its session is back, as far as its tenant is heard on that; 0: not said."""
        return self.identity.expected_s if self.tenant.hints else 0.0

    @property
    def insists(self) -> bool:
        """Whether it wants no answer rather than one without its session."""
        return self.identity.strict or self.identity.fence is not None


def written(
    router: Router, request: Request, chosen: Chosen, standing: Standing, attempt_id: str
) -> tuple[RawHeaders, bytes]:
    """Headers and body for the worker that was chosen."""
    if chosen.view.kind == OURS:
        tag = _tag(router, request, chosen.view, standing, attempt_id)
        return worker_headers(request.headers, router.signer.sign(tag), attempt_id), request.body
    kind, tenant = chosen.view.kind, request.tenant.name
    headers = plain_headers(kind, tenant, request.headers, attempt_id, router.settings.forward_keys)
    named = plain_session(standing.ref.tenant, standing.ref.session) if standing.referenced else ""
    return headers, plain_body(kind, tenant, request.body, request.fields.values, request.salt, named)


def prefill_headers(
    router: Router, request: Request, view: WorkerView, standing: Standing, attempt_id: str
) -> RawHeaders:
    """Headers for our worker that computes the prompt alone; where its session is over it computes nothing."""
    tag = _tag(router, request, view, standing, attempt_id)
    hinted = replace(tag, hints=replace(tag.hints, strict=True, prefill=True))
    return worker_headers(request.headers, router.signer.sign(hinted), attempt_id)


def _tag(router: Router, request: Request, view: WorkerView, standing: Standing, attempt_id: str) -> wire.Tag:
    """Without a reference a tag names no session: then nothing can register."""
    identity, tagged, held = request.identity, standing.tagged, standing.referenced
    return wire.Tag(
        tenant=request.tenant.name,
        salt=request.salt,
        session=standing.ref.session if held else "",
        generation=tagged.generation if held else 0,
        placement=tagged.placement if held else 0,
        parent=tagged.parent if held else "",
        hints=wire.Hints(
            identity.strict,
            identity.superseded,
            request.expected_s,
            tagged.ttl_s if identity.ttl_s else 0.0,
            request.tenant.kv_hints,
            identity.fork,
        ),
        request_id=attempt_id,
        worker=view.id,
        issued_ms=router.world.now_ms(),
        epoch=tagged.epoch,
        incarnation=view.card.incarnation if view.card else "",
    )


def said(request: Request, chosen: Chosen, standing: Standing, prefill: str = "") -> Mapping[str, str]:
    """Our headers of an answer, in place of the worker's of the same names. `prefill`: who computed its prompt."""
    identity, ours = request.identity, chosen.view.kind == OURS
    told = {
        REQUEST_ID: request.request_id,
        wire.WORKER: chosen.worker,
        wire.ROUTED: f"by {chosen.why}; {identity.said}",
        wire.PREFILL: prefill,
        wire.SESSION: standing.ref.session,
        wire.GENERATION: str(standing.generation or ""),
        wire.STATE: standing.state or ("" if ours else _plain_state(standing)),
        wire.WHY: standing.why,
        wire.HINTS: "ignored" if identity.expected_s != request.expected_s else "",
        wire.PARENT: "ignored" if identity.parent_bad or standing.tagged.parent_ignored else "",
        wire.RETENTION: "" if ours else plainly_kept(request.retention, standing),
    }
    return {name: value for name, value in told.items() if value}


def _plain_state(standing: Standing) -> str:
    return SessionState.OPEN if standing.referenced else SessionState.NONE
