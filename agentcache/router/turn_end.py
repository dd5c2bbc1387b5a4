"""How an answer that passes ends: its finish reason, and the tools that it calls. The bytes go on as they came.

    a chunk ──no marker in it──► nothing to do            (a byte search for each marker)
            └─a marker─► the lines that have it ──JSON──► reasons, names and ids of calls

What is damaged, too long or contradicts itself is unknown. A line that is split waits for its end, at most
`LINE_BYTES` of it; an answer in one piece waits for its end, at most `WHOLE_BYTES`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

LINE_BYTES: Final = 64 * 2**10
WHOLE_BYTES: Final = 256 * 2**10
TOOLS: Final = 16
"""Different tools in one turn; of a turn with more none is told."""
CALLS: Final = 64
NAME_BYTES: Final = 256
_REASONS: Final = 4

_WORDS: Final = {
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
}
"""Reasons of other APIs, in OpenAI's words."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """`reason` in OpenAI's words, "" where it is unknown; `tools` are names, each once, and () unless all are known.

    `calls` are the ids that the results will carry, as far as they were said.
    """

    reason: str = ""
    tools: tuple[str, ...] = ()
    calls: frozenset[str] = frozenset()


UNKNOWN: Final = TurnEnd()


class Watch(Protocol):
    """Sees one answer. Nothing that comes makes it fail."""

    def see(self, chunk: bytes) -> None: ...

    def end(self) -> TurnEnd:
        """What was seen until now."""


class Unwatched:
    """An answer that nobody reads."""

    def see(self, chunk: bytes) -> None:
        """Let it pass."""

    def end(self) -> TurnEnd:
        return UNKNOWN


UNWATCHED: Final = Unwatched()


@dataclass(slots=True)
class _Seen:
    """What was read of one answer. `doubt`: there may be calls that are not among these."""

    reasons: set[str] = field(default_factory=set)
    tools: dict[str, None] = field(default_factory=dict)
    calls: set[str] = field(default_factory=set)
    doubt: bool = False

    def ended(self, reason: str | None) -> None:
        if reason and len(self.reasons) < _REASONS:
            self.reasons.add(_WORDS.get(reason, reason))

    def called(self, name: str, call_id: str | None) -> None:
        known = name.isprintable() and len(name.encode()) <= NAME_BYTES
        if not known or (len(self.tools) >= TOOLS and name not in self.tools):
            self.doubt = True
        else:
            self.tools[name] = None
        if call_id and len(call_id) <= NAME_BYTES and len(self.calls) < CALLS:
            self.calls.add(call_id)

    def end(self) -> TurnEnd:
        """Several reasons are none. Some servers say `stop` after calls, too."""
        if len(self.reasons) != 1:
            return UNKNOWN
        (reason,) = self.reasons
        if reason == "stop" and self.tools:
            reason = "tool_calls"
        return TurnEnd(reason, () if self.doubt else tuple(self.tools), frozenset(self.calls))


class _Named(msgspec.Struct):
    name: str | None = None


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Named | None = None
    custom: _Named | None = None


class _Part(msgspec.Struct):
    tool_calls: list[_Call] | None = None
    function_call: _Named | None = None

    def named(self) -> Iterator[tuple[str, str | None]]:
        """Names and ids of calls; the pieces of their arguments that follow have none."""
        if self.function_call and self.function_call.name:
            yield self.function_call.name, None
        for call in self.tool_calls or ():
            called = call.function or call.custom
            if called and called.name:
                yield called.name, call.id


class _Choice(msgspec.Struct):
    finish_reason: str | None = None
    delta: _Part | None = None
    message: _Part | None = None


class _Completion(msgspec.Struct):
    """OpenAI's chat and text completions, and their chunks."""

    choices: list[_Choice] = []


