"""Codex's rollouts: a golden one by hand, with parallel tools and a compaction, and damaged ones."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentcache.replay.formats.codex import CodexReader
from agentcache.replay.readers import open_trace
from agentcache.replay.sources import Document
from agentcache.replay.trace import Call, Facts, Gap, Hidden, Place, Session
from agentcache.waits import WaitKind
from tests.traces import GOLDEN, complaint, golden, written

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
        among=Place(start_s=BEGIN + 1),
        hidden=Hidden("Codex/0.50.0/gpt-5", 70),
    )
    assert sum(len(str(message)) for message in asked) // 4 == 30


def lines() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / "codex.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_compaction_without_a_history_leaves_its_message(tmp_path: Path) -> None:
    log = lines()
    del log[17]["payload"]["replacement_history"]
    (session,) = open_trace(written(tmp_path, "t.jsonl", *log)).sessions()
    assert [message["content"] for message in session.calls[2].added] == ["Sum", "More"]


def test_a_log_in_which_nothing_was_counted_is_no_session(tmp_path: Path) -> None:
    path = written(tmp_path, "t.jsonl", *lines()[:6])
    assert list(open_trace(path).sessions()) == []


def changed(number: int, *way: Any, to: Any) -> list[Any]:
    """The golden log with one field changed."""
    whole: list[Any] = lines()
    at = whole[number]
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = to
    return whole


@pytest.mark.parametrize(
    ("whole", "wrong"),
    [
        ([*lines()[:2], 5], "line 3 is not an object"),
        (changed(2, "timestamp", to=None), "line 3: timestamp is missing"),
        (
            changed(2, "timestamp", to="noon"),
            "line 3: timestamp is 'noon', not a time as 2026-01-31T12:00:00Z",
        ),
        (
            changed(2, "timestamp", to="2026-05-01T05:40:00Z"),
            "line 3: timestamp is earlier than that of the line before it",
        ),
        (changed(2, "payload", to=[]), "line 3: payload is [], not an object"),
        (changed(2, "payload", "role", to=None), "line 3: payload.role is missing"),
        (changed(2, "payload", "content", to=5), "line 3: payload.content is 5, not a list"),
        (changed(2, "payload", "content", to=[5]), "line 3: payload.content[0] is not an object"),
        (changed(8, "payload", "call_id", to=None), "line 9: payload.call_id is missing"),
        (changed(8, "payload", "arguments", to={}), "line 9: payload.arguments is {}, not a text"),
        (changed(10, "payload", "info", to=[]), "line 11: payload.info is [], not an object"),
        (
            changed(10, "payload", "info", "last_token_usage", "input_tokens", to=-1),
            "line 11: payload.info.last_token_usage.input_tokens is -1, not a whole number from 0 on",
        ),
        (
            changed(17, "payload", "replacement_history", to=[1]),
            "line 18: payload.replacement_history[0] is not an object",
        ),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, whole: list[Any], wrong: str) -> None:
    assert complaint(written(tmp_path, "t.jsonl", *whole)) == f", {wrong}. Repair or remove it"


@pytest.mark.parametrize("damage", [b'{"type": "x', b'{"type": "\xff"}'])
def test_damaged_bytes_are_named(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "t.jsonl").write_bytes((GOLDEN / "codex.jsonl").read_bytes() + damage)
    assert complaint(tmp_path / "t.jsonl").startswith(", line 22 is not JSON: ")


@pytest.mark.parametrize(
    ("value", "accepted"),
    [
        (lines()[0], True),
        ({"type": "session_meta"}, False),
        ({"type": "user", "payload": {}}, False),
        ({"type": [], "payload": {}}, False),
        ([], False),
    ],
)
def test_recognised_by_its_first_document(value: Any, accepted: bool) -> None:
    assert CodexReader().accepts(Document(value, Path("t"), 1)) is accepted
