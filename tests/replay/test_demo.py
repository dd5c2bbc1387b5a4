"""The demo whole: a router and two workers on a tiny checkpoint, both passes, the JSON file, the exit code."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.cli import DemoOptions, demo
from tests.replay.conftest import NAMES, trajectory, write_trace

PROMISED = {
    "sessions": int,
    "turns": int,
    "prompt_tokens": int,
    "cached_tokens": int,
    "hit_rate": float,
    "ttft_cold_ms": float,
    "ttft_warm_ms": float,
    "outputs_identical": bool,
    "open_references_after_close": int,
}


def options(out: Path, model: Path | str, **changes: Any) -> DemoOptions:
    given = {"sessions": 2, "turns": 3, "max_tokens": 4, "out": out, "model": str(model), "as_json": False}
    return DemoOptions(**{**given, **changes})  # type: ignore[typeddict-item]


def has_process(folder: Path) -> bool:
    """True if a process still writes to a log there."""
    held = []
    for output in Path("/proc").glob("[0-9]*/fd/1"):
        try:
            held.append(os.readlink(output))
        except OSError:
            continue
    return any(path.startswith(str(folder)) for path in held)


@pytest.mark.timeout(300)
def test_demo_shows_the_same_answers_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, checkpoint: Path
) -> None:
    """Prompts of some hundred tokens: the worker's grid is 256."""
    trace = write_trace(tmp_path / "t.jsonl", [trajectory(name, 4, 80) for name in NAMES])
    out = tmp_path / "build" / "demo.json"
    assert demo(trace, **options(out, checkpoint)) == 0
    found = json.loads(out.read_text())
    assert {name: type(found[name]) for name in PROMISED} == PROMISED
    assert (found["sessions"], found["turns"], found["sessions_in_file"]) == (2, 6, 3)
    assert found["outputs_identical"] is True
    assert found["open_references_after_close"] == 0
    assert found["first_logits_identical"] == found["greedy_tokens_identical"] == 6
    assert found["hit_rate"] == round(found["cached_tokens"] / found["prompt_tokens"], 4)
    assert found["cached_tokens"] > 0
    assert found["concurrent"]["open_references_before_close"] == 2
    assert found["concurrent"]["first_logits_identical"] == 6
    shown = capsys.readouterr()
    assert "2 of 3 sessions" in shown.err
    assert "same first logits" in shown.out
    assert "were the same, bit for bit," in shown.out
    assert max(map(len, shown.out.split("With the cache on,")[0].splitlines())) <= 80
    assert sum(found["concurrent"]["open_sessions_by_worker"]) == 2
    assert not has_process(out.parent)


@pytest.mark.timeout(300)
def test_a_worker_that_does_not_start_is_explained_by_its_log(tmp_path: Path, trace: Path) -> None:
    with pytest.raises(CacheError, match="the worker ended with code") as caught:
        demo(trace, **options(tmp_path / "demo.json", tmp_path / "no-such-model"))
    assert caught.value.kind is Kind.UNREACHABLE
    assert "no-such-model" in caught.value.message
    assert not (tmp_path / "demo.json").exists()


def test_a_trace_without_turns_is_refused_before_a_worker_is_started(tmp_path: Path) -> None:
    path = tmp_path / "silent.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "T"}]}\n')
    with pytest.raises(CacheError, match="no turn to replay") as caught:
        demo(path, **options(tmp_path / "demo.json", "tiny-all"))
    assert caught.value.kind is Kind.BAD_TRACE
    assert not list(tmp_path.glob("demo-*.log"))
