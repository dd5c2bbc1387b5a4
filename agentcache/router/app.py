"""A router's routes, put together; every fault leaves in the shape that the clients of its path read."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentcache.errors import CacheError
from agentcache.router.background import Background
from agentcache.router.context import Router
from agentcache.router.info import InfoRoutes
from agentcache.router.log_line import LogLine
from agentcache.router.proxy import ProxyEndpoint
from agentcache.router.routes import PASSED, error_body_of, http_error
from agentcache.router.sessions_api import SessionsApi
from agentcache.web.body import ClientGoneError
from agentcache.web.reply import json_response
from agentcache.web.status import HTTP_STATUS, error_headers

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def create_app(router: Router) -> Starlette:
    """The ASGI application of a router; its lifespan runs the background work."""
    return Starlette(
        routes=[
            *(Route(route.path, ProxyEndpoint(router, route), methods=["POST"]) for route in PASSED),
            *SessionsApi(router).routes(),
            *InfoRoutes(router).routes(),
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
    status, body = HTTP_STATUS[error.kind], error_body_of(request.url.path)(error, "")
    return json_response(status, body, error_headers(error))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        said = http_error(path, 405, f"{request.method} is not allowed at {path}", "method_not_allowed")
    else:
        said = http_error(path, error.status_code, f"there is nothing at {path}", "not_found")
    return json_response(error.status_code, said, error.headers)


async def _on_client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)


async def _on_fault(request: Request, _error: Exception) -> Response:
    """A fault of ours; the details are in the log, not in the answer."""
    said = "internal error; the router's log has the details"
    return json_response(500, http_error(request.url.path, 500, said, "internal_error"))
