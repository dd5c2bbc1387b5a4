"""A chat request as values: messages as templates want them, tools, and how calls are to be read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from agentcache.errors import CacheError, Kind
from agentcache.web.fields import Fields
from agentcache.web.retention import CACHE_CONTROL, MARKS, has_mark
from agentcache.web.status import refuse
from agentcache.worker.options import Options, read_options

Message = dict[str, object]

# `developer` is the newer word for the same role; templates know `system`.
_ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a client would have the prompt kept: behind so many messages. `name`: what it calls that."""

    name: str
    messages: int


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """`parse_calls` says whether the answer may hold tool calls; `one_call` that it ends with the first."""

    messages: tuple[Message, ...]
    tools: tuple[Message, ...]
    parse_calls: bool
    one_call: bool
    options: Options
    marks: tuple[Mark, ...] = ()


def read_chat(fields: Fields) -> ChatRequest:
    """A chat completion request, checked.

    Errors   CacheError(EMPTY_PROMPT) without messages; CacheError(BAD_REQUEST) with the field's name
    """
    options = read_options(fields)
    messages = tuple(_message(inner) for inner in fields.objects("messages"))
    if not messages:
        raise CacheError(Kind.EMPTY_PROMPT, "messages must hold at least one message", param="messages")
    tools = tuple(_tool(inner) for inner in fields.objects("tools"))
    choice = _choice(fields)
    return ChatRequest(
        messages=messages,
        tools=tools,
        parse_calls=bool(tools) and choice == "auto",
        one_call=not fields.flag("parallel_tool_calls", default=True),
        options=options,
        marks=tuple(_marks(fields, messages)),
    )


def _marks(fields: Fields, messages: Sequence[Message]) -> Iterator[Mark]:
    """Of tools, which templates put into the system message; of messages; and of the whole prompt."""
    for tool in fields.objects("tools"):
        name = has_mark(tool.values)
        if name:
            yield Mark(name, int(messages[0]["role"] == "system"))
    for count, message in enumerate(fields.objects("messages"), 1):
        name = has_mark(message.values)
        if name:
            yield Mark(name, count)
    if fields.has(CACHE_CONTROL):
        yield Mark(CACHE_CONTROL, len(messages))


def _choice(fields: Fields) -> str:
    """`auto` or `none`. A forced call needs constrained decoding, which this worker does not have."""
    value = fields.values.get("tool_choice")
    if value is None:
        return "auto"
    if isinstance(value, str) and value in ("auto", "none"):
        return value
    raise refuse(
        "tool_choice can be 'auto' or 'none': this worker cannot force a call ('required' or a named "
        "function need constrained decoding)",
        fields.param("tool_choice"),
    )


def _tool(fields: Fields) -> Message:
    if fields.text("type", "function") != "function":
        raise refuse(
            f"{fields.param('type')}: only tools of type 'function' are supported", fields.param("type")
        )
    function = fields.inner("function")
    if not function.text("name"):
        raise function.wrong("name", "the name of the function")
    function.text("description")
    function.inner("parameters")
    said = {name: value for name, value in function.values.items() if name not in MARKS}
    return {"type": "function", "function": said}


def _message(fields: Fields) -> Message:
    role = _ROLES.get(fields.text("role"), "")
    if not role:
        raise fields.wrong("role", "one of " + ", ".join(_ROLES))
    message: Message = {"role": role, "content": _content(fields)}
    for name in ("name", "tool_call_id"):
        if fields.has(name):
            message[name] = fields.text(name)
    calls = [_call(inner) for inner in fields.objects("tool_calls")]
    if calls and role != "assistant":
        raise refuse("only assistant messages have tool_calls", fields.param("tool_calls"))
    if calls:
        message["tool_calls"] = calls
    elif not fields.has("content"):
        raise fields.wrong("content", "a string or an array of text parts")
    return message


def _content(fields: Fields) -> str:
    """The text of a message; parts are joined with a newline."""
    value = fields.values.get("content")
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise fields.wrong("content", "a string or an array of text parts")
    return "\n".join(_part(part) for part in fields.objects("content"))


def _part(fields: Fields) -> str:
    kind = fields.text("type")
    if kind != "text":
        raise refuse(
            f"content parts of type {kind[:40]!r} are not supported: this worker reads text only",
            fields.param("type"),
        )
    if not isinstance(fields.values.get("text"), str):
        raise fields.wrong("text", "a string")
    return fields.text("text")


def _call(fields: Fields) -> Message:
    """A recorded call in OpenAI's shape; its arguments stay the text that the client sent."""
    if fields.text("type", "function") != "function":
        raise refuse("only calls of type 'function' are supported", fields.param("type"))
    function = fields.inner("function")
    if not function.text("name"):
        raise function.wrong("name", "the name of the function")
    named = {"name": function.text("name"), "arguments": function.text("arguments", "{}")}
    return {"id": fields.text("id"), "type": "function", "function": named}
