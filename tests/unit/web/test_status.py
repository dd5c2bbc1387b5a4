"""Error kinds as HTTP answers."""

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.web.status import HTTP_STATUS, error_answer, error_headers, refuse


def test_every_kind_has_a_status() -> None:
    assert set(HTTP_STATUS) == set(Kind)


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_told_in_the_openai_shape(kind: Kind) -> None:
    status, body = error_answer(CacheError(kind, "what to do", param="prompt", limit=3))
    error = body["error"]
    assert isinstance(error, dict)
    assert 400 <= status < 600
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"] == "what to do (limit=3)"
    assert error["param"] == "prompt"
    assert error["type"] == "server_error" if status >= 500 else error["type"] != "server_error"


def test_a_long_prompt_has_the_code_that_clients_know() -> None:
    _, body = error_answer(CacheError(Kind.PROMPT_TOO_LONG, "too long"))
    assert body["error"]["code"] == "context_length_exceeded"  # type: ignore[index]


def test_what_may_be_retried_says_when() -> None:
    assert error_headers(CacheError(Kind.QUEUE_FULL, "full"))["retry-after"] == "1"
    assert "retry-after" in error_headers(CacheError(Kind.SHUTTING_DOWN, "bye"))
    assert error_headers(CacheError(Kind.BAD_REQUEST, "no")) == {}


def test_a_refused_session_says_its_state() -> None:
    assert error_headers(CacheError(Kind.SESSION_CLOSED, "closed")) == {"x-agentcache-state": "closed"}
    assert error_headers(CacheError(Kind.SESSION_STALE, "stale")) == {"x-agentcache-state": "stale"}


def test_a_refusal_names_its_field() -> None:
    assert refuse("no", "n").facts == {"param": "n"}
