"""mini-swe-agent trajectories: golden ones with the prompts worked out by hand, and broken ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentcache.errors import CacheError
from agentcache.replay.formats.miniswe import read_session
from agentcache.replay.readers import open_trace
from agentcache.replay.sources import Document
from agentcache.replay.trace import Call, Facts, Gap, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import golden, written


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


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"instance_id": "x"}, ": messages is missing"),
        ({"messages": {}}, ": messages is {}, not a list"),
        ("text", " is not an object"),
        ([said("user", "T"), "text"], ": messages[1] is not an object"),
    ],
)
def test_what_is_no_list_of_messages_is_named(value: Any, complaint: str) -> None:
    with pytest.raises(CacheError) as caught:
        read(value)
    assert caught.value.message == f"runs.jsonl, line 3{complaint}. Repair or remove it"


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    broken = json.loads('"caf\\ud83d e \\ud83d\\ude00"')
    (prompt,) = read([said("user", broken), said("assistant", "A")]).prompts()
    assert prompt[0]["content"] == "caf\ufffd e \U0001f600"


def test_version_1_times_are_split_by_the_length_of_the_answer() -> None:
    """`created` is the start of an answer: 2 s and 11 ms a token later it is whole, what is left was the tool."""
    (session,) = golden("miniswe-1.jsonl")
    system, task = said("system", "You run commands."), said("user", "Fix the cart.")
    first, second, third = said("assistant", "A1"), said("assistant", "A2"), said("assistant", "A3")
    model = "acme/large"
    assert session == Session(
        "shop__cart-7",
        (
            Call(0, (system, task), first, facts=Facts(Gap(), 3.1, 900, 100, 0, "stop", model)),
            Call(
                2,
                (first, said("user", "O1")),
                second,
                facts=Facts(Gap(WaitKind.TOOL, 6.9, measured=False), 2.0, 1020, 0, None, "length", model),
            ),
            Call(
                4,
                (second, said("user", "O2")),
                third,
                facts=Facts(Gap(WaitKind.TOOL, 0.0, measured=False), 2.55, 1040, 50, 1024, "stop", model),
            ),
        ),
        session.place,
        origin=Origin(start_s=1_763_510_500, group="shop__cart-7"),
    )


def test_version_2_times_are_measured_at_both_ends() -> None:
    (session,) = golden("miniswe-2.traj.json")
    facts = [call.facts for call in session.calls]
    assert [one.gap for one in facts] == [Gap(), Gap(WaitKind.TOOL, 0.5), Gap(WaitKind.TOOL, 1.25)]
    assert [one.api_s for one in facts] == [4.2, 2.0, 3.0]
    assert [one.finish for one in facts] == ["tool_calls", "tool_calls", "stop"]
    assert session.origin == Origin(start_s=995.8, group="shop__cart-8")
    assert session.calls[1].added[1] == {"role": "tool", "content": "a.py", "tool_call_id": "c1"}
    assert len(session.calls) == 3


def test_what_is_not_recorded_is_not_known() -> None:
    """An answer without a response between two that have one."""
    session = read([said("user", "T"), said("assistant", "A1"), said("user", "O"), said("assistant", "A2")])
    assert [call.facts for call in session.calls] == [Facts(), Facts(Gap(WaitKind.TOOL))]
    assert session.origin == Origin()


def test_runs_of_the_same_task_have_names_of_their_own(tmp_path: Path) -> None:
    first, second = open_trace(written(tmp_path, "t.jsonl", V1, V1)).sessions()
    assert (first.name, second.name) == ("shop__cart-7", "shop__cart-7+2")
    assert first.origin == second.origin == Origin(group="shop__cart-7")
