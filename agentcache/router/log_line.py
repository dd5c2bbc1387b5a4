"""One line in the log, and one count, for every request that has none of its own."""

from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcache.router.context import Router
from agentcache.router.metrics import Facts, Times
from agentcache.router.routes import PASSED

PROBES: Final = frozenset({"/health", "/ready", "/metrics"})
_ROUTES: Final = (
    *sorted(route.path for route in PASSED),
    *sorted(PROBES),
    "/v1/sessions",
    "/v1/models",
    "/v1/workers",
    "/open_session",
    "/close_session",
)


class LogLine:
    """Around every request but those that are passed on, which never come here and tell more themselves."""

    def __init__(self, app: ASGIApp, router: Router) -> None:
        self._app = app
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        facts = Facts(_route(scope["path"]), Times(self._router.clock.now_ns()))

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                facts.status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            self._tell(scope["method"], facts)

    def _tell(self, method: str, facts: Facts) -> None:
        total_s = facts.times.seconds(self._router.clock.now_ns())
        self._router.metrics.count(facts)
        log = structlog.get_logger()
        told = {"method": method, "route": facts.route, "status": facts.status}
        (log.debug if facts.route in PROBES else log.info)(
            "request", **told, total_ms=round(total_s * 1e3, 1)
        )


def _route(path: str) -> str:
    """The route of a path, without what it names; for logs and metrics."""
    known = [route for route in _ROUTES if path == route or path.startswith(route + "/")]
    return known[0] if known else "other"
