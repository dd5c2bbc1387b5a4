"""`/dashboard`: a page for the operator, and the part of it that a browser fetches again and again."""

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from agentcache.errors import CacheError, Kind
from agentcache.router.context import Router
from agentcache.router.dashboard.fresh import Fresh
from agentcache.router.dashboard.looker import CHALLENGE, require_operator
from agentcache.router.dashboard.page import Chosen, Seen, fragment, headers, page
from agentcache.router.dashboard.sending import Sending
from agentcache.router.dashboard.sight import FRESH_S, VIEWS, SessionSight, Sight, sources
from agentcache.web.naming import named_id
from agentcache.web.query import read_query

BROWSERS: Final = 64
"""Pages on their way at a time."""
SEND_S: Final = 10.0
"""For a browser to take one."""


class DashboardRoutes:
    """What is asked for and what is drawn is shared by all who look at the same; nobody who looks costs nothing."""

    def __init__(self, router: Router, send_s: float = SEND_S) -> None:
        self._tenants = router.tenants
        self._sight = Sight(sources(router))
        self._drawn: Fresh[bytes] = Fresh(router.clock, FRESH_S, VIEWS)
        self.sending = Sending(BROWSERS, send_s)

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/dashboard", self.page, methods=["GET"]),
            Route("/dashboard/fragment", self.fragment, methods=["GET"]),
        ]

    async def page(self, request: Request) -> ASGIApp:
        """The whole page."""
        return await self._shown(request, whole=True)

    async def fragment(self, request: Request) -> ASGIApp:
        """What changes of it."""
        return await self._shown(request, whole=False)

    async def _shown(self, request: Request, whole: bool) -> ASGIApp:
        """Errors: CacheError(BAD_REQUEST, BAD_SESSION_ID, QUEUE_FULL)."""
        try:
            require_operator(self._tenants, request.scope["headers"])
        except CacheError as error:
            if error.kind is not Kind.UNAUTHORIZED:
                raise
            return PlainTextResponse(f"{error.message}; a browser sends it as the password\n", 401, CHALLENGE)
        chosen = self._chosen(request)
        drawn = await self._drawn.get(chosen, lambda: self._draw(chosen))
        return self.sending.page(page(drawn) if whole else drawn, headers())

    async def _draw(self, chosen: Chosen) -> bytes:
        overview, tree, session = await asyncio.gather(
            self._sight.overview(), self._sight.tree(chosen.worker), self._session(chosen)
        )
        return fragment(Seen(overview, tree, session), chosen)

    async def _session(self, chosen: Chosen) -> SessionSight | None:
        return await self._sight.session(chosen.ref) if chosen.session else None

    def _chosen(self, request: Request) -> Chosen:
        """`?session=&tenant=&worker=`, each of them or none."""
        query = read_query(request)
        worker = query.get("worker", "")
        if not query.get("session"):
            return Chosen(worker=worker)
        session = named_id(query["session"], "session")
        return Chosen(query.get("tenant", self._tenants.names[0]), session, worker)
