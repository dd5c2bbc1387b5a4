"""One line in the log, and one count, for every request."""

from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcache.worker.context import Worker
from agentcache.worker.counting import COUNT_ROUTE
from agentcache.worker.metrics import Facts

PROBES: Final = frozenset({"/health", "/ready", "/metrics"})
_ROUTES: Final = (
    COUNT_ROUTE,
    *PROBES,
    "/v1/sessions",
    "/v1/models",
    "/v1/cache",
    "/tokenize",
    "/detokenize",
    "/open_session",
    "/close_session",
    "/flush_cache",
)


class LogLine:
    """Tells of every request but POSTs of the routes in `own`, which know more of themselves and tell it."""

    def __init__(self, app: ASGIApp, worker: Worker, own: frozenset[str]) -> None:
        self._app = app
        self._worker = worker
        self._own = own
        self._routes = (*_ROUTES, *own)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (scope["path"] in self._own and scope["method"] == "POST"):
            await self._app(scope, receive, send)
            return
        began_ns, status = self._worker.clock.now_ns(), [500]

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                status[0] = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            total_s = (self._worker.clock.now_ns() - began_ns) / 1e9
            tell(
                self._worker,
                Facts(self._route(scope["path"]), status[0], scope["method"], total_s=total_s),
            )

    def _route(self, path: str) -> str:
        """The route of a path, without what it names; for logs and metrics."""
        known = [route for route in self._routes if path == route or path.startswith(route + "/")]
        return known[0] if known else "other"


def tell(worker: Worker, facts: Facts) -> None:
    """Count a request, and write its line: what all have, and what is known of one that generates."""
    worker.metrics.count(facts)
    log = structlog.get_logger()
    told = {"method": facts.method, "route": facts.route, "status": facts.status}
    details = _generated(facts) if facts.generating else {}
    write = log.debug if facts.route in PROBES else log.info
    write("request", **told, **details, total_ms=round(facts.total_s * 1e3, 1))


def _generated(facts: Facts) -> dict[str, object]:
    return {
        "request": facts.request_id,
        "session": facts.session,
        "prompt_tokens": facts.prompt_tokens,
        "cached_tokens": facts.cached.total,
        "cached_host_tokens": facts.cached.host,
        "cached_external_tokens": facts.cached.external,
        "why": facts.why,
        "completion_tokens": facts.completion_tokens,
        "reason": facts.reason,
        "first_token_ms": round(facts.first_token_s * 1e3, 1),
    }
