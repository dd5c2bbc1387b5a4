"""`agentcache replay PATH` without a worker."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentcache.errors import CacheError, Kind
from agentcache.replay.cli import replay_trace
from agentcache.replay.formats.agentcache import told
from agentcache.replay.lab.command import WORST, load_workload
from agentcache.replay.lab.options import LabOptions
from agentcache.replay.lab.shown import on_stdout, show
from agentcache.replay.readers import open_trace
from agentcache.replay.sample import SAMPLE
from agentcache.replay.trace import Call, Facts, Gap, Origin, Session
from agentcache.waits import WaitKind
from tests.traces import written

SMALL: dict[str, Any] = {"seeds": 1, "capacities": (2.0,), "live": 2.0, "processes": 1, "as_json": True}


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON object on stdout."""
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_a_trace_is_replayed_under_the_orders_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay_trace(SAMPLE, {**SMALL, "policies": ("ert",)}) == 0
    answer = said(capsys)
    assert [row["policy"] for row in answer["rows"]] == ["lru", "ert", "clairvoyant"]
    row = answer["rows"][0]
    assert answer["trace"]["calls"] == row["full_hits"] + sum(row["misses"].values())
    assert answer["replayed_tokens_per_s"] > 0
    assert answer["missed"][0]["again_tokens"] >= answer["missed"][-1]["again_tokens"]


def test_a_table_is_printed_with_the_sessions_that_lost_most(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay_trace(SAMPLE, {**SMALL, "as_json": False, "sessions": 2}) == 0
    shown = capsys.readouterr()
    assert "mean share" in shown.out
    assert "sessions that computed most again" in shown.out
    assert "2 sessions" in shown.err


def test_every_option_changes_what_is_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"host": 1.0, "queue": True, "scheduler": "least_uncached", "close": False, "hints": "exact"}
    assert replay_trace(SAMPLE, {**SMALL, **asked, "policies": ("ert",)}) == 0
    row = said(capsys)["rows"][1]
    assert (row["host_capacity"], row["tiers"], row["queue"]) == (1.0, 2, True)
    assert (row["scheduler"], row["close"], row["hints"]) == ("least_uncached", False, "exact")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_tokens": 3}, "--max-tokens is for a replay against a worker"),
        ({"url": "http://127.0.0.1:9", "policies": ("ert",)}, "--policy is for a replay in the lab"),
    ],
)
def test_options_of_the_other_kind_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(CacheError, match=named) as refused:
        replay_trace(SAMPLE, options)
    assert refused.value.kind is Kind.BAD_REQUEST


def test_a_selection_that_leaves_nothing_says_why() -> None:
    with pytest.raises(CacheError, match="over --longest-tokens 1") as refused:
        replay_trace(SAMPLE, {**SMALL, "longest_h": 1e-9, "longest_tokens": 1})
    assert refused.value.kind is Kind.BAD_TRACE


def session(name: str, tokens: int, calls: int = 1, start_s: float | None = None) -> Session:
    """So many calls with prompts of so many tokens."""
    told = [
        Call(0, blocks=tuple(range(tokens // 64)), facts=Facts(Gap(WaitKind.TOOL, 5.0), 0.0, tokens, 5))
        for _ in range(calls)
    ]
    return Session(name, tuple(told), "", 64, name, Origin(start_s=start_s))


def trace(folder: Path, *sessions: Session) -> Path:
    return written(folder, "own.jsonl", *map(told, sessions))


def test_what_is_left_out_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = trace(tmp_path, session("a", 640, calls=2), session("b", 6_400, calls=3))
    assert replay_trace(path, {**SMALL, "longest_tokens": 1_000}) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["trace"] == {
        "name": "own.jsonl",
        "sessions": 1,
        "calls": 2,
        "prompt_tokens": 1_280,
        "peak_tokens": 640,
        "left_out": {"long_prompt": {"sessions": 1, "calls": 3, "prompt_tokens": 19_200}},
    }
    lines = shown.err.splitlines()
    assert lines[0] == "own.jsonl: reading"
    assert lines[1] == "own.jsonl: 1 session, 2 calls, 1,280 prompt tokens, mean peak 640 tokens"
    assert "calls: 3, prompt tokens: 19,200" in lines[2]
    assert "--longest-tokens 1,000" in lines[2]


def test_the_default_limits_leave_out_what_a_few_giants_would_rule(tmp_path: Path) -> None:
    path = trace(tmp_path, session("a", 640), session("b", 400_000), session("c", 400_064))
    workload = load_workload("own", open_trace(path).sessions(), LabOptions(), Console(quiet=True))
    assert [one.name for one in workload.sessions] == ["a", "b"]


def test_a_trace_that_fills_no_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="has a prompt of 64 tokens") as refused:
        replay_trace(trace(tmp_path, session("a", 63)), SMALL)
    assert refused.value.kind is Kind.BAD_TRACE


def test_a_directory_gives_its_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace(tmp_path, session("a", 640))
    (tmp_path / "below").mkdir()
    assert replay_trace(tmp_path / "below" / "..", SMALL) == 0
    assert said(capsys)["trace"]["name"] == tmp_path.name


def test_the_result_says_what_was_asked_and_in_which_cell_every_session_missed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = [f"s{number}" for number in range(12)]
    path = trace(tmp_path, *(session(name, 640, calls=2) for name in names))
    asked = {"capacities": (3.0, 2.0), "host": 1.0, "close": False}
    assert replay_trace(path, {**SMALL, **asked}) == 0
    answer = said(capsys)
    assert answer["options"]["capacities"] == [3.0, 2.0]
    assert (answer["options"]["live"], answer["options"]["seeds"]) == (2.0, 1)
    assert {one["session"] for one in answer["missed"]} == set(names)
    assert answer["missed_in"] == {
        "arm": "ert-noclose",
        "capacity": 2.0,
        "host_capacity": 1.0,
        "external_capacity": 0.0,
        "seed": 1,
    }
    assert replay_trace(path, {**SMALL, **asked, "as_json": False}) == 0
    shown = capsys.readouterr().out
    assert "ert-noclose in a room of 2 + 1, seed 1" in shown
    assert sum(f" {name} " in shown for name in names) == WORST


def test_the_table_can_be_made_again_of_the_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = trace(tmp_path, *(session(f"s{number}", 640 * number, calls=3) for number in range(1, 7)))
    asked = {**SMALL, "capacities": (2.0, 3.0), "host": 1.0, "seeds": 2}
    assert replay_trace(path, asked) == 0
    answer = said(capsys)
    assert replay_trace(path, {**asked, "as_json": False}) == 0
    printed = capsys.readouterr().out
    show(answer["rows"], on_stdout())
    assert printed.startswith(capsys.readouterr().out)


def test_the_page_about_replays_names_every_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = trace(tmp_path, session("a", 640, calls=2), session("b", 640, calls=2))
    assert replay_trace(path, SMALL) == 0
    answer = said(capsys)
    page = (Path(__file__).parents[4] / "docs" / "replay.md").read_text(encoding="utf-8")
    told = page[page.index("### As JSON") :]
    keys = {*answer, *answer["trace"], *answer["missed"][0], *answer["rows"][0]}
    assert {key for key in keys if f"`{key}`" not in told} == set()
