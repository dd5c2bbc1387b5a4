"""Scripts, rooms, tables and pictures of `bench swebench`, without an engine."""

import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import structlog
from matplotlib.colors import to_rgb
from rich.console import Console

from agentcache.bench import swebench, swebench_plot
from agentcache.bench.swebench import main
from agentcache.bench.swebench_engine import slots_for
from agentcache.bench.swebench_lab import LabSize, lab_plan, replay_batches
from agentcache.bench.swebench_plot import COLOURS, plot
from agentcache.bench.swebench_report import ENGINE, LAB, Report, against_lru, show, wrong_answers
from agentcache.bench.swebench_script import Ask, Close, choose, prompts, write_script
from agentcache.engine.publish import PublishPolicy
from agentcache.engine.tokenizer import load_tokenizer
from agentcache.errors import CacheError, Kind
from agentcache.replay.paged import page
from agentcache.replay.readers import open_trace
from agentcache.replay.sample import SAMPLE
from agentcache.replay.synth import synthesize
from agentcache.types import full_spec, mamba_spec, swa_spec

TOKENIZER = load_tokenizer()
ORDERS = ("lru", "session", "ert")


def test_the_sample_is_told_again_for_more_sessions_and_shares_nothing_with_itself() -> None:
    chosen = choose(open_trace(SAMPLE).conversations(), 6, 2)
    assert len({session.name for session in chosen}) == 6
    assert {len(session.calls) for session in chosen} == {2}
    first, again = (next(chosen[at].prompts()) for at in (0, 4))
    assert again[0]["content"] == f"run 2\n{first[0]['content']}"
    assert again[1:] == first[1:]


def test_a_script_asks_every_call_in_turn_and_closes_every_session_behind_its_last() -> None:
    sessions = choose(open_trace(SAMPLE).conversations(), 4, 3)
    script = write_script(sessions, 2, 1, TOKENIZER)
    assert script == write_script(sessions, 2, 1, TOKENIZER)
    assert [one.at_ns for one in script] == sorted(one.at_ns for one in script)
    calls = prompts(script)
    assert len(calls) == 4
    for name, asks in calls.items():
        assert [ask.turn for ask in asks] == [0, 1, 2]
        assert all(0 < ask.user_end_tokens <= len(ask.tokens) for ask in asks)
        assert asks[1].tokens[: len(asks[0].tokens) - 8] == asks[0].tokens[:-8]  # but for the answer's head
        closes = [at for at, one in enumerate(script) if isinstance(one, Close) and one.session == name]
        assert len(closes) == 1
        assert closes[0] > max(at for at, one in enumerate(script) if one in asks)


def test_more_sessions_live_at_once_are_closer_together() -> None:
    sessions = choose(open_trace(SAMPLE).conversations(), 4, 3)
    ends = [write_script(sessions, batch, 1, TOKENIZER)[-1].at_ns for batch in (1, 4)]
    assert ends[1] < ends[0]


def test_a_trace_without_a_call_is_refused() -> None:
    with pytest.raises(CacheError) as refused:
        choose([], 2, 2)
    assert refused.value.kind is Kind.BAD_TRACE


def test_the_device_has_room_for_so_many_sessions_and_for_the_longest_prompt() -> None:
    policy = PublishPolicy(4, 4, (full_spec(), swa_spec(7), mamba_spec(4)))
    script = [Ask(turn, name, turn, tuple(range(40 + 8 * turn)), 0) for name in "ab" for turn in range(2)]
    slots = slots_for(policy, script, 2)
    assert slots["full_slots"] == 2 * 12  # 48 tokens of each
    assert slots["mamba_slots"] > 2 * 3
    names = {spec.name: slots[name] for spec, name in zip(policy.specs, slots, strict=True)}
    assert not policy.over_pool(48, names)
    least = slots_for(policy, script, 0.01)
    assert least["full_slots"] == 12


def test_the_lab_keeps_the_pages_and_raises_the_pressure() -> None:
    workload = page(synthesize("swe-agent", 12, 1), TOKENIZER.encode)
    size = LabSize((3, 9), 12, 1, 900, 900)
    plan = lab_plan("agents", workload, size)
    done: list[int] = []
    rows = replay_batches(plan, workload, lambda: done.append(1), processes=1)
    assert len(done) == plan.replays({"agents": workload}) == 2 * 4
    assert [(row["batch"], row["order"]) for row in rows] == [
        (batch, order) for batch in (3, 9) for order in (*ORDERS, "clairvoyant")
    ]
    peak = workload.mean_peak_pages
    assert {(round(row["capacity"] * peak), round(row["host_capacity"] * peak)) for row in rows} == {
        (900, 900)
    }
    few, many = rows[0], rows[4]
    assert many["hit_rate"] < few["hit_rate"]
    assert few["host_hit_rate"] > 0
    assert few["hit_rate"] == pytest.approx(few["device_hit_rate"] + few["host_hit_rate"])
    assert (few["ttft_change"], many["ttft_change"]) == (0, 0)


