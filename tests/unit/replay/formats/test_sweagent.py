"""SWE-agent: golden trajectories told by history and by query, the window, and damaged ones."""

from pathlib import Path

from agentcache.replay.formats.sweagent import SweAgentReader
from agentcache.replay.sources import Source
from agentcache.replay.trace import Call, Facts, Gap, Message, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import GOLDEN, golden, written


def said(role: str, content: str) -> Message:
    return {"role": role, "content": content}


def tool(seconds: float | None) -> Facts:
    return Facts(Gap(WaitKind.TOOL, seconds), finish="stop")


def test_without_queries_the_prompt_is_the_agents_whole_history() -> None:
    """Another agent's answer is no call of this one; a step that the history lacks is passed over."""
    (session,) = golden("sweagent.traj")
    a1, a2, a3, a4 = (said("assistant", f"A{n}") for n in (1, 2, 3, 4))
    o1, o2, o3 = (said("user", f"O{n}\nmore") for n in (1, 2, 3))
    assert session == Session(
        "sweagent",
        (
            Call(
                0,
                (said("system", "S"), said("user", "Demo"), said("user", "Task")),
                a1,
                facts=Facts(finish="stop"),
            ),
            Call(3, (a1, o1), a2, facts=tool(0.5)),
            Call(5, (a2, o2), a3, facts=tool(0.25)),
            Call(7, (a3, o3), a4, facts=tool(None)),
        ),
        session.place,
        origin=Origin(group="sweagent"),
    )


def test_a_window_rewrites_old_observations() -> None:
    """The task and the last observation stay; a demonstration is no observation."""
    (session,) = SweAgentReader(window=1).sessions([Source(GOLDEN / "sweagent.traj")])
    texts = [[message["content"] for message in prompt] for prompt in session.prompts()]
    omitted = "Old output omitted (2 lines)"
    assert texts == [
        ["S", "Demo", "Task"],
        ["S", "Demo", "Task", "A1", "O1\nmore"],
        ["S", "Demo", "Task", "A1", omitted, "A2", "O2\nmore"],
        ["S", "Demo", "Task", "A1", omitted, "A2", omitted, "A3", "O3\nmore"],
    ]
    assert [call.keep for call in session.calls] == [0, 3, 4, 6]


def test_a_query_is_the_prompt_as_it_was_sent() -> None:
    (session,) = golden("sweagent-query.traj")
    calls = [{"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]
    asks: Message = {"role": "assistant", "content": "A1", "tool_calls": calls}
    old = "Old environment output: (1 lines omitted)"
    assert session.calls == (
        Call(
            0,
            (said("system", "S"), said("user", "Task")),
            said("assistant", "A1"),
            facts=Facts(finish="stop"),
        ),
        Call(
            2,
            (asks, {"role": "tool", "content": "O1", "tool_call_id": "c1"}),
            said("assistant", "A2"),
            facts=tool(0.5),
        ),
        Call(
            3,
            ({"role": "tool", "content": old, "tool_call_id": "c1"}, said("assistant", "A2")),
            said("assistant", "A3"),
            facts=tool(1.5),
        ),
    )


def test_runs_of_the_same_task_are_one_group(tmp_path: Path) -> None:
    steps = [
        {"role": "system", "system_prompt": "S", "text": None},
        {"role": "user", "text": "T"},
        {"role": "ai", "text": "A"},
    ]
    told = {"instance_id": "shop-1", "trajectory": steps}
    path = written(tmp_path, "runs.jsonl", told, told)
    first, second = SweAgentReader().sessions([Source(path)])
    assert [first.name, second.name] == ["shop-1", "shop-1+2"]
    assert first.origin == second.origin == Origin(group="shop-1")
    assert list(first.prompts()) == [[said("system", "S"), said("user", "T")]]
