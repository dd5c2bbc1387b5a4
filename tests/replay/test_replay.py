"""`agentcache replay` against a real worker."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.cli import AT_A_WORKER, ReplayOptions, replay
from tests.replay.conftest import NAMES, Served, trajectory, write_trace

GRID_TOKENS = 32


def options(**changes: Any) -> ReplayOptions:
    given = {**AT_A_WORKER, "max_tokens": 3, "concurrency": 3}
    return ReplayOptions(**{**given, "as_json": True, **changes})  # type: ignore[typeddict-item]


def replayed(
    capsys: pytest.CaptureFixture[str], path: Path, served: Served, **changes: Any
) -> tuple[int, dict[str, Any]]:
    """Exit code, and the one JSON object on stdout."""
    code = replay(path, served.url, **options(**changes))
    return code, json.loads(capsys.readouterr().out)


def test_every_turn_but_the_first_finds_what_the_one_before_it_left(
    capsys: pytest.CaptureFixture[str], trace: Path, served: Served
) -> None:
    code, report = replayed(capsys, trace, served, concurrency=1, sessions=1)
    (session,) = report["sessions"]
    assert code == 0
    assert (session["name"], session["turns"], session["turns_in_trace"]) == (NAMES[0], 4, 4)
    assert session["cached_tokens"] % GRID_TOKENS == 0
    assert 0.5 < session["hit_rate"] < 1
    assert session["completion_tokens"] <= 4 * 3
    assert session["ttft_later_turns_ms"] > 0


def test_sessions_at_once_share_their_system_prompt_and_are_closed(
    capsys: pytest.CaptureFixture[str], trace: Path, served: Served
) -> None:
    code, report = replayed(capsys, trace, served)
    assert code == 0
    assert report["complete"] is True
    assert [session["name"] for session in report["sessions"]] == list(NAMES)
    assert report["totals"]["sessions"] == report["sessions_in_file"] == 3
    assert report["totals"]["turns"] == 12
    assert report["totals"]["cached_tokens"] == sum(one["cached_tokens"] for one in report["sessions"])


def test_limits_are_kept(capsys: pytest.CaptureFixture[str], trace: Path, served: Served) -> None:
    code, report = replayed(capsys, trace, served, sessions=2, turns=3, max_tokens=1)
    assert code == 0
    assert [session["turns"] for session in report["sessions"]] == [3, 3]
    assert report["totals"]["completion_tokens"] == 6
    assert report["sessions_in_file"] == 3


@pytest.mark.parametrize("concurrency", [1, 3])
def test_compare_cold_finds_the_same_logits_and_tokens(
    capsys: pytest.CaptureFixture[str], trace: Path, served: Served, concurrency: int
) -> None:
    code, report = replayed(capsys, trace, served, compare_cold=2, concurrency=concurrency)
    assert code == 0
    compared = report["compared_cold"]
    assert compared["turns"] == compared["same_first_logits"] == 8
    assert compared["same_outputs"] == 8
    assert compared["ttft_cold_ms"] > 0
    assert report["totals"]["cached_tokens"] > 0


def test_a_turn_over_the_context_is_reported_and_skipped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, served: Served
) -> None:
    """4,096 tokens of context: the first turns fit, later ones do not; the other session is whole."""
    sessions = [trajectory("too-long", 6, 400), trajectory("short", 2, 5)]
    code, report = replayed(capsys, write_trace(tmp_path / "t.jsonl", sessions), served)
    long, short = report["sessions"]
    assert code == 1
    assert report["complete"] is False
    assert 0 < long["turns"] < 6
    assert long["turns"] + long["skipped"] == 6
    assert (short["turns"], short["skipped"]) == (2, 0)
    assert [refused["turn"] for refused in long["refused"]] == list(range(long["turns"] + 1, 7))
    assert {refused["code"] for refused in long["refused"]} == {"context_length_exceeded"}


def test_the_table_names_sessions_and_what_was_skipped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, served: Served
) -> None:
    path = write_trace(tmp_path / "t.jsonl", [trajectory("too-long", 6, 400), trajectory("short", 2, 5)])
    assert replay(path, served.url, **options(as_json=False)) == 1
    shown = capsys.readouterr()
    assert "skipped: too-long, " in shown.out
    assert "over 4096 tokens" in shown.out
    assert "Replayed 2 of 2 sessions" in shown.out
    assert "replaying on tiny: 8 of 8 turns" in shown.err


def test_a_broken_line_fails_before_anything_is_sent(tmp_path: Path, served: Served) -> None:
    path = write_trace(tmp_path / "t.jsonl", [trajectory("one", 2, 5), trajectory("two", 2, 5)])
    path.write_text(path.read_text() + "{broken\n")
    with pytest.raises(CacheError, match=r"t\.jsonl, line 3") as caught:
        replay(path, served.url, **options())
    assert caught.value.kind is Kind.BAD_TRACE
    assert replay(path, served.url, **options(sessions=2)) == 0


def test_no_trace_and_no_worker_are_told_apart(trace: Path, served: Served) -> None:
    with pytest.raises(CacheError) as caught:
        replay(trace.parent / "absent.jsonl", served.url, **options())
    assert caught.value.kind is Kind.BAD_TRACE
    with pytest.raises(CacheError) as caught:
        replay(trace, "http://127.0.0.1:9", **options())
    assert caught.value.kind is Kind.UNREACHABLE
