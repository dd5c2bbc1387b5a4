"""The shapes of OpenAI answers: whole ones and stream chunks, for chat and for text completions."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from agentcache.engine.api import Admitted
from agentcache.stats import CachedTokens
from agentcache.web.reply import DONE, Json, StreamEvent
from agentcache.worker.reading import Outcome, Piece
from agentcache.worker.tools import Called, Part, Said


@dataclass(frozen=True, slots=True)
class Head:
    """What all chunks of one answer repeat. `created_s` is Unix time."""

    answer_id: str
    model: str
    created_s: int
    token_ids: bool


class Shape(Protocol):
    """One API's way to say the same things; used for one answer."""

    @property
    def tail(self) -> bytes:
        """What ends a stream after its last event."""

    def opening(self, admitted: Admitted, prompt_tokens: int) -> list[StreamEvent]: ...

    def chunks(self, piece: Piece) -> list[StreamEvent]: ...

    def endings(self, outcome: Outcome, extension: Json, include_usage: bool) -> list[StreamEvent]: ...

    def whole(self, pieces: Iterable[Piece], outcome: Outcome, extension: Json) -> Json: ...


class ChatShape:
    """`chat.completion` and its chunks. `new_call_id` names tool calls."""

    kind = "chatcmpl"
    tail = DONE

    def __init__(self, head: Head, new_call_id: Callable[[], str]) -> None:
        self._head = head
        self._new_call_id = new_call_id
        self._calls = 0

    def opening(self, admitted: Admitted, prompt_tokens: int) -> list[StreamEvent]:
        return [("", self._chunk({"role": "assistant", "content": ""}, None))]

    def chunks(self, piece: Piece) -> list[StreamEvent]:
        deltas = [self._delta(part) for part in piece.parts] or [{}] * bool(piece.tokens)
        return [
            ("", self._chunk(delta, None, piece.tokens if place == 0 else ()))
            for place, delta in enumerate(deltas)
        ]

    def endings(self, outcome: Outcome, extension: Json, include_usage: bool) -> list[StreamEvent]:
        return _endings(self._chunk({}, outcome.reason), outcome, extension, include_usage)

    def whole(self, pieces: Iterable[Piece], outcome: Outcome, extension: Json) -> Json:
        parts, tokens = _gathered(pieces)
        text = "".join(part.text for part in parts if isinstance(part, Said))
        calls = [self._call(part) for part in parts if isinstance(part, Called)]
        message: Json = {"role": "assistant", "content": text or ("" if not calls else None)}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": outcome.reason}
        answer = _answer(self._head, "chat.completion", _with_tokens(self._head, choice, tokens))
        return {**answer, "usage": usage(outcome), "agentcache": extension}

    def _delta(self, part: Part) -> Json:
        if isinstance(part, Said):
            return {"content": part.text}
        call = {"index": self._calls, **self._call(part)}
        self._calls += 1
        return {"tool_calls": [call]}

    def _call(self, call: Called) -> Json:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": self._new_call_id(), "type": "function", "function": function}

    def _chunk(self, delta: Json, reason: str | None, tokens: tuple[int, ...] = ()) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _answer(self._head, "chat.completion.chunk", _with_tokens(self._head, choice, tokens))


class TextShape:
    """`text_completion`, whole or in chunks."""

    kind = "cmpl"
    tail = DONE

    def __init__(self, head: Head) -> None:
        self._head = head

    def opening(self, admitted: Admitted, prompt_tokens: int) -> list[StreamEvent]:
        return []

    def chunks(self, piece: Piece) -> list[StreamEvent]:
        text = text_of(piece.parts)
        return [("", self._answer(text, None, piece.tokens))] if text or piece.tokens else []

    def endings(self, outcome: Outcome, extension: Json, include_usage: bool) -> list[StreamEvent]:
        return _endings(self._answer("", outcome.reason, ()), outcome, extension, include_usage)

    def whole(self, pieces: Iterable[Piece], outcome: Outcome, extension: Json) -> Json:
        parts, tokens = _gathered(pieces)
        answer = self._answer(text_of(parts), outcome.reason, tokens)
        return {**answer, "usage": usage(outcome), "agentcache": extension}

    def _answer(self, text: str, reason: str | None, tokens: tuple[int, ...]) -> Json:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        return _answer(self._head, "text_completion", _with_tokens(self._head, choice, tokens))


def usage(outcome: Outcome) -> Json:
    """Counts in tokens. The tiers are told twice: beside OpenAI's count, and where SGLang has them."""
    tiers = tier_details(outcome.cached)
    return {
        "prompt_tokens": outcome.prompt_tokens,
        "completion_tokens": outcome.completion_tokens,
        "total_tokens": outcome.prompt_tokens + outcome.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": outcome.cached.total,
            "cache_write_tokens": outcome.written_tokens,
            "cached_tokens_details": tiers,
        },
        "cached_tokens_details": tiers,
    }


def tier_details(cached: CachedTokens) -> Json:
    """Cached tokens by the tier that they came from."""
    return {"device": cached.device, "host": cached.host, "external": cached.external}


def extension(admitted: Admitted, outcome: Outcome, why: str) -> Json:
    """Our own object beside OpenAI's fields, in every answer (in a stream: with the finish reason).

    `first_logits_sha256` is there when the request asked for `agentcache.logits_digest`. A turn that a stop string or
    its one tool call cut has neither this nor `first_token_ms`: the engine had not ended it.
    """
    said: Json = {
        "session": admitted.session,
        "generation": admitted.generation,
        "state": str(admitted.state),
        "why": why,
        "cached_tokens": admitted.cached.total,
        "full_tokens": admitted.full_tokens,
        "cached_tokens_details": tier_details(admitted.cached),
    }
    if outcome.first_token_ns:
        said["first_token_ms"] = round(outcome.first_token_ns / 1e6, 3)
    if outcome.first_logits:
        said["first_logits_sha256"] = outcome.first_logits
    return said


def _endings(closing: Json, outcome: Outcome, extension: Json, include_usage: bool) -> list[StreamEvent]:
    """The chunk with the finish reason and, when `stream_options.include_usage` asks for it, one with the usage."""
    closing = {**closing, "agentcache": extension}
    more = [("", {**closing, "choices": [], "usage": usage(outcome)})] if include_usage else []
    return [("", closing), *more]


def _answer(head: Head, kind: str, choice: Json) -> Json:
    return {
        "id": head.answer_id,
        "object": kind,
        "created": head.created_s,
        "model": head.model,
        "choices": [choice],
    }


def _with_tokens(head: Head, choice: Json, tokens: tuple[int, ...]) -> Json:
    return {**choice, "token_ids": list(tokens)} if head.token_ids else choice


def _gathered(pieces: Iterable[Piece]) -> tuple[list[Part], tuple[int, ...]]:
    seen = list(pieces)
    parts = [part for piece in seen for part in piece.parts]
    return parts, tuple(token for piece in seen for token in piece.tokens)


def text_of(parts: Iterable[Part]) -> str:
    """What is to be read, without the calls."""
    return "".join(part.text for part in parts if isinstance(part, Said))
