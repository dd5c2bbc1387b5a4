"""aiperf's branching conversations: a golden file by hand, and damaged ones."""

from pathlib import Path
from typing import Any

from agentcache.replay.readers import open_trace
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import golden, written


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
        (early, "E", Origin("plan", Link.SPAWN, 0), 0.0),
        (aide, "H", Origin("plan", Link.SPAWN, 1), 0.04),
    ):
        assert [call.added for call in session.calls] == [(user(said),)]
        assert (session.origin, session.calls[0].facts.gap.seconds) == (parent, seconds)
    history = (SYSTEM, user("T"), user("U"), RESULT)
    origin = Origin("plan", Link.FORK, 3)
    assert left == Session(
        "left", (Call(0, (*history, user("L")), facts=facts()),), left.place, origin=origin
    )
    assert right == Session(
        "right",
        (Call(0, (*history, user("R")), facts=facts()), Call(5, (user("R2"),), facts=facts())),
        right.place,
        origin=origin,
    )
    assert late == Session(
        "late",
        (
            Call(0, (user("A"),), facts=facts()),
            Call(1, ({"role": "assistant", "content": "B"}, user("C")), facts=facts()),
        ),
        late.place,
        origin=Origin("right", Link.SPAWN, 2),
    )


def test_a_conversation_without_branches(tmp_path: Path) -> None:
    turns = [{"messages": [user("T")]}, {"messages": [user("U")]}]
    (session,) = open_trace(written(tmp_path, "t.jsonl", {"session_id": "a", "turns": turns})).sessions()
    assert list(session.prompts()) == [[user("T")], [user("T"), user("U")]]
