"""Tool calls out of streamed text, in the Hermes/Qwen form `<tool_call>{"name": …, "arguments": …}</tool_call>`."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from agentcache.worker.stops import partial_suffix

OPENING: Final = "<tool_call>"
CLOSING: Final = "</tool_call>"


@dataclass(frozen=True, slots=True)
class Said:
    """Text for the reader."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """One tool call; `arguments` is JSON text, as OpenAI clients expect."""

    name: str
    arguments: str


Part = Said | Called


class PlainText:
    """The parser of a request without tools: all is text."""

    def push(self, text: str) -> list[Part]:
        return [Said(text)] if text else []

    def flush(self) -> list[Part]:
        return []


class ToolCallParser:
    """Splits streamed text into text and tool calls; how the stream was cut never changes the result.

    What is inside the marks and is not a call with a name stays text, marks included; so does a call that was
    never closed. White space around calls is dropped, elsewhere every character is kept.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._space = ""  # white space before the open mark, kept in case it opens no call
        self._inside = False
        self._after_call = False

    def push(self, text: str) -> list[Part]:
        """Take text in, answer the parts that are certain now."""
        self._pending += text
        parts: list[Part] = []
        while self._step(parts):
            pass
        return joined(parts)

    def flush(self) -> list[Part]:
        """What is left when no more text is to come."""
        rest, self._pending = self._pending, ""
        if self._inside:
            rest = self._space + OPENING + rest
        return list(self._said(rest))

    def _step(self, parts: list[Part]) -> bool:
        """Consume one mark; false when the pending text holds no whole one."""
        mark = CLOSING if self._inside else OPENING
        before, found, after = self._pending.partition(mark)
        if not found:
            parts.extend(self._certain())
            return False
        self._pending = after
        if self._inside:
            parts.extend(self._closed(before))
        else:
            parts.extend(self._opened(before))
        self._inside = not self._inside
        return True

    def _certain(self) -> Iterator[Part]:
        if self._inside:
            return
        body = self._pending[: len(self._pending) - partial_suffix(self._pending, (OPENING,))].rstrip()
        if body:
            self._pending = self._pending[len(body) :]
            yield from self._said(body)

    def _opened(self, before: str) -> Iterator[Part]:
        self._space = before[len(before.rstrip()) :]
        yield from self._said(before.rstrip())

    def _closed(self, inside: str) -> Iterator[Part]:
        call = parse_call(inside)
        if isinstance(call, Called):
            self._after_call = True
            yield call
        else:
            yield from self._said(self._space + OPENING + inside + CLOSING)

    def _said(self, text: str) -> Iterator[Part]:
        if self._after_call:
            text = text.lstrip()
        if text:
            self._after_call = False
            yield Said(text)


def parse_call(inside: str) -> Part:
    """The call between the marks, or the same text when it is not one."""
    try:
        value = json.loads(inside, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return Said(inside)
    match value:
        case {"name": str(name), "arguments": str(arguments)} if name:
            return Called(name, arguments)
        case {"name": str(name), "arguments": dict(arguments)} if name:
            return Called(name, _as_written(inside, arguments))
        case {"name": str(name)} if name and "arguments" not in value:
            return Called(name, "{}")
    return Said(inside)


def _as_written(inside: str, arguments: dict[str, object]) -> str:
    """The arguments with the model's own spacing: sent back by the agent, they are the same tokens again."""
    decoder = json.JSONDecoder()
    for key in re.finditer(r'"arguments"\s*:\s*', inside):
        try:
            value, end = decoder.raw_decode(inside, key.end())
        except ValueError:
            continue
        if value == arguments:
            return inside[key.end() : end]
    return json.dumps(arguments, ensure_ascii=False)


def joined(parts: list[Part]) -> list[Part]:
    """Neighbouring texts made one, so that a stream sends fewer pieces."""
    merged: list[Part] = []
    for part in parts:
        if merged and isinstance(part, Said) and isinstance(merged[-1], Said):
            merged[-1] = Said(merged[-1].text + part.text)
        else:
            merged.append(part)
    return merged


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
