"""Reader for Codex's rollouts (`~/.codex/sessions/…/rollout-<time>-<id>.jsonl`).

From a description of the format, no recorded file was at hand. A call is whole where the counted tokens change
(`token_count`), and its prompt is what was there before its first answer. The log lacks the tools: what the first
call is charged for beyond its text is taken for them. What the model thought is left out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agentcache.replay.formats.conversation import wait_after
from agentcache.replay.formats.dialogue import Dialogue, Happened, called, texts_of
from agentcache.replay.formats.history import said
from agentcache.replay.formats.record import Record, record_of
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import CHARACTERS_PER_TOKEN, Facts, Hidden, Message, Origin, Session
from agentcache.waits import WaitKind

_TYPES = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
_CALLS = frozenset({"function_call", "custom_tool_call"})
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


class CodexReader:
    """`{timestamp, type, payload}`, one a line; a file is a session."""

    format = "Codex rollout"
    description = "Codex's own session logs, with compactions (.jsonl; from documentation)"
    document_is_session = False

    def accepts(self, first: Document) -> bool:
        value = first.value
        return (
            isinstance(value, dict)
            and str(value.get("type")) in _TYPES
            and isinstance(value.get("payload"), dict)
        )

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]:
        for source in files:
            yield from _Rollout(source).sessions()


@dataclass(slots=True)
class _Rollout:
    """One file, line by line."""

    source: Source
    name: str = ""
    place: str = ""
    hidden: str = ""
    model: str = ""
    latest_s: float = 0.0
    calls: int = 0
    counted: Any = None
    dialogue: Dialogue = field(default_factory=Dialogue)

    def sessions(self) -> Iterator[Session]:
        for document in self.source.documents():
            self._take(record_of(document.value, document))
        calls = tuple(self.dialogue.calls())
        if not calls:
            return
        text = sum(len(str(message)) for message in calls[0].added)
        tokens = max(0, calls[0].facts.prompt_tokens - text // CHARACTERS_PER_TOKEN)
        yield Session(
            self.name or self.source.stem,
            calls,
            self.place,
            origin=Origin(start_s=self.dialogue.start_s),
            hidden=Hidden(f"Codex/{self.hidden}/{calls[0].facts.model}", tokens) if tokens else Hidden(),
        )

    def _take(self, record: Record) -> None:
        record.need("type", "timestamp")
        happened = Happened(at_s=self._moment(record))
        payload = record.child("payload")
        match record.text("type"):
            case "session_meta":
                self._begin(payload)
            case "turn_context":
                self.model = payload.text("model") or self.model
            case "response_item":
                self._item(payload, happened)
            case "compacted":
                self.dialogue.restart(list(_replacement(payload)))
            case "event_msg" if payload.text("type") == "token_count":
                self._count(payload.child("info").child("total_token_usage"), payload.child("info"), happened)

    def _moment(self, record: Record) -> float:
        moment = record.moment("timestamp") or 0.0
        if moment < self.latest_s:
            raise record.early("timestamp")
        self.latest_s = moment
        self.place = self.place or record.document.place
        return moment

    def _begin(self, meta: Record) -> None:
        self.name = self.name or meta.text("id")
        self.hidden = meta.text("cli_version")
        instructions = texts_of(meta, "base_instructions")
        if instructions and not self.calls:
            self.dialogue.ask(said("system", instructions), WaitKind.UNKNOWN, Happened())

    def _item(self, item: Record, happened: Happened) -> None:
        kind = item.text("type")
        message = _message(item)
        if kind in _CALLS or (message and message["role"] == "assistant"):
            self.dialogue.answer(str(self.calls + 1), message or {}, happened)
        elif message:
            self.dialogue.ask(message, wait_after(message), happened)

    def _count(self, total: Record, info: Record, happened: Happened) -> None:
        """Counts are told again and again: only new ones are a call."""
        if not total.value or total.value == self.counted:
            return
        self.counted = total.value
        usage = info.child("last_token_usage")
        cached = usage.count("cached_input_tokens") if "cached_input_tokens" in usage else None
        self.calls += 1
        self.dialogue.answer(str(self.calls), {}, happened)
        self.dialogue.note(
            Facts(
                prompt_tokens=usage.count("input_tokens"),
                output_tokens=usage.count("output_tokens"),
                cached_tokens=cached,
                model=self.model,
            )
        )


def _replacement(compacted: Record) -> Iterator[Message]:
    items = compacted.children("replacement_history")
    if not items:
        yield said("user", compacted.text("message"))
    for item in items:
        message = _message(item)
        if message:
            yield message


def _message(item: Record) -> Message | None:
    """None: it is no part of a prompt."""
    kind = item.text("type")
    if kind == "message":
        item.need("role")
        return said(item.text("role"), texts_of(item, "content"))
    if kind in _CALLS:
        item.need("call_id", "name")
        arguments = item.text("arguments") or item.text("input")
        call = called(item.text("call_id"), item.text("name"), arguments)
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind in _RESULTS:
        item.need("call_id")
        output = item.value.get("output")
        text = item.child("output").text("content") if isinstance(output, dict) else texts_of(item, "output")
        return {**said("tool", text), "tool_call_id": item.text("call_id")}
    return None
