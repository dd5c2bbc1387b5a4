"""OpenAI's Responses API in: a request translated to the chat that it means."""

from collections.abc import Iterator, Mapping
from typing import Final

from agentcache.web.fields import Fields
from agentcache.web.retention import marks_of
from agentcache.web.status import refuse

_CONSUMED: Final = frozenset(
    {
        "input",
        "instructions",
        "tools",
        "max_output_tokens",
        "text",
        "reasoning",
        "include",
        "truncation",
        "background",
    }
    | {"previous_response_id", "conversation", "prompt", "max_tool_calls", "stream_options", "top_logprobs"}
)
_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_TEXT_PARTS: Final = frozenset({"input_text", "output_text", "text"})
# What would need answers of before to be kept here, or something else than text: refused unless it asks for nothing.
_UNSUPPORTED: Final[Mapping[str, tuple[object, ...]]] = {
    "previous_response_id": (),
    "conversation": (),
    "prompt": (),
    "background": (False,),
    "truncation": ("disabled",),
    "top_logprobs": (0,),
}


def chat_of_response(fields: Fields) -> Fields:
    """The chat request that a Responses request means. Nothing is kept: the whole history is in `input`.

    Errors   CacheError(BAD_REQUEST) with the field's name
    """
    for name, harmless in _UNSUPPORTED.items():
        if fields.has(name) and fields.values[name] not in harmless:
            raise refuse(
                f"{name} is not supported by this worker, which keeps no answers: send the whole input each time",
                name,
            )
    kind = fields.inner("text").inner("format").text("type", "text")
    if kind != "text":
        raise refuse("text.format can only be 'text'", "text.format")
    said = {name: value for name, value in fields.values.items() if name not in _CONSUMED}
    instructions = fields.text("instructions")
    messages: list[Mapping[str, object]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    messages += _joined(_input(fields))
    said |= {
        "messages": messages,
        "max_tokens": fields.whole("max_output_tokens", 0, low=1) or None,
        "tools": [_tool(tool) for tool in fields.objects("tools")] or None,
    }
    return Fields(said)


def _input(fields: Fields) -> Iterator[dict[str, object]]:
    if isinstance(fields.values.get("input"), str):
        yield {"role": "user", "content": fields.text("input")}
        return
    for item in fields.objects("input"):
        yield from _item(item)


def _item(item: Fields) -> Iterator[dict[str, object]]:
    kind = item.text("type", "message")
    if kind == "message":
        role = item.text("role")
        if role not in _ROLES:
            raise item.wrong("role", "one of " + ", ".join(sorted(_ROLES)))
        yield {"role": role, "content": _content(item, "content"), **marks_of(item.values)}
    elif kind == "function_call":
        named = {"name": item.text("name"), "arguments": item.text("arguments", "{}")}
        call = {"id": item.text("call_id"), "type": "function", "function": named}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
    elif kind == "function_call_output":
        said = {"role": "tool", "tool_call_id": item.text("call_id"), "content": _content(item, "output")}
        yield {**said, **marks_of(item.values)}
    elif kind != "reasoning":
        raise refuse(f"input items of type {kind[:40]!r} are not supported", item.param("type"))


def _content(item: Fields, name: str) -> str:
    value = item.values.get(name)
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise item.wrong(name, "a string or an array of text parts")
    return "\n".join(_part(part) for part in item.objects(name))


def _part(part: Fields) -> str:
    kind = part.text("type")
    if kind not in _TEXT_PARTS:
        raise refuse(
            f"content parts of type {kind[:40]!r} are not supported: this worker reads text only",
            part.param("type"),
        )
    if not isinstance(part.values.get("text"), str):
        raise part.wrong("text", "a string")
    return part.text("text")


def _tool(tool: Fields) -> dict[str, object]:
    """A function; tools that a provider would run are refused by name."""
    if tool.text("type") != "function":
        raise refuse(
            f"tools of type {tool.text('type')[:40]!r} run at a provider, not here", tool.param("type")
        )
    kept = ("name", "description", "parameters", "strict")
    function = {name: tool.values[name] for name in kept if tool.has(name)}
    return {"type": "function", "function": function}


def _joined(messages: Iterator[dict[str, object]]) -> list[Mapping[str, object]]:
    """One assistant message for a text and the calls that follow it, as the model said them."""
    joined: list[dict[str, object]] = []
    for message in messages:
        last = joined[-1] if joined else {}
        calls = message.get("tool_calls")
        if isinstance(calls, list) and last.get("role") == "assistant":
            before = last.get("tool_calls")
            last["tool_calls"] = [*before, *calls] if isinstance(before, list) else calls
        else:
            joined.append(message)
    return list(joined)
