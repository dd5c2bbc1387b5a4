"""The benchmarks run and count right; their times are for people."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from agentcache.bench import grid, multiturn, ttft
from agentcache.bench.grid import compare
from agentcache.bench.multiturn import Bench, Options
from agentcache.bench.multiturn_report import L1, L1_L2, L1_L2_L3, UNLIMITED, Report, report
from agentcache.bench.multiturn_run import Progress
from agentcache.bench.multiturn_shape import Shape as Talk
from agentcache.bench.ttft import Shape, measure
from agentcache.build import open_store
from agentcache.clock import SystemClock
from agentcache.config import EngineSettings
from agentcache.engine.engine import Engine
from agentcache.engine.loading import NamedModel, assemble
from agentcache.errors import CacheError, Kind
from tests.chosen import CORE
from tests.engines import GRID, PATIENT, small_engine
from tests.zoo import ZOO

pytestmark = pytest.mark.timeout(300)  # hundreds of turns on a real engine


def test_first_token_warm_restores_what_cold_computes() -> None:
    engine = small_engine()
    result = measure(engine, Shape(cached_tokens=160, new_tokens=9, repeats=3))
    assert result.restored_tokens == 160
    assert 0 < result.warm_ms <= result.warm_most_ms
    assert result.ratio == pytest.approx(result.cold_ms / result.warm_ms, abs=0.01)
    assert engine.load().prefill_tokens_total == 161 + 3 * (169 + 9)


def test_cached_part_off_the_grid_is_refused() -> None:
    with pytest.raises(CacheError) as refused:
        measure(small_engine(), Shape(cached_tokens=GRID + 1))
    assert refused.value.kind is Kind.BAD_REQUEST


def test_a_finer_grid_computes_less_again() -> None:
    engines = [small_engine(grid_tokens=chunk, full_slots=512) for chunk in (16, 64)]
    fine, coarse = compare(engines, history_tokens=200, turns=6)
    assert (fine.grid_tokens, coarse.grid_tokens) == (16, 64)
    assert 622 / 6 <= fine.computed_tokens < coarse.computed_tokens


def test_commands_print_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    small = [
        "--models",
        "tiny-swa",
        "--cached",
        "256",
        "--new",
        "4",
        "--repeats",
        "1",
        "--threads",
        "1",
        "--json",
    ]
    assert ttft.main(small) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [result["model"] for result in printed["results"]] == ["tiny-swa"]
    assert (
        grid.main(["--model", "tiny-swa", "--grids", "128", "--history", "100", "--turns", "1", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["results"][0]["grid_tokens"] == 128


TALK = Talk(clients=12, rounds=6, request_length=40, output_length=3, grid_tokens=16)


def of_the_zoo(settings: EngineSettings) -> Engine:
    named = NamedModel(ZOO["lara_mini"].build(settings.dtype), "lara_mini", random_weights=True)
    engine = assemble(named, settings.model_copy(update=PATIENT), SystemClock())
    if settings.l3 != "none":
        engine.attach(open_store(settings))
    return engine


def talk(shape: Talk = TALK, **options: Any) -> Report:
    chosen = Options(**{"model": "lara_mini", "threads": 1, "core": CORE, "store": "memory", **options})
    return report(Bench(shape, chosen, Progress(SystemClock()), of_the_zoo).run())


def test_conversations_hit_whatever_tier_has_room_and_hear_the_same() -> None:
    result = talk()
    assert result["verdict"]["tokens_equal"], result["verdict"]["differences"]
    runs = {**result["configs"], UNLIMITED: result["unlimited"]}
    assert list(runs) == [L1, L1_L2, L1_L2_L3, UNLIMITED]
    for run in runs.values():
        assert [one["round"] for one in run["rounds"]] == list(range(1, TALK.rounds + 1))
        for one in run["rounds"]:
            assert one["prompt_tokens"] == TALK.clients * TALK.prompt_tokens(one["round"])
            cached = sum(one["cached_tokens"].values())
            assert one["hit_rate"] == pytest.approx(cached / one["prompt_tokens"], abs=1e-5)
            assert cached % TALK.grid_tokens == 0
            assert one["ttft_ms"] > 0
        assert run["effective_input_tokens_per_s"] > 0
    tiers = {name: tiers_used(run) for name, run in runs.items()}
    assert tiers[L1] <= tiers[UNLIMITED] == {"device"}
    assert "host" in tiers[L1_L2] <= {"device", "host"}
    assert "external" in tiers[L1_L2_L3]


def tiers_used(run: Report) -> set[str]:
    return {tier for one in run["rounds"] for tier, tokens in one["cached_tokens"].items() if tokens}


def test_more_tiers_hit_more_and_three_hit_what_an_unlimited_cache_does() -> None:
    result = talk()
    first, second, third = (cached(result["configs"][name]) for name in (L1, L1_L2, L1_L2_L3))
    assert first < second < third
    assert third >= 0.99 * cached(result["unlimited"])
    assert result["unlimited_hit_rate"] >= round(TALK.reachable(range(1, TALK.rounds + 1)), 5)


def cached(run: Report) -> int:
    return sum(sum(one["cached_tokens"].values()) for one in run["rounds"])


@pytest.mark.parametrize("write_policy", ["write_through", "write_through_selective", "write_back"])
def test_answers_are_the_same_under_every_write_policy_and_on_disk(write_policy: str) -> None:
    result = talk(store="file", write_policy=write_policy, configs=(L1_L2_L3,))
    assert result["verdict"]["tokens_equal"], result["verdict"]["differences"]


@pytest.fixture
def own_logger() -> Iterator[None]:
    """Commands set the process's logger up."""
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("own_logger")
def test_the_command_prints_one_json_object_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--model", "tiny-swa", "--clients", "2", "--rounds", "2", "--grid", "128", "--threads", "1"]
    assert multiturn.main([*small, "--configs", L1_L2_L3, "--core", CORE, "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert (result["model"], list(result["configs"])) == ("tiny-swa", [L1_L2_L3])
    assert "L1+L2+L3: device slots FULL" in printed.err
