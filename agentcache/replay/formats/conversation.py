"""Conversations that are told as one list of messages: every answer in it is a call, with all before it as prompt."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agentcache.replay.formats.history import whole
from agentcache.replay.formats.record import Record
from agentcache.replay.trace import Call, Facts, Message
from agentcache.waits import WaitKind

_SENT = ("role", "content", "tool_calls", "tool_call_id", "name")


def sent(record: Record) -> Message:
    """What was sent of a message: role, content and the tool fields.

    Errors  CacheError(BAD_TRACE): no role, or no content and no tool calls
    """
    record.need("role")
    record.text("role")
    content = record.value.get("content")
    without_text = content is None and record.items("tool_calls")
    if not isinstance(content, str | list) and not without_text:
        raise record.wrong("content", "neither a text nor a list of parts")
    return _cleaned({name: record.value[name] for name in _SENT if record.value.get(name) is not None})


def _cleaned(message: dict[str, Any]) -> Message:
    content = message.get("content")
    return {**message, "content": whole(content)} if isinstance(content, str) else message


def asked_first(told: Sequence[Record], answers: Sequence[int]) -> Sequence[int]:
    """The places of the answers. Errors: CacheError(BAD_TRACE) if one is the first message of all."""
    if answers and answers[0] == 0:
        raise told[0].bad("role", "is 'assistant', but no answer can come first")
    return answers


def cut(
    messages: Sequence[Message], answers: Sequence[int], facts: Callable[[int, int], Facts]
) -> Iterator[Call]:
    """One call for each answer: `added [from, at) | recorded at | next from at`. `facts` of turn and place."""
    start = 0
    for turn, at in enumerate(answers):
        yield Call(start, tuple(messages[start:at]), messages[at], facts=facts(turn, at))
        start = at


def wait_after(last: Message) -> WaitKind:
    """Whom a call waited for, by the last message of its prompt."""
    kinds = {"user": WaitKind.HUMAN, "tool": WaitKind.TOOL}
    return kinds.get(last.get("role", ""), WaitKind.UNKNOWN)


def finish_by(answer: Message) -> str:
    """Why an answer ended where nothing says it: for its tools, or of itself."""
    return "tool_calls" if answer.get("tool_calls") else "stop"


def tools_of(answer: Record, seconds: float | None = None) -> tuple[tuple[str, float | None], ...]:
    """The tools that an answer calls; `seconds` is known only of one alone."""
    calls = answer.children("tool_calls")
    took_s = seconds if len(calls) == 1 else None
    return tuple((call.child("function").text("name"), took_s) for call in calls)
