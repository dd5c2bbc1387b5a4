"""Reader for the trajectories of SWE-agent (`.traj`), from 0.x on, and the dataset shape of Nebius.

Where a step has its `query`, that is the prompt, as it was sent. Otherwise the prompt is the history before each
answer: all of it, or as the processor of old observations leaves it (`window`); the file does not say which was on.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentcache.replay.formats.conversation import asked_first, cut, finish_by, sent, tools_of
from agentcache.replay.formats.history import Names, said, shared
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Call, Facts, Gap, Message, Origin, Session
from agentcache.waits import WaitKind

_OBSERVERS = ("user", "tool")


@dataclass(frozen=True, slots=True)
class SweAgentReader:
    """`{trajectory, history, info, environment}`, one document a session; named after its file or `instance_id`.

    `window` 0: prompts are the whole history. Otherwise all observations but the first and the last so many are
    replaced by a line, as with the processor of the last five observations, which rewrites the prompt at every step.
    """

    window: int = 0
    format: str = "SWE-agent"
    description: str = "trajectories of SWE-agent (.traj); only 1.x has times, of its tools"
    document_is_session: bool = True

    def accepts(self, first: Document) -> bool:
        value = first.value
        if not isinstance(value, dict):
            return False
        steps, history = value.get("trajectory"), value.get("history")
        in_steps = _is_first(steps, "action") or _is_first(steps, "query") or _is_first(steps, "role")
        return in_steps or _is_first(history, "agent")

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        for source in files:
            names = Names()
            for document in source.documents():
                yield self._session(record_of(document.value, document), source.stem, names)

    def _session(self, record: Record, stem: str, names: Names) -> Session:
        document = record.document
        group = record.name("instance_id")
        fallback = f"{stem}-{document.line}" if document.line else stem
        steps = record.children("trajectory")
        if steps and all("query" in step.value for step in steps):
            calls = list(_by_query(steps))
        else:
            history = record.children("history") or [_of_nebius(step) for step in steps]
            calls = list(_by_history(history, steps, self.window))
        name = names.new(group or fallback)
        return Session(name, tuple(calls), document.place, origin=Origin(group=group or fallback))


def _is_first(items: Any, field: str) -> bool:
    return isinstance(items, list) and bool(items) and isinstance(items[0], dict) and field in items[0]


def _by_query(steps: Sequence[Record]) -> Iterator[Call]:
    before: list[Message] = []
    for turn, step in enumerate(steps):
        prompt = [_sent(message) for message in step.children("query")]
        if not prompt:
            raise step.bad("query", "is empty")
        keep = shared(before, prompt)
        gap = Gap(WaitKind.TOOL, steps[turn - 1].seconds("execution_time")) if turn else Gap()
        answer = said("assistant", step.text("response"))
        yield Call(keep, tuple(prompt[keep:]), answer, facts=Facts(gap, finish="stop"))
        before = prompt


def _by_history(history: Sequence[Record], steps: Sequence[Record], window: int) -> Iterator[Call]:
    """The calls of the agent that begins; others have a history of their own, which is not told as one."""
    told = [entry for entry in history if entry.text("agent") == history[0].text("agent")]
    messages = [_sent(entry) for entry in told]
    answers = [
        at
        for at, entry in enumerate(told)
        if messages[at]["role"] == "assistant" and entry.value.get("is_demo") is not True
    ]
    took_s = list(_execution_times([messages[at] for at in asked_first(told, answers)], steps))

    def facts(turn: int, at: int) -> Facts:
        gap = Gap(WaitKind.TOOL, took_s[turn - 1]) if turn else Gap()
        return Facts(gap, finish=finish_by(messages[at]), tools=tools_of(told[at], took_s[turn]))

    calls = cut(messages, answers, facts)
    return _windowed(calls, told, window) if window else calls


def _windowed(calls: Iterable[Call], told: Sequence[Record], window: int) -> Iterator[Call]:
    demos = [entry.value.get("is_demo") is True for entry in told]
    whole: list[Message] = []
    before: list[Message] = []
    for call in calls:
        whole = [*whole[: call.keep], *call.added]
        seen = [at for at, message in enumerate(whole) if message["role"] in _OBSERVERS and not demos[at]]
        old = set(seen[1 : max(1, len(seen) - window)])
        prompt = [_omitted(message) if at in old else message for at, message in enumerate(whole)]
        keep = shared(before, prompt)
        yield Call(keep, tuple(prompt[keep:]), call.recorded, facts=call.facts)
        before = prompt


def _omitted(message: Message) -> Message:
    lines = len(str(message["content"]).splitlines())
    return {**message, "content": f"Old output omitted ({lines} lines)"}


def _execution_times(answers: Sequence[Message], steps: Sequence[Record]) -> Iterator[float | None]:
    """How long the tool of each answer took: steps are told apart from the history, and some are in one only."""
    left = list(steps)
    for answer in answers:
        at = next((at for at, step in enumerate(left) if step.text("response") == answer.get("content")), -1)
        yield left[at].seconds("execution_time") if at >= 0 else None
        left = left[at + 1 :]


def _sent(entry: Record) -> Message:
    """SWE-agent keeps the ids of the tool calls that an observation answers as a list."""
    ids = entry.items("tool_call_ids")
    return {**sent(entry), "tool_call_id": ids[0]} if ids else sent(entry)


def _of_nebius(step: Record) -> Record:
    role = re.sub("^ai$", "assistant", step.text("role"))
    text = step.text("text") or step.text("system_prompt")
    return Record({"role": role, "content": text}, step.document, step.at)
