"""What a wrong restore looks like: the comparisons of test_exactness detect each of these mistakes."""

import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch

from agentcache.engine.adapter import linear_layers
from agentcache.engine.runner import RequestState, Runner
from agentcache.errors import CacheError, Kind
from agentcache.types import FULL, MAMBA, SWA, Locked, Piece
from tests.shelf import (
    PAGE,
    Shelf,
    prefill,
    random_tokens,
    runner_of,
    state_distance,
    warm_state,
)
from tests.zoo import VOCABULARY, ZOO

BOUNDARY, LENGTH = 96, 150
VISIBLE = 2e-4  # larger than any rounding seen in float32; the suite itself asks for 0.0

WINDOWED = ("gemma3", "gpt_oss", "llama4", "lfm3", "lara_mini", "inkling")
RECURRENT = ("qwen3_5", "granite4", "kimi_linear", "falcon_h1", "lara_mini")
CONVOLVED = (*RECURRENT, "lfm2", "lfm3", "inkling")
ROTATED = ("llama", "gemma3", "qwen3_5", "falcon_h1", "lfm3", "lara_mini")


@functools.cache
def case(name: str) -> tuple[Runner, Shelf, list[int]]:
    runner = runner_of(ZOO[name].build())
    shelf = Shelf(runner)
    tokens = random_tokens(LENGTH, 7, VOCABULARY)
    prefill(runner, runner.new_state(), tokens, shelf)
    return runner, shelf, tokens


def restored(name: str) -> tuple[Runner, RequestState, list[int]]:
    runner, shelf, tokens = case(name)
    state = runner.new_state()
    runner.restore(state, shelf.locked(BOUNDARY))
    return runner, state, tokens


