"""Claude Code's logs: a golden session with sub-agents, a resume and a compaction, and damaged ones."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentcache.replay.formats.claude import ClaudeCodeReader
from agentcache.replay.sources import sources as open_sources
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Link, Message, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import golden, golden_lines, written

BEGIN = datetime(2026, 1, 22, 10, tzinfo=UTC).timestamp()
OPUS, HAIKU = "claude-opus-4-5-20251101", "claude-haiku-4-5-20251001"


def said(role: str, content: str, **more: Any) -> Message:
    return {"role": role, "content": content, **more}


def uses(**tools: str) -> list[dict[str, Any]]:
    return [
        {"id": name, "type": "function", "function": {"name": tool, "arguments": json.dumps({"path": name})}}
        for name, tool in tools.items()
    ]


TASK = said("user", "Fix the cart.")
READING = said("assistant", "Reading.", tool_calls=uses(t1="Read", t2="Task"))
FOUND = (said("tool", "x = 1", tool_call_id="t1"), said("tool", "found\n[image]", tool_call_id="t2"))
HERE = "Claude Code/2.1.15"


def test_the_session_of_a_log() -> None:
    """Calls are answers, however many lines they have. The result of the second tool comes 14 s after the answer, the
    repeated lines of the resume are no calls, what the client itself said neither; after the compaction nothing of
    the history stays; news of a background task are not a person's.
    """
    session = golden("claude")[0]
    assert session == Session(
        "s1",
        (
            Call(
                0,
                (TASK,),
                READING,
                facts=Facts(
                    Gap(), 6.0, 1010, 80, 600, "tool_calls", OPUS, tools=(("Read", 0.25), ("Task", 14.0))
                ),
            ),
            Call(
                1,
                (READING, *FOUND),
                said("assistant", "Done."),
                facts=Facts(Gap(WaitKind.TOOL, 14.0), 2.0, 1115, 0, 1010, "stop", OPUS),
            ),
            Call(
                0,
                (said("user", "Summary: the cart is fixed."),),
                said("assistant", "Tests pass."),
                facts=Facts(Gap(WaitKind.HUMAN, 138.0), 4.0, 805, 7, 600, "stop", OPUS),
            ),
            Call(
                1,
                (
                    said("assistant", "Tests pass."),
                    said("user", "<task-notification>done</task-notification>"),
                ),
                said("assistant", "Good."),
                facts=Facts(Gap(WaitKind.TOOL, 6.0), 2.0, 825, 7, 800, "stop", OPUS),
            ),
        ),
        session.place,
        origin=Origin(start_s=BEGIN),
        hidden=Hidden(f"{HERE}/claude-opus-4-5/main//shop", 999),
    )


def test_sub_agents_begin_anew_and_compactions_go_on() -> None:
    main, spawned, fork = golden("claude")
    assert spawned == Session(
        "s1/b7",
        (
            Call(
                0,
                (said("user", "Look for carts."),),
                said("assistant", "", tool_calls=uses(t3="Grep")),
                facts=Facts(Gap(seconds=0.5), 1.5, 302, 20, 0, "tool_calls", HAIKU, tools=(("Grep", 1.0),)),
            ),
            Call(
                1,
                (
                    said("assistant", "", tool_calls=uses(t3="Grep")),
                    said("tool", "cart.py", tool_call_id="t3"),
                ),
                said("assistant", "cart.py"),
                facts=Facts(Gap(WaitKind.TOOL, 1.0), 2.0, 354, 0, 302, "stop", HAIKU),
            ),
        ),
        spawned.place,
        origin=Origin("s1", Link.SPAWN, after_call=1, start_s=BEGIN + 6.5),
        hidden=Hidden(f"{HERE}/claude-haiku-4-5/sub-agent//shop", 291),
    )
    assert fork.origin == Origin("s1", Link.FORK, after_call=2, start_s=BEGIN + 150)
    assert fork.hidden == main.hidden
    (prompt,) = fork.prompts()
    assert prompt == [TASK, READING, *FOUND, said("user", "Summarise.")]
    assert fork.calls[0].facts.gap == Gap(seconds=128.0)


def lines(name: str = "s1.jsonl") -> list[dict[str, Any]]:
    return golden_lines(f"claude/{name}")


def test_old_versions_have_their_sub_agents_in_the_sessions_file(tmp_path: Path) -> None:
    """Without names: each is told by its first line."""
    side = lines("s1/subagents/agent-b7.jsonl")
    for line in side:
        del line["agentId"]
    path = written(tmp_path, "s1.jsonl", *lines()[:7], *side, *lines()[7:])
    sessions = list(ClaudeCodeReader().sessions(open_sources(path)))
    assert [(session.name, len(session.calls)) for session in sessions] == [("s1", 4), ("s1/b1", 2)]
    assert sessions[1].origin == Origin("s1", Link.SPAWN, after_call=1, start_s=BEGIN + 6.5)


def test_a_sub_agent_beside_its_session_is_found_by_the_sessions_id(tmp_path: Path) -> None:
    written(tmp_path, "agent-b7.jsonl", *lines("s1/subagents/agent-b7.jsonl"))
    written(tmp_path, "s1.jsonl", *lines())
    written(tmp_path, "t.jsonl", {"type": "summary", "summary": "nothing", "leafUuid": "x"})
    sessions = list(ClaudeCodeReader().sessions(open_sources(tmp_path)))
    assert [session.name for session in sessions] == ["s1", "s1/b7"]


def test_a_file_that_names_no_session_is_one_by_its_own_name(tmp_path: Path) -> None:
    nameless = [{name: value for name, value in line.items() if name != "sessionId"} for line in lines()]
    start = {"type": "summary", "summary": "nothing", "leafUuid": "x"}
    written(tmp_path, "7f2a.jsonl", start, *nameless)
    (tmp_path / "below").mkdir()
    written(tmp_path / "below", "7f2a.jsonl", start)
    first, *_ = ClaudeCodeReader().sessions(open_sources(tmp_path))
    assert (first.name, len(first.calls)) == ("7f2a", 4)


def test_a_session_that_a_later_file_repeats_is_told_once(tmp_path: Path) -> None:
    written(tmp_path, "a.jsonl", *lines())
    again = [{**line, "sessionId": "s2", "uuid": f"again {line.get('uuid')}"} for line in lines()[1:6]]
    again += [{**lines()[9], "sessionId": "s2", "uuid": "new", "parentUuid": again[-1]["uuid"]}]
    again[-1]["message"] = {**again[-1]["message"], "id": "m99"}
    written(tmp_path, "b.jsonl", *again)
    sessions = list(ClaudeCodeReader().sessions(open_sources(tmp_path)))
    assert [(session.name, len(session.calls)) for session in sessions] == [("s1", 4), ("s2", 1)]
