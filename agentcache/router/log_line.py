"""One line in the log for every request."""

import logging
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentcache.router.context import Router
from agentcache.router.metrics import Facts, Times
from agentcache.router.routes import PASSED

PROBES: Final = frozenset({"/health", "/ready", "/metrics", "/dashboard"})
"""What is asked for every few seconds."""
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
    """Tells of every request but those that are passed on, which never come here, and counts it."""

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
            facts.times.ended_ns = self._router.clock.now_ns()
            self._router.metrics.count(facts)
            tell(facts, scope["method"])


def tell(facts: Facts, method: str) -> None:
    """The line of a request: what all have, and of one that was to be passed on all that is known."""
    log, level = structlog.get_logger(), logging.DEBUG if facts.route in PROBES else logging.INFO
    if not log.is_enabled_for(level):
        return
    times = facts.times
    told = {"method": method, "route": facts.route, "status": facts.status}
    details = _passed(facts) if facts.request_id else {}
    log.log(level, "request", **told, **details, total_ms=round(times.seconds(times.ended_ns) * 1e3, 1))


def _passed(facts: Facts) -> dict[str, object]:
    times = facts.times
    return {
        "request": facts.request_id,
        "tenant": facts.tenant,
        "session": facts.session,
        "source": facts.source,
        "worker": facts.worker,
        "placed": facts.placed,
        "state": facts.session_state,
        "why": facts.why,
        "attempts": facts.attempts,
        **{f"{name}_tokens": count for name, count in facts.tokens.known()},
        "answer_bytes": facts.answer_bytes,
        "reason": facts.reason,
        "dispatch_ms": round(times.seconds(times.sent_ns) * 1e3, 2),
        "first_byte_ms": round(times.seconds(times.first_ns) * 1e3, 1),
    }


def _route(path: str) -> str:
    """The route of a path, without what it names; for logs and metrics."""
    known = [route for route in _ROUTES if path == route or path.startswith(route + "/")]
    return known[0] if known else "other"
