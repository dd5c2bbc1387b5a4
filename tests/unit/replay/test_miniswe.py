"""mini-swe-agent trajectories: golden ones with the prompts worked out by hand, and broken ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.miniswe import MiniSweReader, read_session
from agentcache.replay.sources import Document
from agentcache.replay.trace import Session


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def read(value: Any, line: int = 3) -> Session:
    return read_session(Document(value, Path("runs.jsonl"), line), "runs")


V1 = {
    "instance_id": "shop__cart-7",
    "trajectory_format": "mini-swe-agent-1",
    "info": {"exit_status": "Submitted"},
    "messages": [
        said("system", "S"),
        said("user", "T"),
        said("assistant", "A1", extra={"response": {"usage": {"prompt_tokens": 9}}}),
        said("user", "O1"),
        said("user", "format error"),
        said("assistant", "A2", extra={}),
        said("user", "O2"),
        said("assistant", "A3"),
        said("user", "diff"),
    ],
}


def test_every_assistant_message_is_a_call_and_its_prompt_is_all_before_it() -> None:
    session = read(V1)
    texts = [[message["content"] for message in prompt] for prompt in session.prompts()]
    assert texts == [
        ["S", "T"],
        ["S", "T", "A1", "O1", "format error"],
        ["S", "T", "A1", "O1", "format error", "A2", "O2"],
    ]
    assert [call.recorded["content"] for call in session.calls] == ["A1", "A2", "A3"]
    assert [call.keep for call in session.calls] == [0, 2, 5]
    assert (session.name, session.place) == ("shop__cart-7", "runs.jsonl, line 3")


def test_only_what_was_sent_is_kept() -> None:
    for call in read(V1).calls:
        for message in (*call.added, call.recorded):
            assert set(message) == {"role", "content"}


def test_version_2_keeps_tool_fields_and_drops_the_exit_message() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}]
    messages = [
        said("system", "S"),
        said("user", "T", extra={"timestamp": 1.5}),
        said("assistant", None, tool_calls=calls, function_call=None, extra={"actions": []}),
        said("tool", "a.py", tool_call_id="c1", extra={"returncode": 0}),
        said("assistant", "done"),
        said("exit", "Submitted", extra={}),
    ]
    session = read({"trajectory_format": "mini-swe-agent-1.1", "messages": messages})
    first, second = session.prompts()
    assert first == [said("system", "S"), said("user", "T")]
    assert second[2:] == [
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "content": "a.py", "tool_call_id": "c1"},
    ]
    assert len(session.calls) == 2


def test_a_session_without_an_id_is_named_after_its_place() -> None:
    bare = [said("user", "T"), said("assistant", "A")]
    assert read(bare).name == "runs-3"
    assert read(bare, line=0).name == "runs"
    assert len(read(bare).calls) == 1


def test_two_answers_in_a_row() -> None:
    session = read([said("user", "T"), said("assistant", "A1"), said("assistant", "A2")])
    assert [[message["content"] for message in prompt] for prompt in session.prompts()] == [
        ["T"],
        ["T", "A1"],
    ]


def test_a_session_that_never_asked_has_no_calls() -> None:
    assert read([said("system", "S"), said("user", "T")]).calls == ()
    assert read([]).calls == ()


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    broken = json.loads('"caf\\ud83d e \\ud83d\\ude00"')
    (prompt,) = read([said("user", broken), said("assistant", "A")]).prompts()
    assert prompt[0]["content"] == "caf\ufffd e \U0001f600"


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"messages": {}}, "no list of messages"),
        ({"instance_id": "x"}, "no list of messages"),
        ("text", "no list of messages"),
        ([said("user", "T"), "text"], "no role in message 1"),
        ([said("user", "T"), {"content": "x"}], "no role in message 1"),
        ([{"role": "user"}], "no content in message 0"),
        ([said("user", 5)], "no content in message 0"),
        ([said("assistant", None)], "no content in message 0"),
        ([said("assistant", "A"), said("user", "O")], "begins with an assistant message"),
    ],
)
def test_a_broken_trajectory_is_named(value: Any, complaint: str) -> None:
    with pytest.raises(CacheError, match=complaint) as caught:
        read(value)
    assert caught.value.kind is Kind.BAD_TRACE
    assert caught.value.message.startswith("runs.jsonl, line 3 ")


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (V1, True),
        ({"messages": []}, True),
        ([said("user", "T")], True),
        ({"messages": [], "trajectory_format": "other-1"}, False),
        ({"trajectory": []}, False),
        ([], False),
        ([{"from": "human", "value": "x"}], False),
        (3, False),
    ],
)
def test_recognised_by_its_first_document(value: Any, accepted: bool) -> None:
    assert MiniSweReader().accepts(Document(value, Path("t"), 1)) is accepted
