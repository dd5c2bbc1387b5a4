"""A router's routes, put together; every fault leaves in the shape that the clients of its path read."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from agentcache.errors import CacheError
from agentcache.router.background import Background
from agentcache.router.context import Router
from agentcache.router.dashboard.routes import DashboardRoutes
from agentcache.router.info import InfoRoutes
from agentcache.router.log_line import LogLine
from agentcache.router.proxy import ProxyEndpoint
from agentcache.router.routes import PASSED, fault_body, http_error, shape_of
from agentcache.router.sessions_api import SessionsApi
from agentcache.web.body import ClientGoneError
from agentcache.web.methods import allowed_methods
from agentcache.web.reply import json_response
from agentcache.web.status import error_headers, shaped_answer

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


class Front:
    """What is passed on goes straight to its endpoint, which answers for its own faults; the rest to `rest`.

    Middleware around a stream would be paid for with every chunk.
    """

    def __init__(self, passed: Mapping[str, ASGIApp], rest: ASGIApp) -> None:
        self._passed = passed
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_post = scope["type"] == "http" and scope["method"] == "POST"
        app = self._passed.get(scope["path"], self._rest) if is_post else self._rest
        await app(scope, receive, send)


def create_app(router: Router) -> Front:
    """The ASGI application of a router; its lifespan runs the background work."""
    passed = {route.path: router.tracing.endpoint(ProxyEndpoint(router, route), route) for route in PASSED}
    return Front(passed, _rest(router, passed))


def _rest(router: Router, passed: Mapping[str, ASGIApp]) -> Starlette:
    """All other requests; the paths that are passed on are there to refuse other methods."""
    return Starlette(
        routes=[
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in passed.items()),
            *SessionsApi(router).routes(),
            *InfoRoutes(router).routes(),
            *DashboardRoutes(router).routes(),
        ],
        middleware=[Middleware(LogLine, router=router)],
        exception_handlers={
            CacheError: _on_cache_error,
            HTTPException: _on_http_exception,
            ClientGoneError: _on_client_gone,
            Exception: _on_fault,
        },
        lifespan=_lifespan(router),
    )


def _lifespan(router: Router) -> Lifespan:
    @asynccontextmanager
    async def running(_app: Starlette) -> AsyncIterator[None]:
        async with Background(router).running():
            yield

    return running


async def _on_cache_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, CacheError)
    status, body = shaped_answer(shape_of(request.url.path), error)
    return json_response(status, body, error_headers(error))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        said = http_error(path, 405, f"{request.method} is not allowed at {path}", "method_not_allowed")
        return json_response(405, said, {"allow": allowed_methods(request)})
    said = http_error(path, error.status_code, f"there is nothing at {path}", "not_found")
    return json_response(error.status_code, said, error.headers)


async def _on_client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)


async def _on_fault(request: Request, _error: Exception) -> Response:
    """A fault of ours; the details are in the log, not in the answer."""
    return json_response(500, fault_body(request.url.path))
