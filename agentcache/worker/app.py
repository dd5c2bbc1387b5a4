"""The worker's routes, put together; every fault leaves in the OpenAI error shape."""

from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from agentcache.errors import CacheError
from agentcache.web.body import ClientGoneError
from agentcache.web.methods import allowed_methods
from agentcache.web.reply import json_response
from agentcache.web.status import error_answer, error_body, error_headers
from agentcache.worker.cache_routes import CacheRoutes
from agentcache.worker.context import Worker
from agentcache.worker.counting import COUNT_ROUTE, CountTokens
from agentcache.worker.generate import APIS, GENERATING, Api, GenerateEndpoint
from agentcache.worker.log_line import LogLine
from agentcache.worker.metrics import take_sample
from agentcache.worker.session_routes import SessionRoutes
from agentcache.worker.tagged import Guard
from agentcache.worker.tokenize import TokenizeRoutes
from agentcache.worker.tracing import NO_TRACING, Tracing


def create_app(worker: Worker, tracing: Tracing = NO_TRACING) -> Starlette:
    """The ASGI application over a worker whose engine thread has been started."""
    return Starlette(
        routes=[
            *(_generating(worker, api, tracing) for api in APIS),
            Route(COUNT_ROUTE, CountTokens(worker).count, methods=["POST"]),
            *SessionRoutes(worker).routes(),
            *CacheRoutes(worker).routes(),
            *TokenizeRoutes(worker).routes(),
            *InfoRoutes(worker).routes(),
        ],
        middleware=[
            Middleware(LogLine, worker=worker, own=GENERATING),
            Middleware(Guard, gate=worker.gate, own=GENERATING),
        ],
        exception_handlers={
            CacheError: _on_cache_error,
            HTTPException: _on_http_exception,
            ClientGoneError: _on_client_gone,
            Exception: _on_fault,
        },
    )


def _generating(worker: Worker, api: Api, tracing: Tracing) -> Route:
    endpoint = GenerateEndpoint(worker, api, tracing)
    return Route(api.route, tracing.endpoint(endpoint, api.route), methods=["POST"])


class InfoRoutes:
    """What the worker says about itself."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/models", self.models, methods=["GET"]),
            Route("/v1/models/{model:path}", self.model, methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/ready", self.ready, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]

    async def models(self, _request: Request) -> Response:
        return json_response(200, {"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        if request.path_params["model"] != self._worker.info.model:
            said = f"this worker serves {self._worker.info.model!r} only"
            return json_response(404, error_body(404, said, "model_not_found", "model"))
        return json_response(200, self._model())

    async def health(self, _request: Request) -> Response:
        """200 while the engine's thread answers."""
        await self._worker.thread.call(lambda engine: engine.idle())
        return json_response(200, {"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        """200 while new work is taken; 503 once the worker drains."""
        self._worker.require_open()
        return json_response(200, {"status": "ready", "model": self._worker.info.model})

    async def metrics(self, _request: Request) -> Response:
        sample = await self._worker.thread.call(take_sample)
        told, happened = self._worker.events.counts(), self._worker.happenings.counts()
        text = self._worker.metrics.render(replace(sample, events=told, happenings=happened))
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    def _model(self) -> Mapping[str, object]:
        info = self._worker.info
        return {
            "id": info.model,
            "object": "model",
            "created": 0,
            "owned_by": "agentcache",
            "max_model_len": info.context_tokens,
            "agentcache": {
                "engine": info.engine,
                "components": list(info.components),
                "reuse": info.reuse,
                "reason": info.reason,
                "prompt_only": info.prompt_only,
                "page_tokens": info.page_tokens,
                "grid_tokens": info.grid_tokens,
                "dtype": info.dtype,
                "device": info.device,
                "core": info.core,
                "random_weights": info.random_weights,
                "vocab_size": info.vocab_size,
                "special_tokens": list(self._worker.tokenizer.special_tokens),
            },
        }


async def _on_cache_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, CacheError)
    status, body = error_answer(error)
    return json_response(status, body, error_headers(error))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Unknown paths and methods."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        said = error_body(405, f"{request.method} is not allowed at {request.url.path}", "method_not_allowed")
        return json_response(405, said, {"allow": allowed_methods(request)})
    said = error_body(error.status_code, f"there is nothing at {request.url.path}", "not_found")
    return json_response(error.status_code, said, error.headers)


async def _on_client_gone(_request: Request, _error: Exception) -> Response:
    return Response(status_code=499)


async def _on_fault(_request: Request, _error: Exception) -> Response:
    """A fault of ours; the details are in the log, not in the answer."""
    return json_response(
        500, error_body(500, "internal error; the worker's log has the details", "internal_error")
    )
