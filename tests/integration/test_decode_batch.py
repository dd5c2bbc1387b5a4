"""Requests of different length decode together as each would alone; they join, leave and are saved at any time."""

import functools

import pytest
import torch

from agentcache.engine.runner import RequestState, Runner
from tests.shelf import (
    GRID,
    Shelf,
    cold,
    decode,
    prefill,
    random_tokens,
    runner_of,
    state_distance,
    warm_state,
)
from tests.zoo import VOCABULARY, ZOO

LENGTHS = (20, 33, 70, 140)
STEPS = 24
ROUNDING = 1e-3
RUNNABLE = [name for name in ZOO if name not in ("recurrent_gemma", "minimax")]
MIXED = ["qwen3", "gemma3", "llama4", "granite4", "lfm3", "lara_mini", "inkling", "zaya"]


@functools.cache
def runner_for(name: str) -> Runner:
    return runner_of(ZOO[name].build())


def prompt_of(length: int) -> list[int]:
    return random_tokens(length, length, VOCABULARY)


class Crowd:
    """Requests decoding greedily together, each compared with itself running alone."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.alone = {length: cold(runner, prompt_of(length), STEPS) for length in LENGTHS}
        self.states: dict[int, RequestState] = {}
        self.next: dict[int, int] = {}
        self.said: dict[int, list[int]] = {length: [] for length in LENGTHS}
        self.worst = 0.0

    def join(self, length: int) -> None:
        self.states[length] = self.runner.new_state()
        self.next[length] = int(prefill(self.runner, self.states[length], prompt_of(length))[-1].argmax())

    def step(self, *members: int) -> None:
        rows = self.runner.decode(
            [self.states[member] for member in members], [self.next[member] for member in members]
        )
        for member, logits in zip(members, rows, strict=True):
            self.said[member].append(self.next[member])
            expected = self.alone[member].decode[len(self.said[member]) - 1]
            self.worst = max(self.worst, float((logits - expected).abs().max()))
            self.next[member] = int(logits.argmax())

    def check(self) -> None:
        assert self.worst < ROUNDING
        for length, said in self.said.items():
            assert said == self.alone[length].tokens[: len(said)]
            assert length not in self.states or self.states[length].length == length + len(said)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", RUNNABLE)
def test_a_batch_says_what_each_request_says_alone(name: str) -> None:
    crowd = Crowd(runner_for(name))
    for length in LENGTHS:
        crowd.join(length)
    for _ in range(STEPS):
        crowd.step(*LENGTHS)
    crowd.check()
    assert [len(said) for said in crowd.said.values()] == [STEPS] * len(LENGTHS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MIXED)
def test_requests_join_pause_and_leave(name: str) -> None:
    crowd = Crowd(runner_for(name))
    crowd.join(33)
    crowd.step(33)
    crowd.join(20)
    crowd.step(20, 33)
    crowd.join(140)  # longer than everything that runs: the batch is laid out anew
    crowd.step(140, 33, 20)
    crowd.join(70)
    crowd.step(33, 70, 140, 20)
    crowd.step(70, 140)  # two pause
    crowd.step(33, 20, 70, 140)
    crowd.runner.drop(crowd.states.pop(140))  # the longest leaves: its padding goes with it
    for _ in range(4):
        crowd.step(20, 70, 33)
    crowd.runner.drop(crowd.states.pop(33))
    crowd.step(70)
    crowd.step(20)
    for _ in range(4):
        crowd.step(70, 20)
    crowd.check()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MIXED)
def test_what_decode_computed_in_a_batch_can_be_saved_and_continued(name: str) -> None:
    """Saved while in the batch, at a multiple of the grid; the copy continues as the original does."""
    runner = runner_for(name)
    original, neighbour = runner.new_state(), runner.new_state()
    tokens = prompt_of(70)
    prefill(runner, original, tokens)
    prefill(runner, neighbour, prompt_of(140))
    while original.length < 96:
        tokens.append(original.length)
        runner.decode([neighbour, original], [7, tokens[-1]])
    shelf = Shelf(runner)
    shelf.publish(original, 0)
    more = random_tokens(40, 1, VOCABULARY)
    restored = warm_state(runner, tokens + more, shelf.locked(96))
    prefill(runner, original, tokens + more)
    assert state_distance(original, restored) == 0.0


@pytest.mark.parametrize("name", MIXED)
def test_a_window_is_still_held_a_grid_later(name: str) -> None:
    """A request that ends between two multiples of the grid can still save its window at the last one."""
    runner = runner_for(name)
    state = runner.new_state()
    prefill(runner, state, prompt_of(96))
    decode(runner, state, torch.zeros(VOCABULARY), GRID - 1)
    Shelf(runner).publish_pages(state, 96)
