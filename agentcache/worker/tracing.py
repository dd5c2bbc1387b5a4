"""What a worker tells of its requests in spans: where the time went, and what the cache had.

POST /v1/…              the request, from arrival to the end of its answer
  agentcache.queue      until the engine took it out of its queue
    agentcache.l3       the end of that: a seat was free, and its prefix still on its way from the external store
  agentcache.match      the look into the cache
  agentcache.promote    until what was found is on the device, and there is room for what it will publish
  agentcache.prefill    until its first token
  agentcache.decode     until its last
"""

import time
from collections.abc import Iterator
from typing import Final, Protocol

from starlette.types import ASGIApp

from agentcache.clock import Clock
from agentcache.config import Settings
from agentcache.engine.api import Course
from agentcache.ids import unscoped
from agentcache.types import SessionId
from agentcache.web.spans import (
    OPERATIONS,
    PROVIDER,
    Attributes,
    TracedEndpoint,
    Tracer,
    Value,
    http_attributes,
    known,
    open_tracer,
)
from agentcache.worker.tally import NOT_ADMITTED, Tally

SERVICE: Final = "agentcache-worker"


class Tracing(Protocol):
    """Puts a span around a generating endpoint, and tells what became of the request."""

    def endpoint(self, app: ASGIApp, route: str) -> ASGIApp: ...

    def ended(self, route: str, model: str, tally: Tally, now_ns: int) -> None:
        """What is known of the request that is served here, at its end."""

    def close(self) -> None:
        """Send what is left. Blocks for a moment."""


class NoTracing:
    """Tells nothing."""

    def endpoint(self, app: ASGIApp, route: str) -> ASGIApp:
        return app

    def ended(self, route: str, model: str, tally: Tally, now_ns: int) -> None:
        """Dropped."""

    def close(self) -> None:
        """Nothing is left."""


NO_TRACING: Final = NoTracing()


def tracing_of(settings: Settings, clock: Clock) -> Tracing:
    """What the settings ask for. Errors: BAD_CONFIG, as `open_tracer`."""
    return SpanTracing(open_tracer(SERVICE, clock, time.time_ns)) if settings.otel else NO_TRACING


class SpanTracing:
    """Tells it in spans of a tracer."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def endpoint(self, app: ASGIApp, route: str) -> ASGIApp:
        return TracedEndpoint(self._tracer, app, route)

    def ended(self, route: str, model: str, tally: Tally, now_ns: int) -> None:
        request = self._tracer.request
        request.tell(http_attributes(route, tally.status) | _request(route, model, tally) | _answer(tally))
        if tally.status >= 500:
            request.fail(tally.reason or "fault")
        for name, began_ns, ended_ns, attributes in _parts(tally, now_ns):
            self._tracer.past(name, began_ns, ended_ns, attributes)

    def close(self) -> None:
        self._tracer.close()


def _request(route: str, model: str, tally: Tally) -> dict[str, Value]:
    """Who asked for what. A session is told as its client calls it, and its tenant beside it."""
    request, session = tally.request, tally.admitted.session or ""
    tenant, own = (
        unscoped(SessionId(session)) if request.session and request.session.issued else ("", session)
    )
    told: dict[str, Value] = {
        "gen_ai.operation.name": OPERATIONS.get(route, ""),
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.response.model": model,
        "gen_ai.conversation.id": own,
        "agentcache.tenant": tenant,
        "agentcache.request": request.request_id,
    }
    if request.request_id:
        told["gen_ai.request.max_tokens"] = request.max_tokens
        told["gen_ai.request.temperature"] = request.sampling.temperature
        told["gen_ai.request.top_p"] = request.sampling.top_p
    return known(told)


def _answer(tally: Tally) -> dict[str, Value]:
    """What came of it. An error is told by its kind alone: its words may repeat what a client said."""
    told: dict[str, Value] = {"agentcache.end": tally.reason}
    if tally.status >= 400:
        return told | {"error.type": tally.reason}
    told |= {
        "gen_ai.usage.input_tokens": tally.prompt_tokens,
        "gen_ai.usage.output_tokens": tally.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": tally.cached.total,
        "gen_ai.usage.cache_creation.input_tokens": tally.admitted.written_tokens,
        "gen_ai.response.finish_reasons": [tally.reason],
        "agentcache.session.state": str(tally.admitted.state),
        "agentcache.why": tally.why,
    }
    if tally.first_ns:
        told["gen_ai.response.time_to_first_chunk"] = (tally.first_ns - tally.arrived_ns) / 1e9
    return told


def _matched(tally: Tally) -> Attributes:
    """What the cache had: tokens by tier, the boundary that the turn goes on from, and why no more."""
    admitted, cached = tally.admitted, tally.cached
    told: dict[str, Value] = {
        "agentcache.tokens.prompt": tally.prompt_tokens,
        "agentcache.tokens.full": admitted.full_tokens,
        "agentcache.cached.device": cached.device,
        "agentcache.cached.host": cached.host,
        "agentcache.cached.external": cached.external,
        "agentcache.boundary": cached.total,
        "agentcache.miss.reason": str(admitted.found.why),
        "agentcache.miss.component": str(admitted.found.component),
        "agentcache.miss.token": admitted.found.at,
    }
    if isinstance(admitted.found.changed_at, int):
        told["agentcache.diverged_at"] = admitted.found.changed_at
    return told


_Part = tuple[str, int, int, Attributes]
"""Name, begin, end and attributes."""


def _parts(tally: Tally, now_ns: int) -> Iterator[_Part]:
    """Where the time of a request went that the engine has begun."""
    if tally.admitted is NOT_ADMITTED:
        return
    course, cached = tally.admitted.course, tally.cached
    first_ns = _first_ns(tally, course, now_ns)
    yield "agentcache.queue", course.submitted_ns, course.begun_ns, {}
    if course.awaited_ns:
        brought: Attributes = {"agentcache.cached.external": cached.external}
        yield "agentcache.l3", course.awaited_ns, course.begun_ns, brought
    yield "agentcache.match", course.begun_ns, course.matched_ns, _matched(tally)
    promoted: Attributes = {
        "agentcache.cached.host": cached.host,
        "agentcache.cached.external": cached.external,
    }
    yield "agentcache.promote", course.matched_ns, course.started_ns, promoted
    computed: Attributes = {"agentcache.tokens.computed": tally.prompt_tokens - cached.total}
    yield "agentcache.prefill", course.started_ns, first_ns, computed
    if tally.completion_tokens:
        said: Attributes = {"gen_ai.usage.output_tokens": tally.completion_tokens}
        yield "agentcache.decode", first_ns, now_ns, said


def _first_ns(tally: Tally, course: Course, now_ns: int) -> int:
    """When the first token was there, as exactly as it is known; now, for one that never was."""
    if tally.first_token_ns:
        return course.submitted_ns + tally.first_token_ns
    return tally.first_ns or now_ns
