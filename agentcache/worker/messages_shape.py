"""Anthropic's Messages API out: whole answers and streams of named events."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace

from agentcache.engine.api import Admitted
from agentcache.stats import CachedTokens
from agentcache.web.fields import Fields
from agentcache.web.reply import Json, StreamEvent
from agentcache.worker.answers import Head, text_of
from agentcache.worker.reading import Outcome, Piece
from agentcache.worker.tools import Called, Part, Said

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessagesShape:
    """A message and its events; used for one answer. Text and calls are blocks, in the order in which they came."""

    kind = "msg"
    tail = b""

    def __init__(self, head: Head, new_call_id: Callable[[], str]) -> None:
        self._head = head
        self._new_call_id = new_call_id
        self._blocks = 0
        self._in_text = False

    def opening(self, admitted: Admitted, prompt_tokens: int) -> list[StreamEvent]:
        counts = _usage(prompt_tokens, admitted.cached, admitted.written_tokens, 0)
        message = self._message([], None, "", counts)
        return [_event("message_start", message=message)]

    def chunks(self, piece: Piece) -> list[StreamEvent]:
        return [event for part in piece.parts for event in self._part(part)]

    def endings(self, outcome: Outcome, extension: Json, include_usage: bool) -> list[StreamEvent]:
        delta = {"stop_reason": _reason(outcome), "stop_sequence": outcome.stop_string or None}
        return [
            *self._close_text(),
            _event("message_delta", delta=delta, usage=_used(outcome), agentcache=extension),
            _event("message_stop"),
        ]

    def whole(self, pieces: Iterable[Piece], outcome: Outcome, extension: Json) -> Json:
        parts = [part for piece in pieces for part in piece.parts]
        blocks: list[Json] = []
        text = text_of(parts)
        if text or not parts:
            blocks.append({"type": "text", "text": text})
        blocks += [self._block(part, _arguments(part)) for part in parts if isinstance(part, Called)]
        message = self._message(blocks, _reason(outcome), outcome.stop_string, _used(outcome))
        return {**message, "agentcache": extension}

    def _message(self, content: list[Json], reason: str | None, stop: str, usage: Json) -> Json:
        return {
            "id": self._head.answer_id,
            "type": "message",
            "role": "assistant",
            "model": self._head.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop or None,
            "usage": usage,
        }

    def _part(self, part: Part) -> list[StreamEvent]:
        if isinstance(part, Said):
            opened = [] if self._in_text else [self._start({"type": "text", "text": ""})]
            self._in_text = True
            return [*opened, self._delta({"type": "text_delta", "text": part.text})]
        events = [*self._close_text(), self._start(self._block(part, {}))]
        events.append(self._delta({"type": "input_json_delta", "partial_json": part.arguments}))
        return [*events, self._stop()]

    def _close_text(self) -> list[StreamEvent]:
        if not self._in_text:
            return []
        self._in_text = False
        return [self._stop()]

    def _start(self, block: Json) -> StreamEvent:
        return _event("content_block_start", index=self._blocks, content_block=block)

    def _delta(self, delta: Json) -> StreamEvent:
        return _event("content_block_delta", index=self._blocks, delta=delta)

    def _stop(self) -> StreamEvent:
        self._blocks += 1
        return _event("content_block_stop", index=self._blocks - 1)

    def _block(self, call: Called, given: Json) -> Json:
        return {"type": "tool_use", "id": self._new_call_id(), "name": call.name, "input": given}


class NothingSaid(MessagesShape):
    """The answer to `max_tokens: 0`, which only wants the prompt read: the one token that comes of that is not said."""

    def chunks(self, piece: Piece) -> list[StreamEvent]:
        return []

    def endings(self, outcome: Outcome, extension: Json, include_usage: bool) -> list[StreamEvent]:
        return super().endings(_unsaid(outcome), extension, include_usage)

    def whole(self, pieces: Iterable[Piece], outcome: Outcome, extension: Json) -> Json:
        return {**super().whole((), _unsaid(outcome), extension), "content": []}


def messages_shape(head: Head, new_call_id: Callable[[], str], fields: Fields) -> MessagesShape:
    """The shape of the answer to a request."""
    kind = MessagesShape if fields.values.get("max_tokens") else NothingSaid
    return kind(head, new_call_id)


def _unsaid(outcome: Outcome) -> Outcome:
    return replace(outcome, reason="length", completion_tokens=0, stop_string="")


def _event(name: str, **fields: object) -> StreamEvent:
    return name, {"type": name, **fields}


def _arguments(call: Called) -> Json:
    """The arguments as an object; what is none is kept under a name, so that nothing is lost."""
    try:
        value = json.loads(call.arguments)
    except ValueError:
        value = call.arguments
    return value if isinstance(value, dict) else {"arguments": value}


def _reason(outcome: Outcome) -> str:
    return "stop_sequence" if outcome.stop_string else _REASONS[outcome.reason]


def _used(outcome: Outcome) -> Json:
    return _usage(outcome.prompt_tokens, outcome.cached, outcome.written_tokens, outcome.completion_tokens)


def _usage(prompt_tokens: int, cached: CachedTokens, written: int, output_tokens: int) -> Json:
    """Anthropic counts what was read from the cache, and what was written to it, beside the input, not in it."""
    return {
        "input_tokens": prompt_tokens - cached.total - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached.total,
        "output_tokens": output_tokens,
    }
