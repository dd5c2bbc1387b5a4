"""Chat and text requests: what is read, what is refused and by which name."""

import re
from pathlib import Path
from typing import Any

import pytest

from agentcache.engine.api import Sampling
from agentcache.errors import CacheError, Kind
from agentcache.web.fields import Fields
from agentcache.worker.chat import read_chat
from agentcache.worker.completion import read_completion
from agentcache.worker.options import UnknownFields, read_options

HI = [{"role": "user", "content": "hi"}]
TOOL = {
    "type": "function",
    "function": {"name": "ls", "description": "list", "parameters": {"type": "object"}},
}


def chat(**values: Any) -> Fields:
    return Fields({"model": "m", "messages": HI, **values})


def refused(values: dict[str, Any]) -> CacheError:
    with pytest.raises(CacheError) as caught:
        read_chat(chat(**values))
    return caught.value


def test_defaults_are_those_of_the_openai_api() -> None:
    options = read_options(Fields({}))
    assert options.sampling == Sampling(1.0, 1.0, None)
    assert (options.max_tokens, options.stops, options.stream, options.reuse) == (0, (), False, True)


def test_every_field_is_read() -> None:
    options = read_options(
        Fields(
            {
                "temperature": 0,
                "top_p": 0.5,
                "seed": 7,
                "max_tokens": 5,
                "max_completion_tokens": 9,
                "stop": ["a", "b"],
                "stream": True,
                "stream_options": {"include_usage": True},
                "ignore_eos": True,
                "return_token_ids": True,
                "priority": 2,
                "agentcache": {"logits_digest": True, "reuse": False},
            }
        )
    )
    assert options.sampling == Sampling(0.0, 0.5, 7)
    assert (options.max_tokens, options.stops, options.priority) == (9, ("a", "b"), 2)
    assert all((options.stream, options.include_usage, options.ignore_eos, options.token_ids, options.digest))
    assert not options.reuse


@pytest.mark.parametrize(
    ("values", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"presence_penalty": -1}, "presence_penalty"),
        ({"functions": [{}]}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"tool_choice": "required", "tools": [TOOL]}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "ls"}}, "tools": [TOOL]}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": {}}, "tools"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [3]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "function", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "messages[0].content[0].type",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        (
            {"messages": [{"role": "user", "content": "", "tool_calls": [{"function": {"name": "x"}}]}]},
            "messages[0].tool_calls",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]},
            "messages[0].tool_calls[0].type",
        ),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": 3}]}, "messages[0].tool_call_id"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 2**70}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": "5"}, "max_completion_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"seed": "x"}, "seed"),
        ({"stop": 3}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a", 3]}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"agentcache": 1}, "agentcache"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_by_name(values: dict[str, Any], param: str) -> None:
    error = refused(values)
    assert error.kind is Kind.BAD_REQUEST
    assert error.facts["param"] == param


@pytest.mark.parametrize(
    "values",
    [
        {"n": 1, "logprobs": False, "frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}},
        {"response_format": {"type": "text"}, "modalities": ["text"], "n": None, "tool_choice": "none"},
        {
            "user": "u",
            "metadata": {"a": "b"},
            "store": False,
            "service_tier": "auto",
            "prompt_cache_key": "k",
        },
    ],
    ids=str,
)
def test_fields_that_ask_for_nothing_are_accepted(values: dict[str, Any]) -> None:
    read_chat(chat(**values))


@pytest.mark.parametrize("values", [{"messages": []}, {"messages": None}])
def test_no_messages_are_an_empty_prompt(values: dict[str, Any]) -> None:
    assert refused(values).kind is Kind.EMPTY_PROMPT


def test_messages_become_what_templates_want() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"p": 1}'}}
    request = read_chat(
        chat(
            messages=[
                {"role": "developer", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
                {"role": "tool", "tool_call_id": "c1", "content": "out"},
            ],
            tools=[TOOL],
        )
    )
    assert request.messages == (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "out", "tool_call_id": "c1"},
    )
    assert request.tools == (TOOL,)
    assert request.parse_calls
    assert not request.one_call


def test_calls_are_parsed_only_when_they_may_come() -> None:
    assert not read_chat(chat()).parse_calls
    assert not read_chat(chat(tools=[TOOL], tool_choice="none")).parse_calls
    assert read_chat(chat(tools=[TOOL], parallel_tool_calls=False)).one_call


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("hi", "hi"), (["hi"], "hi"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2))],
    ids=str,
)
def test_a_text_prompt_is_text_or_tokens(prompt: object, read: object) -> None:
    assert read_completion(Fields({"prompt": prompt}), 10).prompt == read


@pytest.mark.parametrize(
    "prompt",
    [3, {}, ["a", "b"], [[1], [2]], [1, "a"], [1, 10], [-1], [True], [1.0], [[["a"]]], [[[1]]]],
    ids=str,
)
def test_a_wrong_text_prompt_is_refused(prompt: object) -> None:
    with pytest.raises(CacheError) as caught:
        read_completion(Fields({"prompt": prompt}), 10)
    assert caught.value.kind is Kind.BAD_REQUEST
    assert caught.value.facts["param"] == "prompt"


@pytest.mark.parametrize("prompt", ["", [], [""], [[]], None], ids=str)
def test_an_empty_text_prompt_has_its_own_kind(prompt: object) -> None:
    with pytest.raises(CacheError) as caught:
        read_completion(Fields({"prompt": prompt}), 10)
    assert caught.value.kind is Kind.EMPTY_PROMPT


def test_documented_fields_are_never_called_unknown() -> None:
    page = Path(__file__).parents[3] / "docs" / "worker.md"
    rows = re.findall(r"^\| (`.*?`.*?) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)[`.:]", row)}
    assert {"messages", "cache_salt", "agentcache", "stream_options"} <= named
    told: list[str] = []
    UnknownFields(told.append).report(Fields(dict.fromkeys(named, 1)))
    assert told == []


def test_unknown_fields_are_told_once_and_boundedly() -> None:
    told: list[str] = []
    unknown = UnknownFields(told.append, limit=2)
    unknown.report(Fields({"min_p": 1, "model": "m"}))
    unknown.report(Fields({"min_p": 1, "b": 1, "c": 1}))
    assert told == ["min_p", "b"]
