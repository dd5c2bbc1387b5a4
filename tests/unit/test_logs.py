"""Log lines: one an event, in two shapes, above a level, without prompt text."""

import errno
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from agentcache import logs


@pytest.fixture(autouse=True)
def _leave_no_trace() -> Iterator[None]:
    handlers = list(logging.getLogger().handlers)
    yield
    structlog.reset_defaults()
    logging.getLogger().handlers = handlers


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


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    (line,) = lines("text", placed="by model a\u202eb\x1b[2J\u00a0\ud800", session="séance")
    assert line.isprintable()
    for spelled in ("\\u202e", "\\x1b", "\\xa0", "\\ud800", "séance"):
        assert spelled in line


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


class Broken(io.StringIO):
    """A stream whose reader has gone, or whose disk is full; `number` 0: one that is closed."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, _text: str) -> int:
        raise OSError(self._number, "cannot") if self._number else ValueError("closed")

    def flush(self) -> None:
        self.write("")


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO, 0])
def test_a_line_that_cannot_be_written_is_lost_and_nobody_fails(number: int) -> None:
    logs.configure("text", "info", Broken(number))
    structlog.get_logger().info("request")
    structlog.get_logger().error("fault", exc_info=ValueError("x"))


def test_lines_of_libraries_are_lines_of_ours() -> None:
    stream = io.StringIO()
    for _ in range(2):  # set up twice, said once
        logs.configure("json", "info", stream)
    library = logging.getLogger("uvicorn.error")
    library.warning("Invalid HTTP request %s", "received")
    library.info("noise")
    try:
        raise ValueError("broken")
    except ValueError:
        library.exception("two\nlines")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["level"]) == ("uvicorn.error", "warning")
    assert first["said"] == "Invalid HTTP request received"
    assert (second["level"], second["said"]) == ("error", "two\nlines")
    assert "ValueError: broken" in second["exception"]
