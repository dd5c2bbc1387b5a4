"""Conversations that are told event by event: what is asked and what is answered, until an answer is whole."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentcache.replay.formats.history import elapsed, shared, whole
from agentcache.replay.formats.record import Record
from agentcache.replay.trace import NOTHING_KNOWN, Call, Facts, Gap, Message
from agentcache.waits import WaitKind


@dataclass(frozen=True, slots=True)
class Happened:
    """One event's name in its log, and when it was (seconds since 1970; None: not told)."""

    name: str = ""
    at_s: float | None = None


@dataclass(slots=True)
class _Turn:
    """A call: the prompt it had, and what was answered and charged so far."""

    prompt: list[Message]
    answer: dict[str, Any]
    asked_s: float | None
    kind: WaitKind
    ended_s: float | None = None
    usage: Facts = NOTHING_KNOWN
    took_s: dict[str, float | None] = field(default_factory=dict)


@dataclass(slots=True)
class Dialogue:
    """Grows a history, and cuts it into calls: a new one for every response that answers.

    What is asked between two parts of an answer comes behind it: the answer was whole when it was asked, and its
    parts are told as they were carried out.
    """

    _history: list[tuple[str, Message]] = field(default_factory=list)
    _turns: list[_Turn] = field(default_factory=list)
    _response: str = ""
    _whole: bool = False
    _asked: Happened = Happened()
    _kind: WaitKind = WaitKind.UNKNOWN

    @property
    def start_s(self) -> float | None:
        """When the first call was asked."""
        return self._turns[0].asked_s if self._turns else None

    @property
    def asked(self) -> bool:
        """Whether anything was said so far."""
        return bool(self._history)

    @property
    def answers(self) -> int:
        """How many calls there are so far."""
        return len(self._turns)

    @property
    def ends(self) -> list[float]:
        """When their answers were whole, of those of which it is told."""
        return [turn.ended_s for turn in self._turns if turn.ended_s]

    def ask(self, message: Message, kind: WaitKind, happened: Happened) -> None:
        """Something that the next prompt has; `kind`: who says it."""
        self._history.append((happened.name, message))
        self._asked, self._kind, self._whole = happened, kind, True
        called = str(message.get("tool_call_id", ""))
        for turn in reversed(self._turns):
            if called and called in _ids(turn.answer):
                turn.took_s[called] = between(turn.ended_s, happened.at_s)
                return

    def answer(self, response: str, message: Message, happened: Happened) -> None:
        """A part of what the model answered; parts of one `response` are one message. "": it is a whole one."""
        if not response or response != self._response or not self._turns:
            self._begin(response, happened)
        turn = self._turns[-1]
        if not self._whole:
            turn.ended_s = happened.at_s
        content = [text for text in (turn.answer["content"], message.get("content")) if text]
        turn.answer["content"] = whole("\n".join(content))
        calls = [*turn.answer.get("tool_calls", ()), *message.get("tool_calls", ())]
        if calls:
            turn.answer["tool_calls"] = calls

    def note(self, usage: Facts) -> None:
        """What the latest response was charged for."""
        self._turns[-1].usage = usage

    def names(self, wanted: Callable[[str], bool]) -> list[str]:
        """Those of the events in the history that are wanted."""
        return [name for name, _ in self._history if wanted(name)]

    def forget(self, names: Collection[str], summary: Message | None, offset: int) -> None:
        """Take events out of the history; a summary of them goes where `offset` messages are before it."""
        self._history = [(name, message) for name, message in self._history if not name or name not in names]
        if summary:
            self._history.insert(offset, ("", summary))

    def restart(self, messages: Sequence[Message]) -> None:
        """These messages instead of the whole history."""
        self._history = [("", message) for message in messages]

    def calls(self, first: Gap = NOTHING_KNOWN.gap) -> Iterator[Call]:
        """The calls so far; `first`: the time before the first of them."""
        before: list[Message] = []
        for number, turn in enumerate(self._turns):
            keep = shared(before, turn.prompt)
            before_s = self._turns[number - 1].ended_s if number else None
            gap = Gap(turn.kind, between(before_s, turn.asked_s)) if number else first
            tools = tuple((name, turn.took_s.get(called)) for called, name in _ids(turn.answer).items())
            finish = "tool_calls" if turn.answer.get("tool_calls") else "stop"
            facts = replace(
                turn.usage, gap=gap, api_s=between(turn.asked_s, turn.ended_s), finish=finish, tools=tools
            )
            yield Call(keep, tuple(turn.prompt[keep:]), turn.answer, facts=facts)
            before = turn.prompt

    def _begin(self, response: str, happened: Happened) -> None:
        answer: dict[str, Any] = {"role": "assistant", "content": ""}
        prompt = [message for _, message in self._history]
        self._turns.append(_Turn(prompt, answer, self._asked.at_s, self._kind))
        self._history.append((happened.name, answer))
        self._response, self._whole = response, False


def texts_of(record: Record, name: str) -> str:
    """The text of a field that is a text, an object with a `text`, or a list of such."""
    value = record.value.get(name)
    if isinstance(value, str) or value is None:
        return whole(value or "")
    if isinstance(value, dict):
        return whole(record.child(name).text("text"))
    return whole("\n".join(filter(None, (part.text("text") for part in record.children(name)))))


def called(name: str, function: str, arguments: str) -> Mapping[str, Any]:
    """A tool call as messages have it."""
    return {"id": name, "type": "function", "function": {"name": function, "arguments": arguments}}


def _ids(answer: Message) -> dict[str, str]:
    return {call["id"]: call["function"]["name"] for call in answer.get("tool_calls", ())}


def between(start_s: float | None, end_s: float | None) -> float | None:
    """Seconds between two times that are told."""
    return None if start_s is None or end_s is None else elapsed(start_s, end_s)
