"""What passes through a router: the generating APIs of OpenAI and Anthropic, and how an error looks at each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agentcache.errors import CacheError
from agentcache.web.reply import Json
from agentcache.web.status import HTTP_STATUS, anthropic_type, error_answer, error_body

ErrorBody = Callable[[CacheError, str], Json]


def openai_error(error: CacheError, _request_id: str) -> Json:
    """The body of an error as OpenAI's clients read it."""
    return error_answer(error)[1]


def anthropic_error(error: CacheError, request_id: str) -> Json:
    """The body of an error as Anthropic's clients read it."""
    told = openai_error(error, request_id)["error"]
    assert isinstance(told, dict)
    return _anthropic(HTTP_STATUS[error.kind], told["message"], request_id)


def http_error(path: str, status: int, message: str, code: str) -> Json:
    """The body of an error that is no `CacheError`, as the clients of its path read it."""
    return _anthropic(status, message, "") if _is_anthropics(path) else error_body(status, message, code)


def fault_body(path: str) -> Json:
    """The body of an answer to what went wrong here, in whatever way; the log has the details."""
    return http_error(path, 500, "internal error; the router's log has the details", "internal_error")


def _anthropic(status: int, message: str, request_id: str) -> Json:
    inner = {"type": anthropic_type(status), "message": message}
    return {"type": "error", "error": inner, "request_id": request_id}


def _is_anthropics(path: str) -> bool:
    return path == "/v1/messages" or path.startswith("/v1/messages/")


@dataclass(frozen=True, slots=True)
class PassedRoute:
    """One path that is passed on. `repeatable`: a request whose connection broke before its answer may be sent again
    to any server. `turn`: it belongs to a session, if it names one."""

    path: str
    error_body: ErrorBody = openai_error
    repeatable: bool = True
    turn: bool = True


PASSED: Final = (
    PassedRoute("/v1/chat/completions"),
    PassedRoute("/v1/completions"),
    PassedRoute("/v1/responses", repeatable=False),  # a server may store each answer
    PassedRoute("/v1/messages", anthropic_error),
    PassedRoute("/v1/messages/count_tokens", anthropic_error, turn=False),
)


def error_body_of(path: str) -> ErrorBody:
    """How a `CacheError` looks at a path, known or not."""
    return anthropic_error if _is_anthropics(path) else openai_error
