"""`agentcache replay PATH` without a worker, and `agentcache bench policies`."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentcache.bench.policies import main
from agentcache.errors import CacheError, Kind
from agentcache.replay.cli import replay_trace
from agentcache.replay.sample import SAMPLE

SMALL: dict[str, Any] = {"seeds": 1, "capacities": (2.0,), "live": 2.0, "processes": 1, "as_json": True}


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON object on stdout."""
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_a_trace_is_replayed_under_the_orders_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay_trace(SAMPLE, {**SMALL, "policies": ("ert",)}) == 0
    answer = said(capsys)
    assert [row["policy"] for row in answer["rows"]] == ["lru", "ert", "clairvoyant"]
    assert answer["trace"]["calls"] == sum(answer["rows"][0]["misses"].values())
    assert answer["replayed_tokens_per_s"] > 0
    assert answer["missed"][0]["again_tokens"] >= answer["missed"][-1]["again_tokens"]


def test_a_table_is_printed_with_the_sessions_that_lost_most(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay_trace(SAMPLE, {**SMALL, "as_json": False, "sessions": 2}) == 0
    shown = capsys.readouterr()
    assert "gap closed" in shown.out
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


def test_policies_makes_its_table_of_a_trace_of_ones_own_and_writes_a_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--trace", f"own={SAMPLE}", "--capacity", "2", "3", "--live", "2", "--seeds", "2"]
    assert main([*words, "--processes", "1", "--json", "--out", str(tmp_path)]) == 0
    rows = said(capsys)["rows"]
    assert {row["trace"] for row in rows} == {"own"}
    assert len(rows) == 2 * 9
    assert json.loads((tmp_path / "policies.json").read_text())["rows"] == rows
    page = (tmp_path / "policies.html").read_text()
    assert page.count("data:image/png;base64,") == 1
    assert "http" not in page.replace("http-equiv", "")
    assert (tmp_path / "policies-1.png").read_bytes().startswith(b"\x89PNG")
