"""OpenAI's Responses API out: whole responses and streams of named, numbered events."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from agentcache.engine.api import Admitted
from agentcache.web.fields import Fields
from agentcache.web.reply import Json, StreamEvent
from agentcache.worker.answers import Head
from agentcache.worker.reading import Outcome, Piece
from agentcache.worker.tools import Called, Part

_REPEATED: Final[Mapping[str, object]] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
}
"""Settings of a request that its response has too, and what holds without them."""


class ResponsesShape:
    """A response and its events; used for one answer. Text and calls are items, in the order in which they came."""

    kind = "resp"
    tail = b""

    def __init__(self, head: Head, new_id: Callable[[], str], fields: Fields) -> None:
        """`fields`: of the request, whose settings a response repeats."""
        self._head = head
        self._settings = {
            name: default if fields.values.get(name) is None else fields.values[name]
            for name, default in _REPEATED.items()
        }
        self._new_id = new_id
        self._number = 0
        self._items: list[Json] = []
        self._text: list[str] = []
        self._text_id = ""

    def opening(self, admitted: Admitted, prompt_tokens: int) -> list[StreamEvent]:
        begun = self._response("in_progress", None)
        return [
            self._event("response.created", response=begun),
            self._event("response.in_progress", response=begun),
        ]

    def chunks(self, piece: Piece) -> list[StreamEvent]:
        return [event for part in piece.parts for event in self._part(part)]

    def endings(self, outcome: Outcome, extension: Json, include_usage: bool) -> list[StreamEvent]:
        events = self._close_text(_status(outcome))
        response = {**self._response(_status(outcome), outcome), "agentcache": extension}
        return [*events, self._event(f"response.{_status(outcome)}", response=response)]

    def whole(self, pieces: Iterable[Piece], outcome: Outcome, extension: Json) -> Json:
        for piece in pieces:
            self.chunks(piece)
        self._close_text(_status(outcome))
        return {**self._response(_status(outcome), outcome), "agentcache": extension}

    def _response(self, status: str, outcome: Outcome | None) -> Json:
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self._head.answer_id,
            "object": "response",
            "created_at": self._head.created_s,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "model": self._head.model,
            "output": list(self._items),
            "previous_response_id": None,
            "store": False,
            "text": {"format": {"type": "text"}},
            "truncation": "disabled",
            **self._settings,
            "usage": _usage(outcome) if outcome else None,
        }

    def _part(self, part: Part) -> list[StreamEvent]:
        if isinstance(part, Called):
            return [*self._close_text(), *self._call(part)]
        opened = [] if self._text_id else self._open_text()
        self._text.append(part.text)
        delta = self._event("response.output_text.delta", **self._place(), delta=part.text, logprobs=[])
        return [*opened, delta]

    def _open_text(self) -> list[StreamEvent]:
        self._text_id = f"msg_{self._new_id()}"
        return [
            self._event(
                "response.output_item.added",
                output_index=len(self._items),
                item=self._message("in_progress", []),
            ),
            self._event("response.content_part.added", **self._place(), part=_text_part("")),
        ]

    def _close_text(self, status: str = "completed") -> list[StreamEvent]:
        if not self._text_id:
            return []
        text = "".join(self._text)
        item = self._message(status, [_text_part(text)])
        events = [
            self._event("response.output_text.done", **self._place(), text=text, logprobs=[]),
            self._event("response.content_part.done", **self._place(), part=_text_part(text)),
            self._event("response.output_item.done", output_index=len(self._items), item=item),
        ]
        self._items.append(item)
        self._text, self._text_id = [], ""
        return events

    def _call(self, call: Called) -> list[StreamEvent]:
        item_id, place = f"fc_{self._new_id()}", len(self._items)
        item: Json = {
            "type": "function_call",
            "id": item_id,
            "call_id": f"call_{self._new_id()[:24]}",
            "name": call.name,
            "arguments": "",
            "status": "in_progress",
        }
        done: Json = {**item, "arguments": call.arguments, "status": "completed"}
        self._items.append(done)
        where: Json = {"item_id": item_id, "output_index": place}
        return [
            self._event("response.output_item.added", output_index=place, item=item),
            self._event("response.function_call_arguments.delta", **where, delta=call.arguments),
            self._event(
                "response.function_call_arguments.done", **where, name=call.name, arguments=call.arguments
            ),
            self._event("response.output_item.done", output_index=place, item=done),
        ]

    def _message(self, status: str, content: list[Json]) -> Json:
        return {
            "type": "message",
            "id": self._text_id,
            "status": status,
            "role": "assistant",
            "content": content,
        }

    def _place(self) -> Json:
        return {"item_id": self._text_id, "output_index": len(self._items), "content_index": 0}

    def _event(self, name: str, /, **fields: object) -> StreamEvent:
        self._number += 1
        return name, {"type": name, "sequence_number": self._number - 1, **fields}


def _text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(outcome: Outcome) -> str:
    return "incomplete" if outcome.reason == "length" else "completed"


def _usage(outcome: Outcome) -> Json:
    return {
        "input_tokens": outcome.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": outcome.cached.total,
            "cache_write_tokens": outcome.written_tokens,
        },
        "output_tokens": outcome.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": outcome.prompt_tokens + outcome.completion_tokens,
    }
