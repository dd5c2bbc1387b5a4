"""Logs: one line an event on stderr, text or json. Callers log facts about requests, never prompt text or keys."""

import logging
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
PRIVATE = frozenset(
    {"prompt", "messages", "content", "text", "tokens", "tools", "key", "tenant_salt", "authorization"}
)
"""Fields that never reach a log line, whoever passes them."""


def configure(log_format: str, level: str, stream: TextIO) -> None:
    """Set the process's logger up: every `structlog.get_logger()` then writes lines to `stream`.

    Caller  passes stderr: stdout belongs to `--json`
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            drop_private,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            _renderer(log_format),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )


def drop_private(_logger: Any, _name: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace private fields by a word; the last guard, not the first."""
    for field in PRIVATE.intersection(line):
        line[field] = "(private)"
    return line


def _renderer(log_format: str) -> structlog.typing.Processor:
    if log_format == "json":
        return structlog.processors.JSONRenderer(sort_keys=True)
    return structlog.processors.LogfmtRenderer(key_order=["time", "level", "event"], bool_as_flag=False)
