"""What a router tells of its requests in spans. It listens where the router's parts are put together: without it they
are the plain ones, and a request does not know of spans.

    POST /v1/…                    the request, from arrival to the end of its answer
      agentcache.store tag        one for each call of the session store
      agentcache.place            the choice of a worker, once for each attempt
        POST                      /tokenize of a worker, where the choice asks for it
      POST                        to the worker, until its answer begins; the worker's own span lies below
"""

import inspect
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from agentcache.clock import Clock
from agentcache.router.choosing import Asked, Chooser, Chosen, Sources
from agentcache.router.metrics import Facts
from agentcache.router.routes import PassedRoute
from agentcache.router.settings import RouterSettings
from agentcache.router.upstream import Answer, MakeSocket, NoAnswer, Upstreams, watched_socket
from agentcache.store.api import Store
from agentcache.web.headers import RawHeaders
from agentcache.web.spans import (
    OPERATIONS,
    PROVIDER,
    Attributes,
    TracedEndpoint,
    Tracer,
    Value,
    http_attributes,
    known,
    need_otel,
    open_tracer,
    told_by_client,
)

SERVICE: Final = "agentcache-router"
_STORE_CALLS: Final = frozenset({"open", "tag", "assign", "look", "close", "raise_above"})
"""What requests wait for."""


class Tracing(Protocol):
    """Makes the parts of a router whose work is told, and tells what the request says and what became of it."""

    def endpoint(self, app: ASGIApp, route: PassedRoute) -> ASGIApp: ...

    def store(self, store: Store) -> Store: ...

    def upstreams(self) -> Upstreams: ...

    def chooser(self, sources: Sources) -> Chooser: ...

    def asked(self, fields: Mapping[str, Any]) -> None:
        """The body of the request that is served here."""

    def ended(self, facts: Facts) -> None:
        """What is known of the request that is served here, at its end."""

    def close(self) -> None:
        """Send what is left. Blocks for a moment."""


class NoTracing:
    """Tells nothing: all parts are the plain ones."""

    def endpoint(self, app: ASGIApp, route: PassedRoute) -> ASGIApp:
        return app

    def store(self, store: Store) -> Store:
        return store

    def upstreams(self) -> Upstreams:
        return Upstreams()

    def chooser(self, sources: Sources) -> Chooser:
        return Chooser(sources)

    def asked(self, fields: Mapping[str, Any]) -> None:
        """Dropped."""

    def ended(self, facts: Facts) -> None:
        """Dropped."""

    def close(self) -> None:
        """Nothing is left."""


NO_TRACING: Final = NoTracing()


def need_tracing(settings: RouterSettings) -> None:
    """Errors: BAD_CONFIG where spans are asked for that nothing here could make."""
    if settings.otel:
        need_otel()


def tracing_of(settings: RouterSettings, clock: Clock) -> Tracing:
    """What the settings ask for. Errors: BAD_CONFIG, as `open_tracer`."""
    return SpanTracing(open_tracer(SERVICE, clock, time.time_ns)) if settings.otel else NO_TRACING


