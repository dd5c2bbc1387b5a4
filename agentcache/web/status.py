"""One table from error kinds to HTTP, and the OpenAI error shape."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Protocol

from agentcache.errors import CacheError, Kind
from agentcache.types import SessionState
from agentcache.wire import GENERATION, STATE

HTTP_STATUS: Mapping[Kind, int] = {
    Kind.STALE_BOUNDARY: 500,
    Kind.LEASE_REUSED: 500,
    Kind.UNKNOWN_JOB: 500,
    Kind.UNKNOWN_COMPONENT: 500,
    Kind.UNALIGNED: 500,
    Kind.BAD_INSERT: 500,
    Kind.NOT_RESIDENT: 500,
    Kind.IN_USE: 409,
    Kind.SLOT_MISUSE: 500,
    Kind.BAD_CONFIG: 500,
    Kind.BAD_SESSION_ID: 400,
    Kind.SESSION_UNKNOWN: 404,
    Kind.SESSION_CLOSED: 409,
    Kind.SESSION_STALE: 409,
    Kind.EMPTY_PROMPT: 400,
    Kind.PROMPT_TOO_LONG: 400,
    Kind.OVER_POOL: 400,
    Kind.BAD_REQUEST: 400,
    Kind.BODY_TOO_LARGE: 413,
    Kind.QUEUE_FULL: 429,
    Kind.SHUTTING_DOWN: 503,
    Kind.UNSUPPORTED_MODEL: 500,
    Kind.BAD_CHECKPOINT: 500,
    Kind.BAD_TRACE: 400,
    Kind.ENGINE_FAILED: 500,
    Kind.STORE_FAILED: 503,
    Kind.UNAUTHORIZED: 401,
    Kind.SESSION_LIMIT: 429,
    Kind.NO_WORKER: 503,
    Kind.UPSTREAM_FAILED: 502,
    Kind.UNREACHABLE: 502,
}

RETRY_AFTER_S: Mapping[Kind, int] = {Kind.QUEUE_FULL: 1, Kind.SHUTTING_DOWN: 5, Kind.NO_WORKER: 1}

_STATES: Mapping[Kind, SessionState] = {
    Kind.SESSION_CLOSED: SessionState.CLOSED,
    Kind.SESSION_STALE: SessionState.STALE,
}

# Where OpenAI clients know a word of their own for the same thing.
_CODES: Mapping[Kind, str] = {Kind.PROMPT_TOO_LONG: "context_length_exceeded"}

_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


_ANTHROPIC_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def anthropic_type(status: int) -> str:
    """The `type` that Anthropic's clients expect with this status."""
    other = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "api_error"
    return _ANTHROPIC_TYPES.get(status, other)


def error_type(status: int) -> str:
    """The `type` field that OpenAI clients expect beside this status."""
    if status in _TYPES:
        return _TYPES[status]
    return "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"


def error_body(status: int, message: str, code: str, param: str | None = None) -> dict[str, object]:
    """The OpenAI error object; `param` names the request field at fault."""
    return {"error": {"message": message, "type": error_type(status), "param": param, "code": code}}


def error_answer(error: CacheError, _request_id: str = "") -> tuple[int, dict[str, object]]:
    """Status and body of a `CacheError`. Facts that say how to repair the request go into the message."""
    status = HTTP_STATUS[error.kind]
    param = error.facts.get("param")
    told = {name: value for name, value in error.facts.items() if name != "param"}
    message = error.message + (f" ({_spelled(told)})" if told else "")
    name = str(param) if isinstance(param, str) else None
    return status, error_body(status, message, _CODES.get(error.kind, error.kind.value), name)


ErrorShape = Callable[[int, dict[str, object], str], dict[str, object]]
"""Status, OpenAI's error body and the request's id ("" where it has none) → the body as one API's clients read it."""


class ErrorAnswer(Protocol):
    """Status and body of an error in one API's shape. A body with a `type` is an event of that name in a stream."""

    def __call__(self, error: CacheError, request_id: str = "", /) -> tuple[int, dict[str, object]]: ...


def openai_shape(_status: int, body: dict[str, object], _request_id: str) -> dict[str, object]:
    """As it is."""
    return body


def anthropic_shape(status: int, body: dict[str, object], request_id: str) -> dict[str, object]:
    """As Anthropic's API says it; our own fields stand beside theirs."""
    said = body["error"]
    assert isinstance(said, dict)
    told = {**said, "type": anthropic_type(status)}
    return {"type": "error", "error": told, "request_id": request_id}


def responses_shape(_status: int, body: dict[str, object], _request_id: str) -> dict[str, object]:
    """As OpenAI's Responses API says it, whole and as an event."""
    said = body["error"]
    assert isinstance(said, dict)
    flat = {"code": said["code"], "message": said["message"], "param": said["param"]}
    return {**body, "type": "error", **flat}


def shaped_answer(
    shape: ErrorShape, error: CacheError, request_id: str = ""
) -> tuple[int, dict[str, object]]:
    """Status and body of an error in a shape."""
    status, body = error_answer(error)
    return status, shape(status, body, request_id)


def anthropic_answer(error: CacheError, request_id: str = "") -> tuple[int, dict[str, object]]:
    """Without an id: of a request that has none."""
    return shaped_answer(anthropic_shape, error, request_id)


def responses_answer(error: CacheError, request_id: str = "") -> tuple[int, dict[str, object]]:
    """Without an id: of a request that has none."""
    return shaped_answer(responses_shape, error, request_id)


def error_headers(error: CacheError) -> dict[str, str]:
    """`Retry-After` in whole seconds where trying again can help; the session's state, and its generation, where it
    is why.
    """
    headers = {}
    if error.kind in RETRY_AFTER_S:
        headers["retry-after"] = str(RETRY_AFTER_S[error.kind])
    if error.kind in _STATES:
        headers[STATE] = str(_STATES[error.kind])
    if error.facts.get("current"):
        headers[GENERATION] = str(error.facts["current"])
    return headers


def refuse(message: str, param: str) -> CacheError:
    """A request refused by the name of its field."""
    return CacheError(Kind.BAD_REQUEST, message, param=param)


def _spelled(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in facts.items())
