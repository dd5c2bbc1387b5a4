"""What the runner refuses, and what it tells about a model."""

import functools

import numpy as np
import pytest
import torch

from agentcache.engine import probe
from agentcache.engine.adapter import LayerPlan
from agentcache.engine.capability import ReuseClass
from agentcache.engine.forward import ModelAdapter
from agentcache.engine.layout import read_layout
from agentcache.engine.rows import Rows
from agentcache.engine.runner import Runner, RunnerConfig, describe_model, load_runner
from agentcache.errors import CacheError, Kind
from agentcache.types import FULL, MAMBA, SWA, Checkpoint, ComponentName, Path, Piece, Window
from tests.shelf import GRID, PAGE, Shelf, prefill, random_tokens, runner_of
from tests.zoo import VOCABULARY, WINDOW, ZOO


@functools.cache
def runner_for(name: str) -> Runner:
    return runner_of(ZOO[name].build())


def test_pools_on_another_device_than_the_model_are_refused() -> None:
    with pytest.raises(CacheError, match="device") as refused:
        load_runner(ZOO["llama"].build(), RunnerConfig(PAGE, GRID, "meta", {FULL: 4}))
    assert refused.value.kind is Kind.BAD_CONFIG


def piece(component: ComponentName, start: int, end: int) -> Piece:
    pages = max(1, (end - start) // PAGE)
    return Piece(component, start, end, np.arange(pages, dtype=np.int32))


def test_components_of_a_model_with_all_three() -> None:
    full, window, state = runner_for("lara_mini").capability.specs
    assert (full.name, full.rule, full.needs) == (FULL, Path(), ())
    assert (window.name, window.rule) == (SWA, Window(WINDOW - 1))
    assert (state.name, state.rule) == (MAMBA, Checkpoint(GRID))
    kv = 2 * 2 * 16 * 4
    assert (full.slot_bytes, window.slot_bytes) == (1 * PAGE * kv, 2 * PAGE * kv)
    assert state.slot_bytes == runner_for("lara_mini").states.slot_bytes


def test_full_carries_no_bytes_without_full_attention() -> None:
    assert [(spec.name, spec.slot_bytes > 0) for spec in runner_for("mistral").capability.specs] == [
        (FULL, False),
        (SWA, True),
    ]


def test_every_distinct_window_is_a_component_of_its_own() -> None:
    """No family of the zoo has two windows, so the layers are laid out by hand."""
    windows = (WINDOW, 0, 4 * WINDOW, WINDOW)
    rows = Rows([LayerPlan(index, True, window, 0) for index, window in enumerate(windows)], 0)
    for index in range(len(windows)):
        rows.begin(index, 0, torch.zeros(2, 1, 8), torch.zeros(2, 1, 8))
    rows.end = 1
    layout = read_layout(rows)
    wide, narrow = f"SWA_{4 * WINDOW}", f"SWA_{WINDOW}"
    assert layout.layers == {FULL: (1,), wide: (2,), narrow: (0, 3)}
    assert [spec.rule for spec in layout.specs(PAGE, GRID)] == [Path(), Window(127), Window(31)]


def test_a_description_equals_the_capability() -> None:
    for name in ("lara_mini", "inkling", "kimi_linear"):
        assert describe_model(ZOO[name].build(), PAGE, GRID) == runner_for(name).capability.specs


def test_the_capability_names_context_vocabulary_and_type() -> None:
    capability = runner_for("llama").capability
    assert (capability.context_tokens, capability.vocab_size, capability.dtype) == (
        4096,
        VOCABULARY,
        "float32",
    )
    assert runner_of(ZOO["llama"].build("bfloat16")).capability.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("page", "grid", "pools"), [(16, 24, {FULL: 4}), (0, 16, {FULL: 4}), (16, 16, {SWA: 4})]
)
def test_a_configuration_that_does_not_fit_is_refused(page: int, grid: int, pools: dict) -> None:
    with pytest.raises(CacheError) as refused:
        load_runner(ZOO["llama"].build(), RunnerConfig(page, grid, "cpu", pools))
    assert refused.value.kind is Kind.BAD_CONFIG


