"""Sizes, sums and verdicts of `bench multiturn`, without an engine."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import structlog
from rich.console import Console

from agentcache.bench import multiturn_plot
from agentcache.bench.multiturn import main
from agentcache.bench.multiturn_plot import plot
from agentcache.bench.multiturn_report import (
    L1,
    L1_L2_L3,
    UNLIMITED,
    Found,
    Report,
    harmless,
    report,
    show,
    tenths,
)
from agentcache.bench.multiturn_run import (
    SILENCE_NS,
    Answer,
    Conversation,
    Difference,
    Progress,
    Round,
    differences,
)
from agentcache.bench.multiturn_shape import Shape, Sizes, sizes_for, unlimited_slots
from agentcache.clock import ManualClock
from agentcache.engine.publish import PublishPolicy
from agentcache.errors import CacheError, Kind
from agentcache.types import FULL, MAMBA, SWA, full_spec, mamba_spec, swa_spec

SMALL = Shape(clients=2, rounds=4, request_length=10, output_length=2, grid_tokens=4)
POLICY = PublishPolicy(4, 4, (full_spec(100), swa_spec(7, slot_bytes=50), mamba_spec(4, slot_bytes=1000)))
SIZES = Sizes({"full_slots": 2}, {}, 4096, 8192)


def test_a_prompt_holds_every_earlier_prompt_and_answer() -> None:
    assert [SMALL.prompt_tokens(number) for number in (1, 2, 3, 4)] == [10, 22, 34, 46]
    assert SMALL.final_tokens == 48
    assert (SMALL.late_rounds, SMALL.last_rounds) == (range(3, 5), range(4, 5))
    default = Shape()
    assert (default.late_rounds, default.last_rounds) == (range(21, 41), range(31, 41))


def test_what_can_be_cached_is_whole_chunks_of_the_prompt_before() -> None:
    assert SMALL.reachable(range(1, 5)) == pytest.approx((0 + 8 + 20 + 32) / (10 + 22 + 34 + 46))


@pytest.mark.parametrize(("grid", "enough"), [(32, True), (64, True), (256, False)])
def test_the_default_grid_allows_the_bar_of_the_last_rounds(grid: int, enough: bool) -> None:
    shape = Shape(grid_tokens=grid)
    assert (shape.reachable(shape.last_rounds) > 0.965) == enough


def test_unlimited_pools_have_a_slot_for_every_chunk_of_every_client() -> None:
    assert min(unlimited_slots(SMALL).values()) >= 2 * 48 // 4


def test_the_device_has_a_tenth_of_each_component_and_the_host_half_of_the_bytes() -> None:
    sizes = sizes_for(SMALL, POLICY, {FULL: 240, SWA: 101, MAMBA: 60})
    assert sizes.device_slots == {"full_slots": 24, "swa_slots": 11, "mamba_slots": 6}
    assert not sizes.raised
    assert sizes.working_set_bytes == 240 * 100 + 101 * 50 + 60 * 1000
    assert sizes.host_bytes == sizes.working_set_bytes // 2


def test_a_device_too_small_for_one_request_is_raised_to_what_it_needs() -> None:
    sizes = sizes_for(SMALL, POLICY, {FULL: 24, SWA: 24, MAMBA: 24})
    longest = SMALL.prompt_tokens(SMALL.rounds)
    assert sizes.raised == {"full_slots": 3, "swa_slots": 3}
    assert sizes.device_slots["full_slots"] == longest // 4
    names = {FULL: "full_slots", SWA: "swa_slots", MAMBA: "mamba_slots"}
    assert not POLICY.over_pool(longest, {name: sizes.device_slots[names[name]] for name in names})


def test_two_windows_share_a_setting_and_the_larger_part_decides() -> None:
    policy = PublishPolicy(4, 4, (full_spec(), swa_spec(7, "SWA_7"), swa_spec(3, "SWA_3")))
    working_set = {spec.name: slots for spec, slots in zip(policy.specs, (400, 100, 300), strict=True)}
    assert sizes_for(SMALL, policy, working_set).device_slots["swa_slots"] == 30


def answers(*rounds: Sequence[int], margin: float = 1.0) -> list[Answer]:
    return [Answer(tuple(tokens), (margin,) * len(tokens)) for tokens in rounds]


def test_the_first_difference_of_each_client_counts_with_the_closer_choice() -> None:
    expected = [answers([1, 2], [3, 4]), answers([5, 6], [7, 8])]
    found = [answers([1, 2], [3, 4]), answers([5, 6], [7, 9], margin=1e-4)]
    assert differences(expected, expected) == []
    assert differences(expected, found) == [Difference(client=1, round=2, margin=1e-4)]
    assert Difference(1, 2, 1e-4).near_tie
    assert not Difference(1, 2, 1e-2).near_tie


def test_progress_is_told_when_nothing_was_said_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    progress = Progress(clock)
    progress.tick("too early")
    clock.advance(SILENCE_NS)
    progress.tick("now")
    progress.tick("too early again")
    assert capsys.readouterr().err == "now\n"


def conversation(rates: Sequence[float], wall_s: float, said: Sequence[Sequence[int]]) -> Conversation:
    rounds = [
        Round(number, 1000, {"device": 0, "host": 0, "external": int(1000 * rate)}, number * 10.0, wall_s)
        for number, rate in enumerate(rates, 1)
    ]
    return Conversation(tuple(rounds), [answers(*said)])


SAID = ([1], [2], [3], [4])


def reported(runs: Mapping[str, Conversation]) -> Report:
    return report(Found("tiny-all", SMALL, {FULL: 20}, SIZES, runs))


def three_tiers(last_rate: float = 0.97, wall_s: float = 1.0, said: Sequence[Sequence[int]] = SAID) -> Report:
    runs = {
        UNLIMITED: conversation([0, 0.9, 0.95, 0.97], 1.0, SAID),
        L1: conversation([0, 0.9, 0, 0], 11.0, SAID),
        L1_L2_L3: conversation([0, 0.9, 0.95, last_rate], wall_s, said),
    }
    return reported(runs)


def test_the_report_has_the_shape_that_others_read() -> None:
    result = three_tiers()
    assert list(result)[:4] == ["model", "shape", "unlimited_hit_rate", "configs"]
    assert list(result["configs"]) == [L1, L1_L2_L3]
    assert result["unlimited_hit_rate"] == pytest.approx((0.9 + 0.95 + 0.97) / 4)
    config = result["configs"][L1_L2_L3]
    assert list(config) == ["rounds", "effective_input_tokens_per_s"]
    assert config["rounds"][1] == {
        "round": 2,
        "prompt_tokens": 1000,
        "cached_tokens": {"device": 0, "host": 0, "external": 900},
        "hit_rate": 0.9,
        "ttft_ms": 20.0,
    }
    assert config["effective_input_tokens_per_s"] == 1000
    assert result["verdict"]["tokens_equal"]


def test_bars_compare_with_the_unlimited_cache_and_with_l1() -> None:
    bars = three_tiers()["verdict"]["bars"]
    assert [bar["value"] for bar in bars] == [1.0, 0.97, pytest.approx(11.0, abs=0.01)]
    assert [bar["met"] for bar in bars] == [True, True, True]
    missed = three_tiers(last_rate=0.9, wall_s=2.0)["verdict"]["bars"]
    assert [bar["met"] for bar in missed] == [False, False, False]


def test_a_bar_without_its_configurations_is_not_measured() -> None:
    result = reported({UNLIMITED: conversation([0, 0.9, 0.95, 0.97], 1.0, SAID)})
    assert [bar["met"] for bar in result["verdict"]["bars"]] == [None, None, None]
    assert "not measured" in shown(result)


def shown(result: Report) -> str:
    out = io.StringIO()
    show(result, with_bars=True, console=Console(file=out, width=150))
    return out.getvalue()


def test_the_table_says_who_differs_and_what_is_missed() -> None:
    good, bad = three_tiers(), three_tiers(last_rate=0.5, said=([1], [2], [3], [5]))
    assert "L1+L2+L3: cached" in shown(good)
    assert "the same in every configuration" in shown(good)
    assert "MISSED" not in shown(good)
    assert "WRONG: L1+L2+L3 client 0 round 4" in shown(bad)
    assert "MISSED" in shown(bad)
    assert harmless(good)
    assert not harmless(bad)


@pytest.mark.parametrize("rounds", [1, 7, 10, 40, 43])
def test_tenths_cover_every_round_once(rounds: int) -> None:
    covered = [number for part in tenths(rounds) for number in part]
    assert covered == list(range(1, rounds + 1))
    assert len(tenths(rounds)) == min(10, rounds)


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_result_is_the_same_picture(tmp_path: Path, suffix: str) -> None:
    first, again = tmp_path / f"first.{suffix}", tmp_path / f"again.{suffix}"
    for path in (first, again):
        plot([three_tiers(), three_tiers()], path)
    assert first.read_bytes() == again.read_bytes()
    assert first.stat().st_size > 10_000


@pytest.fixture(autouse=True)
def own_logger() -> Iterator[None]:
    """The command sets the process's logger up."""
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("name", ["result.pdf", "nowhere/result.svg"])
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(CacheError, match="--plot draws") as refused:
        main(["--plot", str(tmp_path / name)])
    assert refused.value.kind is Kind.BAD_CONFIG


@pytest.mark.parametrize("said", [["--rounds", "0"], ["--configs", "l4"], ["--l3", "tape"]])
def test_a_wrong_word_is_refused(said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(said)
    assert refused.value.code == 2
    assert "error: argument" in capsys.readouterr().err


def test_kept_results_are_drawn(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(three_tiers()))
    assert multiturn_plot.main([str(tmp_path / "out.svg"), str(kept)]) == 0
    assert (tmp_path / "out.svg").is_file()
