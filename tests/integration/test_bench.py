"""The benchmarks run and count right; their times are for people."""

import json

import pytest

from agentcache.bench import grid, ttft
from agentcache.bench.grid import compare
from agentcache.bench.ttft import Shape, measure
from agentcache.errors import CacheError, Kind
from tests.engines import GRID, small_engine


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