def logits_error(runner: Runner, state: RequestState, tokens: list[int]) -> float:
    """Largest logit error of the rest of the prompt against an uncached run; NaN means infinity."""
    right = prefill(runner, runner.new_state(), tokens)[BOUNDARY // 32 :]
    error = float((prefill(runner, state, tokens) - right).abs().max())
    return float("inf") if error != error else error


def tampered(name: str, tamper: Callable[[RequestState], None]) -> float:
    runner, state, tokens = restored(name)
    with torch.inference_mode():
        tamper(state)
    return logits_error(runner, state, tokens)


def _without(locked: Locked, *pieces: Piece) -> Locked:
    names = {piece.component for piece in pieces}
    kept = tuple(piece for piece in locked.pieces if piece.component not in names)
    return Locked(locked.lease, locked.boundary, (*kept, *pieces))


def _piece(locked: Locked, component: str) -> Piece:
    return next(piece for piece in locked.pieces if piece.component == component)


@pytest.mark.parametrize("name", sorted({*WINDOWED, *CONVOLVED, *ROTATED}))
def test_the_untouched_restore_has_no_error(name: str) -> None:
    assert tampered(name, lambda _: None) == 0.0


@pytest.mark.parametrize("name", RECURRENT)
def test_a_zeroed_recurrent_state_is_detected(name: str) -> None:
    def zero(state: RequestState) -> None:
        for layer in linear_layers(state.rows.cache):
            for tensor in layer.recurrent_states.values():
                tensor.zero_()

    assert tampered(name, zero) > VISIBLE


@pytest.mark.parametrize("name", CONVOLVED)
def test_a_zeroed_convolution_is_detected(name: str) -> None:
    def zero(state: RequestState) -> None:
        for layer in linear_layers(state.rows.cache):
            for tensor in layer.conv_states.values():
                tensor.zero_()

    assert tampered(name, zero) > VISIBLE


@pytest.mark.parametrize("name", CONVOLVED)
def test_a_layer_that_says_it_has_no_state_is_detected(name: str) -> None:
    def deny(state: RequestState) -> None:
        for layer in linear_layers(state.rows.cache):
            layer.has_previous_state = dict.fromkeys(layer.has_previous_state, False)

    assert tampered(name, deny) > VISIBLE


@pytest.mark.parametrize("name", CONVOLVED)
def test_the_checkpoint_of_another_position_is_detected(name: str) -> None:
    runner, shelf, tokens = case(name)
    earlier = _piece(shelf.locked(BOUNDARY - 32), MAMBA)
    state = runner.new_state()
    runner.restore(state, _without(shelf.locked(BOUNDARY), Piece(MAMBA, BOUNDARY, BOUNDARY, earlier.slots)))
    assert logits_error(runner, state, tokens) > VISIBLE


@pytest.mark.parametrize("name", ROTATED)
def test_wrong_positions_are_detected(name: str) -> None:
    def shift(state: RequestState) -> None:
        state.rows.end -= 1

    runner, state, tokens = restored(name)
    shift(state)
    right = prefill(runner, runner.new_state(), tokens)[BOUNDARY // 32]
    assert float((runner.prefill(state, tokens[BOUNDARY : BOUNDARY + 32]) - right).abs().max()) > VISIBLE


@pytest.mark.parametrize("name", WINDOWED)
def test_a_window_that_is_one_token_short_raises(name: str) -> None:
    def shorten(state: RequestState) -> None:
        for slab in (state.rows.slabs[plan.index] for plan in state.rows.plans if plan.window):
            drop = slab.end - slab.reach + 1 - slab.start
            slab.keys, slab.values = slab.keys[:, :, drop:], slab.values[:, :, drop:]
            slab.start += drop

    with pytest.raises((RuntimeError, ValueError)):
        tampered(name, shorten)


@pytest.mark.parametrize("name", WINDOWED)
def test_a_window_piece_that_misses_a_page_is_refused(name: str) -> None:
    runner, shelf, _ = case(name)
    whole = _piece(shelf.locked(BOUNDARY), SWA)
    short = Piece(SWA, whole.start + PAGE, whole.end, whole.slots[1:])
    with pytest.raises(CacheError) as refused:
        runner.restore(runner.new_state(), _without(shelf.locked(BOUNDARY), short))
    assert refused.value.kind is Kind.NOT_RESIDENT


@pytest.mark.parametrize("name", CONVOLVED)
def test_a_boundary_without_its_checkpoint_is_refused(name: str) -> None:
    runner, shelf, _ = case(name)
    locked = shelf.locked(BOUNDARY)
    without = Locked(
        locked.lease, locked.boundary, tuple(piece for piece in locked.pieces if piece.component != MAMBA)
    )
    with pytest.raises(CacheError) as refused:
        runner.restore(runner.new_state(), without)
    assert refused.value.kind is Kind.NOT_RESIDENT


@pytest.mark.parametrize(("name", "component"), [("llama", FULL), ("gemma3", SWA), ("lara_mini", FULL)])
def test_a_slot_that_nobody_wrote_is_detected(name: str, component: str) -> None:
    runner, shelf, tokens = case(name)
    piece = _piece(shelf.locked(BOUNDARY), component)
    slots = np.array([*piece.slots[:-1], shelf.free[piece.component][0]], dtype=np.int32)
    state = runner.new_state()
    unwritten = Piece(piece.component, piece.start, piece.end, slots)
    runner.restore(state, _without(shelf.locked(BOUNDARY), unwritten))
    assert logits_error(runner, state, tokens) == float("inf")


@pytest.mark.parametrize(("name", "component"), [("llama", FULL), ("gemma3", SWA), ("lara_mini", SWA)])
def test_a_page_of_another_place_is_detected(name: str, component: str) -> None:
    runner, shelf, tokens = case(name)
    piece = _piece(shelf.locked(BOUNDARY), component)
    state = runner.new_state()
    twice = np.array([*piece.slots[:-1], piece.slots[0]], dtype=np.int32)
    runner.restore(
        state, _without(shelf.locked(BOUNDARY), Piece(piece.component, piece.start, piece.end, twice))
    )
    assert logits_error(runner, state, tokens) > VISIBLE


@pytest.mark.parametrize("name", [*RECURRENT, "zaya", "mamba2"])
def test_states_themselves_differ_after_a_wrong_checkpoint(name: str) -> None:
    """Logits of toys move little for some wrong states, so the suite compares states too."""
    runner, shelf, tokens = case(name)
    right = warm_state(runner, tokens[:BOUNDARY], shelf.locked(BOUNDARY - 32))
    state = runner.new_state()
    earlier = _piece(shelf.locked(BOUNDARY - 32), MAMBA)
    runner.restore(state, _without(shelf.locked(BOUNDARY), Piece(MAMBA, BOUNDARY, BOUNDARY, earlier.slots)))
    assert state_distance(right, state) > 1e-2


@pytest.mark.parametrize("name", ["qwen3_5", "granite4", "lfm3", "inkling", "zaya"])
def test_running_from_a_checkpoint_leaves_the_checkpoint_as_it_was(name: str) -> None:
    """Models update their states in place; the pool hands out copies."""
    runner, state, tokens = restored(name)
    before = [tensor.clone() for tensor in runner.states.tensors]
    prefill(runner, state, tokens)
    for token in range(8):
        runner.decode([state], [token])
    for old, new in zip(before, runner.states.tensors, strict=True):
        assert torch.equal(old.nan_to_num(), new.nan_to_num())
