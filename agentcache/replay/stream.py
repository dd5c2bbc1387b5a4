"""A streamed completion, of a chat or of tokens, read as it comes: server-sent events into one outcome."""

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from agentcache.clock import Clock
from agentcache.replay.outcome import Answer, Outcome, Refused

_DATA = b"data:"
_END = b"[DONE]"


async def events(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, Any]]:
    """The JSON object of every `data:` line up to `[DONE]`; comments and other fields are passed over."""
    async for line in content:
        if not line.startswith(_DATA):
            continue
        data = line[len(_DATA) :].strip()
        if data == _END:
            return
        yield _parsed(data)


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        value = data[:80]
    if isinstance(value, dict):
        return value
    return {"error": {"code": "bad_stream", "message": f"not a JSON object in the stream: {value!r}"}}


class StreamedAnswer:
    """Gathers the chunks of one answer. Made when its request is sent: time is counted from there.

    The first token is the first chunk that carries any (text, tool call or token ids); a chunk that only names the
    role does not count, because servers send it before they compute.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent_ns = clock.now_ns()
        self._first_ns = 0
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._usage: dict[str, Any] = {}
        self._first_logits = ""
        self._error = Refused(0, "", "")

    def add(self, chunk: dict[str, Any]) -> None:
        """Take in one chunk."""
        if "error" in chunk:
            error = chunk["error"]
            self._error = Refused(200, str(error.get("code") or "error"), str(error.get("message")))
        self._usage = chunk.get("usage") or self._usage
        self._first_logits = (chunk.get("agentcache") or {}).get("first_logits_sha256") or self._first_logits
        for choice in chunk.get("choices") or ():
            self._add_choice(choice)

    def outcome(self) -> Outcome:
        """The answer; an error inside the stream, or a stream that ended too early, is a refusal."""
        if self._error.code:
            return self._error
        if not self._usage:
            return Refused(200, "cut_off", "the stream ended before its usage: the worker stopped or cut it")
        details = self._usage.get("prompt_tokens_details") or {}
        return Answer(
            text="".join(self._text),
            tokens=tuple(self._tokens),
            first_logits=self._first_logits,
            prompt_tokens=int(self._usage.get("prompt_tokens", 0)),
            cached_tokens=int(details.get("cached_tokens") or 0),
            completion_tokens=int(self._usage.get("completion_tokens", 0)),
            ttft_ns=(self._first_ns or self._clock.now_ns()) - self._sent_ns,
        )

    def _add_choice(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or {}
        text, tokens = delta.get("content") or choice.get("text") or "", choice.get("token_ids") or ()
        if not self._first_ns and (text or tokens or delta.get("tool_calls")):
            self._first_ns = self._clock.now_ns()
        self._text.append(text)
        self._tokens.extend(tokens)