def result(different: int = 0) -> Report:
    """What a run of both levels found."""
    rows = against_lru(
        [
            {
                "batch": batch,
                "order": order,
                "device_hit_rate": 0.4,
                "host_hit_rate": 0.1 * number,
                "hit_rate": 0.4 + 0.1 * number,
                "ttft_ms": 500.0 - 50 * number,
                "ttft_p95_ms": 1_500.0,
            }
            for batch in (16, 32)
            for number, order in enumerate(ORDERS)
        ]
    )
    lab = {"device_pages": 4096, "host_pages": 8192, "sessions": 150, "seeds": 2}
    engine = {
        "model": "tiny-all",
        "device_slots": {"full_slots": 9},
        "host_mib": 2.0,
        "sessions": 6,
        "turns": 5,
        "device_sessions": 2.0,
        "host_sessions": 2.0,
    }
    return {
        LAB: {"trace": "agents", "shape": lab, "rows": rows},
        ENGINE: {
            "trace": "ours",
            "shape": engine,
            "rows": rows,
            "different_answers": {"16": 0, "32": different},
        },
    }


def test_rows_are_compared_with_lru_in_the_same_batch() -> None:
    rows = result()[LAB]["rows"]
    assert [round(row["ttft_change"], 3) for row in rows] == [0, -0.1, -0.2] * 2


def test_the_tables_name_batches_orders_and_wrong_answers() -> None:
    said = {different: shown(result(different)) for different in (0, 2)}
    assert "-20.0%" in said[0]
    assert "device 4,096 and host 8,192 pages" in said[0]
    assert "the same under every order" in said[0]
    assert "2 differ, WRONG" in said[2]
    assert wrong_answers(result(2)) == 2
    assert wrong_answers({LAB: result()[LAB]}) == 0


def shown(found: Report) -> str:
    out = io.StringIO()
    show(found, Console(file=out, width=150))
    return out.getvalue()


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_result_is_the_same_picture(tmp_path: Path, suffix: str) -> None:
    first, again = tmp_path / f"first.{suffix}", tmp_path / f"again.{suffix}"
    for path in (first, again):
        plot([result()], path)
    assert first.read_bytes() == again.read_bytes()
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(result()))
    assert swebench_plot.main([str(again), str(kept)]) == 0
    assert again.read_bytes() == first.read_bytes()


def test_levels_of_two_runs_are_one_picture(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.svg", tmp_path / "parts.svg"
    plot([result()], whole)
    plot([{level: result()[level]} for level in (ENGINE, LAB)], parts)
    assert parts.read_bytes() == whole.read_bytes()


def test_the_picture_says_what_is_held_and_marks_the_bound(tmp_path: Path) -> None:
    found = result()[LAB]
    bound = {**found["rows"][0], "order": "clairvoyant"}
    plain, bounded = tmp_path / "plain.svg", tmp_path / "bounded.svg"
    plot([{LAB: found}], plain)
    plot([{LAB: {**found, "rows": [*found["rows"], bound]}}], bounded)
    held = "150 sessions of agents; device 4,096 and host 8,192 pages of 64 tokens"
    for said in (held, "prompt tokens from the cache, %", "\N{MINUS SIGN}20%"):
        assert said in plain.read_text()
    assert [("(bound)" in path.read_text()) for path in (plain, bounded)] == [False, True]


def test_the_orders_differ_without_colour() -> None:
    greys = sorted(float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114))) for colour in COLOURS.values())
    assert min(lighter - darker for darker, lighter in pairwise(greys)) > 0.1


def test_a_picture_that_could_not_be_saved_is_a_named_fault(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="cannot be written"):
        plot([result()], tmp_path / "gone" / "out.svg")


@pytest.fixture(autouse=True)
def own_logger() -> Iterator[None]:
    """The command sets the process's logger up."""
    yield
    structlog.reset_defaults()


def test_the_command_prints_one_json_object_and_draws_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "found.svg"
    small = ["--only", LAB, "--batches", "4", "--sessions", "6", "--seeds", "1", "--processes", "1"]
    assert main([*small, "--device-pages", "700", "--json", "--plot", str(picture)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert list(printed) == [LAB]
    assert [row["order"] for row in printed[LAB]["rows"]] == [*ORDERS, "clairvoyant"]
    assert printed[LAB]["shape"]["sessions"] == 6
    assert picture.is_file()


def test_answers_that_differ_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swebench, "_on_engine", lambda *_: result(1)[ENGINE])
    assert main(["--only", ENGINE, "--json"]) == 1


def test_a_trace_without_text_is_refused_before_the_lab_is_asked(tmp_path: Path) -> None:
    trace = tmp_path / "blocks.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n')
    with pytest.raises(CacheError, match="--only lab") as refused:
        main([str(trace)])
    assert refused.value.kind is Kind.BAD_TRACE


def test_a_trace_that_is_not_there_is_told_once_and_without_advice_for_another(tmp_path: Path) -> None:
    with pytest.raises(CacheError) as refused:
        main([str(tmp_path / "nope")])
    assert str(refused.value).count("bad_trace") == 1
    assert "--only lab" not in refused.value.message


@pytest.mark.parametrize("name", ["result.pdf", "nowhere/result.svg"])
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(CacheError, match="--plot draws"):
        main(["--plot", str(tmp_path / name)])


@pytest.mark.parametrize("said", [["--turns", "0"], ["--only", "moon"], ["--core", "brass"]])
def test_a_wrong_word_is_refused(said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(said)
    assert refused.value.code == 2
    assert "error: argument" in capsys.readouterr().err
