"""A part of the recorded traces at a router, on a clock that jumps, with one seed: what is told there counts."""

import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentcache.bench.agents import Options, run
from agentcache.bench.policies import TraceFile

pytestmark = [pytest.mark.data, pytest.mark.native, pytest.mark.timeout(300)]
WORDS = 0.7
"""Of the gap between lru and the order that knows the future, at least, where agents say how long their tools take."""
NOISE = 0.1
"""Of the gap: how far one seed may be off."""


def shares(name: str, path: str, sessions: int, live: float) -> dict[str, Any]:
    trace = TraceFile(name, Path(os.environ["AGENTCACHE_DATA"]) / path)
    options = Options(traces=(trace,), sessions=sessions, seeds=1, rooms=(6.0,), live=live)
    return {row["arm"]: row["gap_closed"] for row in run(options, Console(quiet=True))["rows"]}


@pytest.mark.parametrize(
    ("name", "path", "sessions", "live"),
    [
        ("mini", "miniswe-gemini3-swebench-verified/trajs_a.jsonl.xz", 60, 20.0),
        ("weka", "weka-claude-code/traces_a.jsonl.xz", 60, 20.0),
    ],
)
def test_an_order_is_worth_what_the_lab_says_and_words_are_worth_more(
    name: str, path: str, sessions: int, live: float
) -> None:
    share = shares(name, path, sessions, live)
    assert share["ert"] >= share["ert in the lab"] - NOISE
    assert share["learned"] >= share["ert"] - NOISE
    assert share["stated"] >= WORDS
