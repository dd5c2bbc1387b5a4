"""One line in the log for every request that has none of its own."""

from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcache.worker.context import Worker
from agentcache.worker.counting import COUNT_ROUTE
from agentcache.worker.generate import APIS
from agentcache.worker.metrics import Facts

GENERATING: Final = frozenset(api.route for api in APIS)
PROBES: Final = frozenset({"/health", "/ready", "/metrics"})
_ROUTES: Final = (
    COUNT_ROUTE,
    *GENERATING,
    *PROBES,
    "/v1/sessions",
    "/v1/models",
    "/v1/cache",
    "/open_session",
    "/close_session",
    "/flush_cache",
)


class LogLine:
    """One line, and one count, for every request but the generating ones, which tell more themselves."""

    def __init__(self, app: ASGIApp, worker: Worker) -> None:
        self._app = app
        self._worker = worker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (scope["path"] in GENERATING and scope["method"] == "POST"):
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
            self._tell(scope, status[0], (self._worker.clock.now_ns() - began_ns) / 1e9)

    def _tell(self, scope: Scope, status: int, total_s: float) -> None:
        route = _route(scope["path"])
        self._worker.metrics.count(Facts(route=route, status=status, total_s=total_s))
        log = structlog.get_logger()
        told = {"method": scope["method"], "route": route, "status": status}
        (log.debug if route in PROBES else log.info)("request", **told, total_ms=round(total_s * 1e3, 1))


def _route(path: str) -> str:
    """The route of a path, without what it names; for logs and metrics."""
    known = [route for route in _ROUTES if path == route or path.startswith(route + "/")]
    return known[0] if known else "other"