class _Block(msgspec.Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None


class _Stop(msgspec.Struct):
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    """Anthropic's message, and its events."""

    content: list[_Block] = []
    stop_reason: str | None = None
    content_block: _Block | None = None
    delta: _Stop | None = None


class _Item(msgspec.Struct):
    type: str = ""
    name: str | None = None
    call_id: str | None = None


class _Response(msgspec.Struct):
    """OpenAI's response, and the event that adds an item to it."""

    status: str = ""
    output: list[_Item] = []
    item: _Item | None = None


def _read_completion(data: bytes, seen: _Seen) -> None:
    for choice in _COMPLETION.decode(data).choices:
        seen.ended(choice.finish_reason)
        for part in filter(None, (choice.delta, choice.message)):
            for named, call_id in part.named():
                seen.called(named, call_id)


def _read_message(data: bytes, seen: _Seen) -> None:
    message = _MESSAGE.decode(data)
    seen.ended(message.stop_reason)
    if message.delta:
        seen.ended(message.delta.stop_reason)
    for block in (*message.content, *filter(None, (message.content_block,))):
        if block.type == "tool_use" and block.name:  # others run at the server
            seen.called(block.name, block.id)


def _read_response(data: bytes, seen: _Seen) -> None:
    response = _RESPONSE.decode(data)
    seen.ended(_STATUSES.get(response.status))
    for item in (*response.output, *filter(None, (response.item,))):
        if item.type in _CLIENTS_CALLS:
            seen.called(item.name or item.type.removesuffix("_call"), item.call_id)


_COMPLETION: Final = msgspec.json.Decoder(_Completion)
_MESSAGE: Final = msgspec.json.Decoder(_Message)
_RESPONSE: Final = msgspec.json.Decoder(_Response)
_STATUSES: Final = {"completed": "stop", "incomplete": "length"}
_CLIENTS_CALLS: Final = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "computer_call",
    }
)
_FINISH: Final = (b'finish_reason":"', b'finish_reason": "')
_STOP: Final = (b'stop_reason":"', b'stop_reason": "')
_EVENT: Final = b"event: response."


@dataclass(frozen=True, slots=True)
class _Api:
    """How one API's answers are read. `markers`: a line without any of these says nothing of the end."""

    markers: tuple[bytes, ...]
    read: Callable[[bytes, _Seen], None]


_CHAT: Final = _Api((b'"name"', *_FINISH), _read_completion)
_APIS: Final = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": _Api(_FINISH, _read_completion),
    "/v1/messages": _Api((b'"name"', *_STOP), _read_message),
    "/v1/responses": _Api(
        (
            b'"response.output_item.added"',
            *(_EVENT + status.encode() for status in _STATUSES),
        ),
        _read_response,
    ),
}


class Streamed:
    """Server-sent events."""

    def __init__(self, api: _Api) -> None:
        self._api = api
        self._seen = _Seen()
        self._held = bytearray()  # the beginning of a line
        self._skipping = False  # in a line that is too long

    def see(self, chunk: bytes) -> None:
        if self._held or self._skipping or not chunk.endswith(b"\n"):
            self._see_part(chunk)
        else:
            self._read(chunk)

    def end(self) -> TurnEnd:
        """A last line without its end counts."""
        self._read(bytes(self._held))
        self._held.clear()
        return self._seen.end()

    def _see_part(self, chunk: bytes) -> None:
        """Lines that are split."""
        whole, newline, rest = chunk.rpartition(b"\n")
        if newline:
            if self._skipping:
                _, _, whole = whole.partition(b"\n")
                self._skipping = False
            self._read(bytes(self._held) + whole)
            self._held.clear()
        if self._skipping:
            return
        self._held += rest
        if len(self._held) > LINE_BYTES:
            self._held.clear()
            self._skipping = self._seen.doubt = True

    def _read(self, lines: bytes) -> None:
        if self._is_marked(lines):
            for line in lines.split(b"\n"):
                if self._is_marked(line):
                    self._read_line(line)

    def _is_marked(self, data: bytes) -> bool:
        return any(map(data.__contains__, self._api.markers))

    def _read_line(self, line: bytes) -> None:
        if line.startswith(_EVENT):
            self._seen.ended(_STATUSES.get(line.removeprefix(_EVENT).strip().decode("ascii", "replace")))
        if not line.startswith(b"data:"):
            return
        if len(line) > LINE_BYTES:
            self._seen.doubt = True
            return
        try:
            self._api.read(line.removeprefix(b"data:"), self._seen)
        except (ValueError, RecursionError):
            self._seen.doubt = True


class Whole:
    """An answer in one piece of JSON, read when it is complete."""

    def __init__(self, api: _Api) -> None:
        self._api = api
        self._chunks: list[bytes] = []
        self._bytes = 0

    def see(self, chunk: bytes) -> None:
        self._bytes += len(chunk)
        if self._bytes <= WHOLE_BYTES:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()

    def end(self) -> TurnEnd:
        seen = _Seen()
        try:
            self._api.read(b"".join(self._chunks), seen)
        except (ValueError, RecursionError):
            return UNKNOWN
        return seen.end()


def watch(path: str, content_type: str, encoding: str = "") -> Watch:
    """What sees the answer to a request of `path` with these headers; `UNWATCHED` where nothing can be read."""
    api = _APIS.get(path)
    if not api or encoding not in ("", "identity"):
        return UNWATCHED
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return Streamed(api)
    return Whole(api) if kind == "application/json" else UNWATCHED