class SpanTracing:
    """Tells it in spans of a tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def endpoint(self, app: ASGIApp, route: PassedRoute) -> ASGIApp:
        return TracedEndpoint(self._tracer, app, route.path) if route.turn else app

    def store(self, store: Store) -> Store:
        return cast(Store, _TracedStore(self._tracer, store))

    def upstreams(self) -> Upstreams:
        return _TracedUpstreams(self._tracer)

    def chooser(self, sources: Sources) -> Chooser:
        return _TracedChooser(self._tracer, sources)

    def asked(self, fields: Mapping[str, Any]) -> None:
        limit = fields.get("max_completion_tokens", fields.get("max_tokens", ""))
        told = {
            "gen_ai.request.model": told_by_client(fields.get("model")),
            "gen_ai.request.max_tokens": limit if type(limit) is int else "",
            "gen_ai.request.stream": fields.get("stream") is True,
        }
        self._tracer.request.tell(known(told))

    def ended(self, facts: Facts) -> None:
        request = self._tracer.request
        request.tell(_ended(facts))
        if facts.status >= 500 or facts.reason in ("broke_off", "fault"):
            request.fail(facts.reason)

    def close(self) -> None:
        self._tracer.close()


class _TracedStore:
    """A store; the calls that requests wait for are parts of them."""

    def __init__(self, tracer: Tracer, store: Store) -> None:
        self._tracer = tracer
        self._store = store

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in _STORE_CALLS or not inspect.iscoroutinefunction(found):
            return found

        async def told(*arguments: Any, **named: Any) -> Any:
            with self._tracer.call(f"agentcache.store {name}") as span:
                span.tell({"db.operation.name": name})
                return await found(*arguments, **named)

        return told


class _TracedUpstreams(Upstreams):
    """Connections; what goes out for a request carries its trace on."""

    def __init__(self, tracer: Tracer, make_socket: MakeSocket = watched_socket) -> None:
        super().__init__(make_socket=make_socket)
        self._tracer = tracer

    async def send(self, method: str, url: str, headers: RawHeaders, body: bytes = b"") -> Answer | NoAnswer:
        with self._tracer.call(method) as span:
            to = urlsplit(url)
            span.tell({"http.request.method": method, "server.address": to.netloc, "url.path": to.path})
            answer = await super().send(method, url, self._tracer.carried(headers), body)
            if isinstance(answer, NoAnswer):
                span.fail(str(answer.failure))
            else:
                span.tell({"http.response.status_code": answer.status})
            return answer


class _TracedChooser(Chooser):
    """Placement as a part of the request."""

    def __init__(self, tracer: Tracer, sources: Sources) -> None:
        super().__init__(sources)
        self._tracer = tracer

    async def choose(self, asked: Asked) -> Chosen:
        with self._tracer.part("agentcache.place") as span:
            chosen = await super().choose(asked)
            span.tell(_chosen(chosen))
            return chosen


def _chosen(chosen: Chosen) -> Attributes:
    looked = (
        {
            "agentcache.tokens.prompt": chosen.prompt_tokens,
            "agentcache.tokens.predicted": chosen.predicted_tokens,
            "agentcache.tokens.best": chosen.best_tokens,
        }
        if chosen.prompt_tokens
        else {}
    )
    return {"agentcache.worker": chosen.worker, "agentcache.placed": chosen.why, **looked}


def _ended(facts: Facts) -> Attributes:
    """An error is told by its kind alone: its words may repeat what a client said."""
    bad, times, tokens = facts.status >= 400, facts.times, dict(facts.tokens.known())
    told: dict[str, Value] = {
        "gen_ai.operation.name": OPERATIONS.get(facts.route, ""),
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.conversation.id": facts.session,
        "agentcache.request": facts.request_id,
        "agentcache.tenant": facts.tenant,
        "agentcache.session.source": facts.source,
        "agentcache.session.state": facts.session_state,
        "agentcache.worker": facts.worker,
        "agentcache.placed": facts.placed,
        "agentcache.attempts": facts.attempts,
        "agentcache.why": "" if bad else facts.why,
        "agentcache.end": facts.reason,
        "agentcache.answer_bytes": facts.answer_bytes,
        "error.type": facts.reason if bad else "",
    }
    told |= {_TOKENS[name]: count for name, count in tokens.items()}
    if times.first_ns:
        told["gen_ai.response.time_to_first_chunk"] = times.seconds(times.first_ns)
    return http_attributes(facts.route, facts.status) | known(told)


_TOKENS: Final = {
    "prompt": "gen_ai.usage.input_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
    "best": "agentcache.tokens.best",
    "predicted": "agentcache.tokens.predicted",
    "prefilled": "agentcache.tokens.prefilled",
}
