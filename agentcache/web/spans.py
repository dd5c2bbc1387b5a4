"""Spans of requests: what a tracer promises. `otel.py` alone knows OpenTelemetry, and is imported when asked for.

Attributes are named as OpenTelemetry's semantic conventions name them (`gen_ai.*`, `http.*`, `error.type`), else
`agentcache.*`. A session id may be one; what a prompt or an answer says, and keys, never are.
"""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.web.headers import RawHeaders

Value = str | bool | int | float | Sequence[str] | Sequence[int]
Attributes = Mapping[str, Value]

PROVIDER: Final = "agentcache"
OPERATIONS: Final[Mapping[str, str]] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
}
"""`gen_ai.operation.name`, by the path of a generating API."""
LONGEST: Final = 256
"""Characters of what clients say that an attribute keeps."""


class Span(Protocol):
    """One piece of a request's way, until its block ends."""

    def tell(self, attributes: Attributes) -> None:
        """Add attributes; of equal names the last counts."""

    def fail(self, kind: str) -> None:
        """It ended badly: `kind` is what `error.type` will say."""


class Tracer(Protocol):
    """Makes spans. Those of a request lie inside it, whatever task works for it; outside a request there are none."""

    @property
    def request(self) -> Span:
        """The request that is being served here."""

    def serving(self, name: str, headers: RawHeaders) -> AbstractContextManager[Span]:
        """A request from its arrival to its end, in the trace that its client's `traceparent` names."""

    def part(self, name: str) -> AbstractContextManager[Span]:
        """Something done for the request. What is raised inside is told in one word: its kind."""

    def call(self, name: str) -> AbstractContextManager[Span]:
        """As `part`, of something that another server does."""

    def past(self, name: str, began_ns: int, ended_ns: int, attributes: Attributes) -> None:
        """A part of the request that is over, in nanoseconds of the clock."""

    def carried(self, headers: RawHeaders) -> RawHeaders:
        """Headers for another server, which then goes on with this trace."""

    def close(self) -> None:
        """Send what is left, for a moment at most. Blocks."""


class TracedEndpoint:
    """An endpoint with a span around each request, named by method and path. Chunks of the answer pass it by."""

    def __init__(self, tracer: Tracer, app: ASGIApp, path: str) -> None:
        self._tracer = tracer
        self._app = app
        self._name = f"POST {path}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._tracer.serving(self._name, scope["headers"]):
            await self._app(scope, receive, send)


OpenTracer = Callable[[str, Clock, Callable[[], int]], Tracer]


def open_tracer(service: str, clock: Clock, now_ns: Callable[[], int]) -> Tracer:
    """A tracer that exports over OTLP, as the environment's OTEL_* variables say. `now_ns`: Unix time.

    Errors  BAD_CONFIG, with the command that installs what is missing; for a variable that the exporter refuses
    """
    return need_otel()(service, clock, now_ns)


def need_otel() -> OpenTracer:
    """What opens a tracer. Errors: BAD_CONFIG, with the command that installs it."""
    try:
        found: OpenTracer = pkgutil.resolve_name("agentcache.web.otel:open_otel")
    except ModuleNotFoundError as missing:
        said = f"otel needs the package {missing.name}: pip install 'agentcache[otel]'"
        raise CacheError(Kind.BAD_CONFIG, said) from None
    return found


def http_attributes(route: str, status: int) -> dict[str, Value]:
    """What every server span says of its request."""
    return {"http.request.method": "POST", "http.route": route, "http.response.status_code": status}


def known(attributes: Attributes) -> dict[str, Value]:
    """Without what says nothing: "" and empty lists."""
    return {name: value for name, value in attributes.items() if value not in ("", (), [])}


def told_by_client(value: object) -> str:
    """A text that a client chose, as far as an attribute keeps it; "" for what is no text."""
    return value[:LONGEST] if isinstance(value, str) else ""
