"""aiperf's branching conversations: a golden file by hand, and damaged ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentcache.replay.formats.aiperf import AiperfReader
from agentcache.replay.readers import open_trace
from agentcache.replay.sources import Document
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Place, Session
from agentcache.waits import WaitKind
from tests.traces import GOLDEN, complaint, golden, written


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def facts(seconds: float = 0.0, **more: Any) -> Facts:
    return Facts(Gap(WaitKind.HUMAN, seconds), **more)


SYSTEM = {"role": "system", "content": "S"}
RESULT = {"role": "tool", "content": "R", "tool_call_id": "1"}


def test_forks_have_their_parents_history_and_spawns_have_not() -> None:
    """Parents come first, whatever the order of the lines. A turn that a spawn is joined to has no wait of its own."""
    plan, early, aide, left, right, late = golden("aiperf.jsonl")
    assert plan == Session(
        "plan",
        (
            Call(0, (SYSTEM, user("T")), facts=facts(output_tokens=100, model="m")),
            Call(2, (user("U"),), facts=facts(1.5)),
            Call(3, (RESULT,), facts=Facts(Gap(WaitKind.TOOL, 0.01, measured=False))),
        ),
        plan.place,
        hidden=Hidden("tools 1915256b9af9", 13),
    )
    for session, said, parent, seconds in (
        (early, "E", Place("plan", Link.SPAWN, 0), 0.0),
        (aide, "H", Place("plan", Link.SPAWN, 1), 0.04),
    ):
        assert [call.added for call in session.calls] == [(user(said),)]
        assert (session.among, session.calls[0].facts.gap.seconds) == (parent, seconds)
    history = (SYSTEM, user("T"), user("U"), RESULT)
    among = Place("plan", Link.FORK, 3)
    assert left == Session("left", (Call(0, (*history, user("L")), facts=facts()),), left.place, among=among)
    assert right == Session(
        "right",
        (Call(0, (*history, user("R")), facts=facts()), Call(5, (user("R2"),), facts=facts())),
        right.place,
        among=among,
    )
    assert late == Session(
        "late",
        (
            Call(0, (user("A"),), facts=facts()),
            Call(1, ({"role": "assistant", "content": "B"}, user("C")), facts=facts()),
        ),
        late.place,
        among=Place("right", Link.SPAWN, 2),
    )


def test_a_conversation_without_branches(tmp_path: Path) -> None:
    turns = [{"messages": [user("T")]}, {"messages": [user("U")]}]
    (session,) = open_trace(written(tmp_path, "t.jsonl", {"session_id": "a", "turns": turns})).sessions()
    assert list(session.prompts()) == [[user("T")], [user("T"), user("U")]]


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / "aiperf.jsonl").read_text(encoding="utf-8").splitlines()]


def changed(number: int, *way: Any, to: Any) -> list[Any]:
    """The golden conversations with one field changed."""
    whole: list[Any] = lines()
    at = whole[number]
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = to
    return whole


@pytest.mark.parametrize(
    ("whole", "wrong"),
    [
        ([lines()[0], 5], "line 2 is not an object"),
        ([lines()[0], lines()[0]], "line 2: session_id is 'helper', which another conversation has"),
        (changed(1, "session_id", to=None), "line 2: session_id is missing"),
        (changed(1, "turns", to={}), "line 2: turns is {}, not a list"),
        (changed(1, "turns", 1, "messages", to=None), "line 2: turns[1].messages is missing"),
        (changed(1, "turns", 0, "messages", to=[]), "line 2: turns[0].messages is empty"),
        (changed(1, "turns", 1, "messages", to=[{}]), "line 2: turns[1].messages[0].role is missing"),
        (
            changed(1, "turns", 1, "messages", to=[{"role": "user"}]),
            "line 2: turns[1].messages[0].content is None, neither a text nor a list of parts",
        ),
        (changed(1, "turns", 1, "delay", to=-1), "line 2: turns[1].delay is -1, a negative time"),
        (changed(1, "turns", 1, "delay", to="1"), "line 2: turns[1].delay is '1', not a number"),
        (
            changed(1, "turns", 0, "max_tokens", to=True),
            "line 2: turns[0].max_tokens is True, not a whole number from 0 on",
        ),
        (changed(1, "turns", 2, "forks", to="left"), "line 2: turns[2].forks is 'left', not a list"),
        (
            changed(1, "turns", 2, "forks", 0, to="other"),
            "line 2: turns[2].forks names 'other', which is no conversation of this file",
        ),
        (
            changed(1, "turns", 2, "forks", 0, to="right"),
            "line 2: turns[2].forks names 'right', which has begun elsewhere",
        ),
        (
            changed(1, "turns", 0, "spawns", 0, "children", to=["helper", "helper"]),
            "line 2: turns[0].spawns names 'helper', which has begun elsewhere",
        ),
        (
            changed(2, "turns", 0, "spawns", to=["plan"]),
            "line 1: session_id is 'helper', which begins only after itself",
        ),
        (
            changed(5, "orchestrator", to=True),
            "line 6: orchestrator is there: an orchestrator sends nothing and is not read",
        ),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, whole: list[Any], wrong: str) -> None:
    assert complaint(written(tmp_path, "t.jsonl", *whole)) == f", {wrong}. Repair or remove it"


@pytest.mark.parametrize("damage", [b'{"session_id": "x', b'{"session_id": "\xff"}'])
def test_damaged_bytes_are_named(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "t.jsonl").write_bytes((GOLDEN / "aiperf.jsonl").read_bytes() + damage)
    assert complaint(tmp_path / "t.jsonl").startswith(", line 7 is not JSON: ")


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (lines()[0], True),
        ({"session_id": "a", "turns": [{"input_delta": []}]}, False),
        ({"session_id": "a"}, False),
        ([], False),
    ],
)
def test_recognised_by_its_first_document(value: Any, accepted: bool) -> None:
    assert AiperfReader().accepts(Document(value, Path("t"), 1)) is accepted
