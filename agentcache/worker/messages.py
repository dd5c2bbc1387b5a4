"""Anthropic's Messages API in: a request translated to the chat that it means."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from agentcache.web.fields import Fields
from agentcache.web.retention import marks_of
from agentcache.web.status import refuse

_CONSUMED: Final = frozenset(
    {"messages", "system", "tools", "tool_choice", "stop_sequences", "max_tokens", "stream", "temperature"}
    | {"thinking", "metadata", "top_k", "output_config", "context_management", "container", "mcp_servers"}
)
_IGNORED_BLOCKS: Final = frozenset({"thinking", "redacted_thinking"})
_CHOICES: Final = {"auto": "auto", "none": "none"}


def chat_of_messages(fields: Fields) -> Fields:
    """The chat request that a Messages request means.

    Reasoning that is sent back is left out: it is not part of what a model reads again. A mark on a block becomes its
    message's.

    Errors   CacheError(BAD_REQUEST) with the field's name, for images, documents, forced tools and the like
    """
    if not fields.has("max_tokens"):
        raise fields.wrong("max_tokens", "given: the most tokens to generate")
    if fields.array("mcp_servers"):
        raise refuse("mcp_servers is not supported by this worker; leave it out", "mcp_servers")
    said = {name: value for name, value in fields.values.items() if name not in _CONSUMED}
    system = _text(fields, "system")
    messages: list[Mapping[str, object]] = []
    if system:
        marks = marks_of({"content": fields.values.get("system")})
        messages.append({"role": "system", "content": system, **marks})
    for message in fields.objects("messages"):
        messages += _marked(message, list(_messages(message)))
    said |= {
        "messages": messages,
        "max_tokens": fields.whole("max_tokens", 0, low=0) or 1,
        "stream": fields.flag("stream"),
        "temperature": fields.number("temperature", 1.0, 0.0, 2.0),
        "stop": fields.array("stop_sequences") or None,
        "tools": [_tool(tool) for tool in fields.objects("tools")] or None,
    }
    return Fields(said | _choice(fields.inner("tool_choice")))


def _choice(choice: Fields) -> dict[str, object]:
    kind = choice.text("type", "auto")
    if kind not in _CHOICES:
        raise refuse(
            "tool_choice can be 'auto' or 'none': this worker cannot force a call ('any' and 'tool' need constrained "
            "decoding)",
            "tool_choice",
        )
    said: dict[str, object] = {"parallel_tool_calls": not choice.flag("disable_parallel_tool_use")}
    return said | ({"tool_choice": _CHOICES[kind]} if choice.values else {})


def _tool(tool: Fields) -> dict[str, object]:
    """A client's tool; those that a provider would run are refused by name."""
    if tool.text("type", "custom") != "custom":
        raise refuse(
            f"tools of type {tool.text('type')[:40]!r} run at a provider, not here", tool.param("type")
        )
    function = {
        "name": tool.text("name"),
        "description": tool.text("description"),
        "parameters": dict(tool.inner("input_schema").values),
    }
    return {"type": "function", "function": function, **marks_of(tool.values)}


def _marked(message: Fields, said: list[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The chat messages that one message means; its mark is the last one's."""
    marks = marks_of(message.values)
    return [*said[:-1], {**said[-1], **marks}] if marks and said else said


def _messages(message: Fields) -> Iterator[Mapping[str, object]]:
    """One message as chat messages: results of tools come first, each as a message of its own."""
    role = message.text("role")
    if role not in ("user", "assistant"):
        raise message.wrong("role", "user or assistant")
    if isinstance(message.values.get("content"), str):
        yield {"role": role, "content": message.text("content")}
        return
    if not message.has("content"):
        raise message.wrong("content", "a string or an array of blocks")
    blocks = [block for block in message.objects("content") if block.text("type") not in _IGNORED_BLOCKS]
    results = [block for block in blocks if block.text("type") == "tool_result"]
    calls = [block for block in blocks if block.text("type") == "tool_use"]
    texts = [_block_text(block) for block in blocks if block.text("type") not in ("tool_result", "tool_use")]
    if (results and role != "user") or (calls and role != "assistant"):
        raise refuse(
            "tool_use blocks are the assistant's, tool_result blocks the user's", message.param("content")
        )
    yield from (_result(block) for block in results)
    if calls:
        yield {
            "role": role,
            "content": "\n".join(texts) or None,
            "tool_calls": [_call(block) for block in calls],
        }
    elif texts or not results:
        yield {"role": role, "content": "\n".join(texts)}


def _result(block: Fields) -> Mapping[str, object]:
    return {"role": "tool", "tool_call_id": block.text("tool_use_id"), "content": _text(block, "content")}


def _call(block: Fields) -> Mapping[str, object]:
    arguments = json.dumps(dict(block.inner("input").values), ensure_ascii=False)
    return {
        "id": block.text("id"),
        "type": "function",
        "function": {"name": block.text("name"), "arguments": arguments},
    }


def _text(fields: Fields, name: str) -> str:
    """A text, or text blocks joined with newlines; "" when absent."""
    value = fields.values.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    return "\n".join(_block_text(block) for block in fields.objects(name))


def _block_text(block: Fields) -> str:
    kind = block.text("type")
    if kind != "text":
        raise refuse(
            f"content blocks of type {kind[:40]!r} are not supported: this worker reads text only",
            block.param("type"),
        )
    if not isinstance(block.values.get("text"), str):
        raise block.wrong("text", "a string")
    return block.text("text")
