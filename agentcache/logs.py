"""Logs: one line an event on stderr, text or json. Callers log facts about requests, never prompt text or keys."""

import logging
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
PRIVATE = frozenset(
    {"prompt", "messages", "content", "text", "tokens", "tools", "key", "tenant_salt", "authorization"}
)
"""Fields that never reach a log line, whoever passes them."""


def configure(log_format: str, level: str, stream: TextIO) -> None:
    """Set the process's logger up: every `structlog.get_logger()` then writes lines to `stream`, and warnings of
    libraries that log in Python's way are lines of ours.

    A line that cannot be written (a full disk, a pipe that nobody reads) is lost, and nobody fails for it.

    Caller  passes stderr: stdout belongs to `--json`
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            drop_private,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            *_rendering(log_format),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Lossy(stream))),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [*(other for other in root.handlers if not isinstance(other, _Libraries)), _Libraries()]


class _Lossy:
    """A stream that loses what it cannot write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):  # ValueError: it is closed
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class _Libraries(logging.Handler):
    """Lines of libraries as lines of ours: the event is the library's logger."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        level = logging.ERROR if record.levelno >= logging.ERROR else logging.WARNING
        facts = {"exc_info": record.exc_info} if record.exc_info else {}
        structlog.get_logger().log(level, record.name, said=record.getMessage(), **facts)


def drop_private(_logger: Any, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace private fields by a word; the last guard, not the first."""
    for field in PRIVATE.intersection(line):
        line[field] = "(private)"
    return line


def spell_out(_logger: Any, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Write what a terminal would obey or hide (controls, bidi marks) as its number: clients chose some of it."""
    for field, value in line.items():
        if isinstance(value, str) and not value.isprintable():
            line[field] = "".join(map(_spelled, value))
    return line


def _spelled(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _rendering(log_format: str) -> list[structlog.typing.Processor]:
    if log_format == "json":
        return [structlog.processors.JSONRenderer(sort_keys=True)]
    order = ["time", "level", "event"]
    return [spell_out, structlog.processors.LogfmtRenderer(key_order=order, bool_as_flag=False)]
