"""What passes through a router: the generating APIs of OpenAI and Anthropic, and how an error looks at each."""

from dataclasses import dataclass
from typing import Final

from agentcache.web.reply import Json
from agentcache.web.status import ErrorShape, anthropic_shape, error_body, openai_shape, responses_shape


@dataclass(frozen=True, slots=True)
class PassedRoute:
    """One path that is passed on. `repeatable`: a request whose connection broke before its answer may be sent again
    to any server. `turn`: it belongs to a session, if it names one."""

    path: str
    shape: ErrorShape = openai_shape
    repeatable: bool = True
    turn: bool = True


PASSED: Final = (
    PassedRoute("/v1/chat/completions"),
    PassedRoute("/v1/completions"),
    PassedRoute("/v1/responses", responses_shape, repeatable=False),  # a server may store each answer
    PassedRoute("/v1/messages", anthropic_shape),
    PassedRoute("/v1/messages/count_tokens", anthropic_shape, turn=False),
)


def shape_of(path: str) -> ErrorShape:
    """How an error looks at a path, known or not: as at the one that is passed on, or as at the one above it."""
    found = (route for route in PASSED if path == route.path or path.startswith(f"{route.path}/"))
    return next(found, PASSED[0]).shape


def http_error(path: str, status: int, message: str, code: str, request_id: str = "") -> Json:
    """The body of an error that is no `CacheError`, as the clients of its path read it."""
    return shape_of(path)(status, error_body(status, message, code), request_id)


def fault_body(path: str, request_id: str = "") -> Json:
    """The body of an answer to what went wrong here, in whatever way; the log has the details."""
    said = "internal error; the router's log has the details"
    return http_error(path, 500, said, "internal_error", request_id)
