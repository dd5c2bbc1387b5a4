"""Log lines: one an event, in two shapes, above a level, without prompt text."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from agentcache import logs


@pytest.fixture(autouse=True)
def _leave_no_trace() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def lines(log_format: str, level: str = "info", **facts: object) -> list[str]:
    stream = io.StringIO()
    logs.configure(log_format, level, stream)
    structlog.get_logger().debug("noise")
    structlog.get_logger().info("request", **facts)
    return stream.getvalue().splitlines()


def test_json_line_is_one_object() -> None:
    (line,) = lines("json", prompt_tokens=7)
    assert json.loads(line).items() >= {"event": "request", "level": "info", "prompt_tokens": 7}.items()


def test_text_line_begins_with_time_level_event() -> None:
    (line,) = lines("text", session="a b", ok=True)
    assert line.startswith("time=")
    assert line.endswith('level=info event=request session="a b" ok=true')


def test_a_newline_in_a_fact_does_not_begin_a_line() -> None:
    assert len(lines("text", why="two\nlines")) == 1
    assert len(lines("json", why="two\nlines")) == 1


def test_level_is_the_least_logged() -> None:
    assert len(lines("text", "debug")) == 2
    assert lines("text", "error") == []


@pytest.mark.parametrize("field", sorted(logs.PRIVATE))
def test_private_fields_never_reach_a_line(field: str) -> None:
    (line,) = lines("json", **{field: "the secret plan"})
    assert "secret" not in line
    assert json.loads(line)[field] == "(private)"


def test_exception_is_in_its_line() -> None:
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.get_logger().exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: broken" in json.loads(line)["exception"]
