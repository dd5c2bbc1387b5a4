"""Codex's rollouts: a golden one by hand, with parallel tools and a compaction, and damaged ones."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentcache.replay.readers import open_trace
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import golden, golden_lines, written

BEGIN = datetime(2026, 6, 1, 5, 40, tzinfo=UTC).timestamp()


def called(name: str, function: str, arguments: str) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": function, "arguments": arguments}}


def test_a_call_is_whole_where_the_counts_change() -> None:
    """Counts told twice are one call, and none where nothing is counted. Of 100 tokens 121 characters are text. After
    the compaction its history is all that is left."""
    (session,) = golden("codex.jsonl")
    asked = (
        {"role": "system", "content": "You code."},
        {"role": "developer", "content": "Rules"},
        {"role": "user", "content": "Fix it"},
    )
    looking = {
        "role": "assistant",
        "content": "Looking",
        "tool_calls": [called("k1", "shell", '{"cmd":"ls"}'), called("k2", "shell", "{}")],
    }
    results = (
        {"role": "tool", "content": "a.py", "tool_call_id": "k1"},
        {"role": "tool", "content": "{}", "tool_call_id": "k2"},
    )
    compacted = tuple({"role": "user", "content": text} for text in ("Fix it", "Sum", "More"))
    patch = {"role": "assistant", "content": "", "tool_calls": [called("k3", "apply_patch", "P")]}
    tools = (("shell", 1.0), ("shell", 2.0))
    assert session == Session(
        "c1",
        (
            Call(0, asked, looking, facts=Facts(Gap(), 3.0, 100, 20, 64, "tool_calls", "gpt-5", tools)),
            Call(
                3,
                (looking, *results),
                {"role": "assistant", "content": "Done"},
                facts=Facts(Gap(WaitKind.TOOL, 2.0), 2.0, 170, 10, 128, "stop", "gpt-5"),
            ),
            Call(
                0,
                compacted,
                patch,
                facts=Facts(
                    Gap(WaitKind.HUMAN, 22.0), 2.0, 60, 5, 0, "tool_calls", "gpt-5", (("apply_patch", None),)
                ),
            ),
        ),
        session.place,
        origin=Origin(start_s=BEGIN + 1),
        hidden=Hidden("Codex/0.50.0/gpt-5", 70),
    )
    assert sum(len(str(message)) for message in asked) // 4 == 30


def test_a_compaction_without_a_history_leaves_its_message(tmp_path: Path) -> None:
    log = golden_lines("codex.jsonl")
    del log[17]["payload"]["replacement_history"]
    (session,) = open_trace(written(tmp_path, "t.jsonl", *log)).sessions()
    assert [message["content"] for message in session.calls[2].added] == ["Sum", "More"]


def test_a_log_in_which_nothing_was_counted_is_no_session(tmp_path: Path) -> None:
    path = written(tmp_path, "t.jsonl", *golden_lines("codex.jsonl")[:6])
    assert list(open_trace(path).sessions()) == []
