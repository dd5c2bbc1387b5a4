"""tau-bench: a golden conversation with a tool and a customer, and damaged ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentcache.replay.formats.tau import TauBenchReader
from agentcache.replay.sources import Document, Source
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Message, Place, Session
from agentcache.waits import WaitKind
from tests.traces import GOLDEN, complaint, golden, written

CALLS = [{"id": "c1", "type": "function", "function": {"name": "find_flight", "arguments": "{}"}}]


def said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def test_a_conversation_waits_for_tools_and_for_people() -> None:
    first, second = golden("tau.json")
    asks: Message = {"role": "assistant", "tool_calls": CALLS}
    found: Message = {"role": "tool", "content": "HAT1", "tool_call_id": "c1", "name": "find_flight"}
    assert first == Session(
        "3-1",
        (
            Call(
                0,
                (said("system", "Policy."), said("user", "A flight, please.")),
                asks,
                facts=Facts(finish="tool_calls", tools=(("find_flight", None),)),
            ),
            Call(
                2, (asks, found), said("assistant", "HAT1?"), facts=Facts(Gap(WaitKind.TOOL), finish="stop")
            ),
            Call(
                4,
                (said("assistant", "HAT1?"), said("user", "Yes.")),
                said("assistant", "Booked."),
                facts=Facts(Gap(WaitKind.HUMAN), finish="stop"),
            ),
        ),
        first.place,
        among=Place(group="3"),
    )
    assert (second.name, second.among.group, len(second.calls)) == ("3-1+2", "3", 1)


def test_tools_that_the_file_hides_are_the_same_for_all_its_sessions() -> None:
    sessions = TauBenchReader(tools_tokens=1200).sessions([Source(GOLDEN / "tau.json")])
    assert {session.hidden for session in sessions} == {Hidden("tools of tau", 1200)}


def one(**changes: Any) -> dict[str, Any]:
    (document, _) = json.loads((GOLDEN / "tau.json").read_text(encoding="utf-8"))
    return {**document, **changes}


@pytest.mark.parametrize(
    ("document", "wrong"),
    [
        (one(task_id=None), "task_id is missing"),
        (one(task_id=[]), "task_id is [], not a text"),
        (one(traj={}), "traj is {}, not a list"),
        (one(traj=["x"]), "traj[0] is not an object"),
        (one(traj=[{"content": "x"}]), "traj[0].role is missing"),
        (one(traj=[{"role": 3}]), "traj[0].role is 3, not a text"),
        (one(traj=[{"role": "user"}]), "traj[0].content is None, neither a text nor a list of parts"),
        (
            one(traj=[{"role": "assistant", "content": ""}]),
            "traj[0].role is 'assistant', but no answer can come first",
        ),
        (
            one(traj=[said("user", ""), {"role": "assistant", "content": "", "tool_calls": {}}]),
            "traj[1].tool_calls is {}, not a list",
        ),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, document: Any, wrong: str) -> None:
    path = written(tmp_path, "t.jsonl", one(), document)
    assert complaint(path) == f", line 2: {wrong}. Repair or remove it"


def test_in_a_list_the_session_is_named_too(tmp_path: Path) -> None:
    path = written(tmp_path, "t.json", [one(), 5])
    assert complaint(path) == ": [1] is not an object. Repair or remove it"


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (one(), True),
        ([one()], True),
        ([], False),
        ({"traj": []}, False),
        ({"task_id": 1, "traj": 1}, False),
        ("x", False),
    ],
)
def test_recognised_by_its_first_document(value: Any, accepted: bool) -> None:
    assert TauBenchReader().accepts(Document(value, Path("t"), 0)) is accepted