@pytest.mark.parametrize(
    ("start", "end", "component"),
    [(64, 80, FULL), (32, 80, FULL), (0, 16, SWA), (32, 32, MAMBA), (80, 80, MAMBA)],
)
def test_saving_what_the_request_does_not_hold_is_refused(
    start: int, end: int, component: ComponentName
) -> None:
    runner = runner_for("lara_mini")
    state = runner.new_state()
    prefill(runner, state, random_tokens(400 if component == SWA else 70, 1, VOCABULARY))
    with pytest.raises(CacheError) as refused:
        runner.save(state, [piece(component, start, end)])
    assert refused.value.kind is Kind.BAD_INSERT


def test_padding_of_a_batch_is_never_saved_as_tokens() -> None:
    """A restored window begins late; in a batch its row has padding where earlier tokens would be."""
    runner = runner_for("gemma3")
    shelf = Shelf(runner)
    tokens = random_tokens(128, 1, VOCABULARY)
    prefill(runner, runner.new_state(), tokens, shelf)
    restored, neighbour = runner.new_state(), runner.new_state()
    runner.restore(restored, shelf.locked(128))
    prefill(runner, neighbour, random_tokens(150, 2, VOCABULARY))
    runner.decode([restored, neighbour], [5, 5])
    runner.save(restored, [piece(SWA, 96, 128)])
    with pytest.raises(CacheError) as refused:
        runner.save(restored, [piece(SWA, 80, 128)])
    assert refused.value.kind is Kind.BAD_INSERT


def test_a_chunk_ends_at_the_next_multiple_of_the_grid() -> None:
    runner = runner_for("llama")
    ends = [runner.chunk_end(start, 100) for start in (0, 31, 32, 33, 96)]
    assert ends == [32, 32, 64, 64, 100]


def test_a_token_by_token_model_takes_a_cold_prompt_at_once() -> None:
    runner = runner_for("jamba")
    assert [runner.chunk_end(0, total) for total in (20, 32, 33, 100)] == [20, 32, 32, 96]
    assert runner.chunk_end(32, 100) == 64


def test_a_model_that_recomputes_takes_any_prompt_at_once() -> None:
    runner = runner_for("minimax")
    assert runner.chunk_end(0, 100) == 100
    assert "MiniMax" in runner.capability.reason


def test_restoring_at_zero_changes_nothing() -> None:
    runner = runner_for("lara_mini")
    state = runner.new_state()
    runner.restore(state, Shelf(runner).locked(0))
    assert state.length == 0


def test_a_dropped_state_is_empty() -> None:
    runner = runner_for("llama")
    state = runner.new_state()
    prefill(runner, state, random_tokens(40, 1, VOCABULARY))
    runner.drop(state)
    assert state.length == 0


def test_a_poisoned_request_does_not_reach_its_neighbours() -> None:
    """NaN from a slot that nobody wrote stays in its own row, also after the row is given to another request."""
    runner = runner_for("qwen3")
    shelf = Shelf(runner)
    shelf.hold(FULL, range(4))
    poisoned, healthy, late = runner.new_state(), runner.new_state(), runner.new_state()
    runner.restore(poisoned, shelf.locked(64))
    runner.prefill(poisoned, [5])
    prefill(runner, healthy, random_tokens(70, 1, VOCABULARY))
    logits = runner.decode([poisoned, healthy], [5, 5])
    assert logits[0].isnan().any()
    assert not logits[1].isnan().any()
    runner.drop(poisoned)
    prefill(runner, late, random_tokens(20, 1, VOCABULARY))
    assert not runner.decode([healthy, late], [5, 5]).isnan().any()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("qwen3", ReuseClass.REUSABLE),
        ("lara_mini", ReuseClass.REUSABLE),
        ("gpt_oss", ReuseClass.REUSABLE),
        ("inkling", ReuseClass.REUSABLE),
        ("jamba", ReuseClass.TOKEN_BY_TOKEN),
        ("falcon_mamba", ReuseClass.TOKEN_BY_TOKEN),
        ("recurrent_gemma", ReuseClass.NOT_REUSABLE),
    ],
)
def test_a_model_too_large_for_a_twin_is_classified_in_its_own_precision(
    name: str, expected: ReuseClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "TWIN_PARAMETERS", 0)
    finding = probe.examine(ModelAdapter(ZOO[name].build("bfloat16")), PAGE)
    assert (finding.reuse, finding.prompt_only) == (expected, False)


def test_threads_are_set_once_by_the_configuration() -> None:
    before = torch.get_num_threads()
    model = ZOO["llama"].build()
    try:
        load_runner(model, RunnerConfig(PAGE, GRID, "cpu", {FULL: 1}, threads=1))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
