"""Claude Code's log as a tree: lines with parents, answers that are split over lines, and the prompts they make.

    user ◄─ assistant(thinking) ◄─ assistant(tool_use 1) ◄─ assistant(tool_use 2) ◄─ user(result 2) ◄─ assistant
                                          ▲── user(result 1)

An answer's lines have one `message.id`. The results of parallel tools hang on different lines of it, and the next
answer on one of them, so a prompt is the way to the root with every answer whole and all its results after it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agentcache.replay.formats.history import said, whole
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Source
from agentcache.replay.trace import Message
from agentcache.waits import WaitKind

SYNTHETIC = "<synthetic>"
_NOTIFICATION = "<task-notification>"
_IMAGE = "[image]"


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One event that is part of the tree. `agent` "": the main one. `at_s`: seconds since 1970."""

    record: Record
    kind: str
    uuid: str
    parent: str
    agent: str
    at_s: float

    @property
    def message(self) -> Record:
        return self.record.child("message")

    def blocks(self) -> list[Record]:
        """The parts of its message; a text is one part."""
        message = self.message
        if isinstance(message.value.get("content"), str):
            return [Record({"type": "text", "text": message.text("content")}, message.document, message.at)]
        return message.children("content")


@dataclass(slots=True, eq=False)
class Answer:
    """What the model said in one call, over all its lines; a line that a resumed session repeats counts once."""

    name: str
    lines: list[Line] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    tools: dict[str, Record] = field(default_factory=dict)

    @property
    def first(self) -> Line:
        return self.lines[0]

    @property
    def end_s(self) -> float:
        return max(line.at_s for line in self.lines)

    def add(self, line: Line) -> None:
        self.lines.append(line)
        for block in line.blocks():
            if block.text("type") == "text" and block.text("text") not in self.texts:
                self.texts.append(block.text("text"))
            elif block.text("type") == "tool_use":
                self.tools.setdefault(block.text("id"), block)

    def as_message(self) -> Message:
        """As later prompts hold it: without what was thought."""
        calls = [_tool_call(block) for block in self.tools.values()]
        message: dict[str, Any] = {"role": "assistant", "content": whole("\n".join(self.texts))}
        return {**message, "tool_calls": calls} if calls else message


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """The prompt of a call, when it was complete, and whom it waited for at last."""

    prompt: list[Message]
    at_s: float
    kind: WaitKind


@dataclass(slots=True, eq=False)
class Family:
    """All lines of one session, its sub-agents' too."""

    name: str
    lines: dict[str, Line] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    results: dict[str, tuple[Line, Record]] = field(default_factory=dict)
    _messages: dict[str, Message] = field(default_factory=dict)

    def read(self, files: Iterable[Source]) -> "Family":
        """Errors: CacheError(BAD_TRACE) naming file, line and field."""
        for source in files:
            for document in source.documents():
                self._add(record_of(document.value, document))
        return self

    def _add(self, record: Record) -> None:
        uuid = record.text("uuid")
        if not uuid or uuid in self.lines:
            return
        parent = record.text("parentUuid")
        line = Line(
            record,
            record.text("type"),
            uuid,
            parent,
            self._agent(record, parent),
            record.moment("timestamp") or 0.0,
        )
        self.lines[uuid] = line
        if line.kind == "assistant":
            line.message.need("id")
            name = line.message.text("id")
            self.answers.setdefault(name, Answer(name)).add(line)
        elif line.kind == "user":
            for block in line.blocks():
                if block.text("type") == "tool_result":
                    self.results.setdefault(block.text("tool_use_id"), (line, block))

    def _agent(self, record: Record, parent: str) -> str:
        """Old versions log sub-agents in the session's own file and do not name them: each has a root of its own."""
        if record.value.get("isSidechain") is not True:
            return ""
        above = self.lines.get(parent)
        inherited = above.agent if above else ""
        return record.text("agentId") or inherited or record.text("uuid")

    def asked(self, answer: Answer) -> Asked:
        """What was sent for an answer. Cost: O(lines before it)."""
        prompt: list[Message] = []
        told: set[str] = set()
        at_s, kind = 0.0, WaitKind.UNKNOWN
        for line in self._way_to(answer.first):
            if line.kind == "assistant" and line.message.text("id") not in told:
                before = self.answers[line.message.text("id")]
                told |= {before.name, *before.tools}
                results = [self.results[name] for name in before.tools if name in self.results]
                prompt += self._of_answer(before)
                prompt += [
                    self._message(f"{block.text('tool_use_id')}", _result(block)) for _, block in results
                ]
                at_s = max([before.end_s, *(result.at_s for result, _ in results)])
                kind = WaitKind.TOOL if results else WaitKind.UNKNOWN
            elif line.kind == "user":
                prompt += self._of_user(line, told)
                at_s, kind = max(at_s, line.at_s), _waited_for(line, kind)
        return Asked(prompt, at_s, kind)

    def _way_to(self, line: Line) -> list[Line]:
        """The lines above, from the root on; where a line is missing, from there on."""
        way: list[Line] = []
        seen = {line.uuid}
        above = self.lines.get(line.parent)
        while above:
            if above.uuid in seen:
                raise above.record.bad("parentUuid", "goes round in a circle")
            seen.add(above.uuid)
            way.append(above)
            above = self.lines.get(above.parent)
        return way[::-1]

    def _of_answer(self, answer: Answer) -> Iterator[Message]:
        if answer.texts or answer.tools:
            yield self._message(answer.name, answer.as_message())

    def _of_user(self, line: Line, told: set[str]) -> Iterator[Message]:
        for number, block in enumerate(line.blocks()):
            if block.text("type") != "tool_result":
                yield self._message(f"{line.uuid} {number}", said("user", _text(block)))
            elif block.text("tool_use_id") not in told:
                yield self._message(block.text("tool_use_id"), _result(block))

    def _message(self, name: str, message: Message) -> Message:
        """The same object for the same message, so that prompts are compared in no time."""
        return self._messages.setdefault(name, message)


def _waited_for(line: Line, before: WaitKind) -> WaitKind:
    """What is added to a message by itself (`isMeta`) was not waited for; a sub-agent's news are a tool's."""
    kinds = [block.text("type") for block in line.blocks()]
    if "tool_result" in kinds:
        return WaitKind.TOOL
    if line.record.value.get("isMeta") is True and before is not WaitKind.UNKNOWN:
        return before
    news = any(
        block.text("text").startswith(_NOTIFICATION)
        for block in line.blocks()
        if block.text("type") == "text"
    )
    return WaitKind.TOOL if news else WaitKind.HUMAN


def _tool_call(block: Record) -> dict[str, Any]:
    arguments = json.dumps(block.child("input").value, ensure_ascii=False)
    function = {"name": block.text("name"), "arguments": whole(arguments)}
    return {"id": block.text("id"), "type": "function", "function": function}


def _result(block: Record) -> Message:
    if isinstance(block.value.get("content"), str):
        text = block.text("content")
    else:
        text = "\n".join(map(_text, block.children("content")))
    return {**said("tool", text), "tool_call_id": block.text("tool_use_id")}


def _text(block: Record) -> str:
    return _IMAGE if block.text("type") == "image" else block.text("text")
