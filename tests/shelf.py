"""A tree without a tree: what one run published, by position, and the lease that a request would get for it.

The runner and the pool's bytes are the real ones; only who owns which slot is decided here, in a shuffled order so
that neighbouring pages never lie side by side.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from agentcache.engine.adapter import Model
from agentcache.engine.runner import RequestState, Runner, RunnerConfig, describe_model, load_runner
from agentcache.types import (
    Boundary,
    Checkpoint,
    ComponentName,
    ComponentSpec,
    Lease,
    Locked,
    NodeRef,
    Path,
    Piece,
    Window,
)

PAGE, GRID = 16, 32
SLOTS = 48


def runner_of(model: Model, page: int = PAGE, grid: int = GRID, device: str = "cpu") -> Runner:
    """A runner with 48 slots in every pool."""
    names = [spec.name for spec in describe_model(model, page, grid)]
    return load_runner(model, RunnerConfig(page, grid, device, dict.fromkeys(names, SLOTS), threads=1))


@dataclass(frozen=True)
class Run:
    """Logits of the last token of every prefill chunk and of every decoded token, and the greedy tokens."""

    prefill: Tensor
    decode: Tensor
    tokens: list[int]

    def tail(self, chunks: int) -> "Run":
        """The same run without its first chunks."""
        return Run(self.prefill[chunks:], self.decode, self.tokens)

    def distance(self, other: "Run") -> float:
        """Largest difference of a logit; 0.0 means equal bits, NaN anywhere means infinity."""
        pairs = ((self.prefill, other.prefill), (self.decode, other.decode))
        largest = max(float((mine.double() - theirs.double()).abs().max()) for mine, theirs in pairs)
        return float("inf") if largest != largest else largest


class Shelf:
    """Slots by position: FULL and window pages, and checkpoints at multiples of the grid."""

    def __init__(self, runner: Runner, seed: int = 1) -> None:
        dice = random.Random(seed)
        self.runner = runner
        self.free = {spec.name: dice.sample(range(SLOTS), SLOTS) for spec in runner.capability.specs}
        self.held: dict[tuple[ComponentName, int], int] = {}

    def publish(self, state: RequestState, start: int) -> None:
        """Save everything between `start` and the state's length (a multiple of the grid), as an engine does."""
        self.runner.save(state, [self._offer(spec, start, state.length) for spec in self._specs()])

    def publish_pages(self, state: RequestState, boundary: int) -> None:
        """Save the pages and the windows of a boundary that the state may have passed; no checkpoint."""
        pieces = [
            self._offer(spec, 0, boundary) for spec in self._specs() if isinstance(spec.rule, Path | Window)
        ]
        self.runner.save(state, pieces)

    def hold(self, component: ComponentName, places: Iterable[int]) -> None:
        """Give slots to places without writing them."""
        for place in places:
            self.held[component, place] = self.free[component].pop()

    def locked(self, boundary: int) -> Locked:
        """The regions of a boundary; only the pages that the rule asks for."""
        pieces = tuple(self._piece(spec, boundary) for spec in self._specs())
        return Locked(Lease(1), Boundary(NodeRef(1, 1), boundary, 1), pieces)

    def _specs(self) -> tuple[ComponentSpec, ...]:
        return self.runner.capability.specs

    def _offer(self, spec: ComponentSpec, start: int, end: int) -> Piece:
        if isinstance(spec.rule, Checkpoint):
            self.hold(spec.name, [end])
            return Piece(spec.name, end, end, self._slots(spec, [end]))
        page_tokens = self.runner.config.page_tokens
        if isinstance(spec.rule, Window):
            start = max(start, spec.rule.region(end, page_tokens).start)
        pages = range(start // page_tokens, end // page_tokens)
        self.hold(spec.name, pages)
        return Piece(spec.name, start, end, self._slots(spec, pages))

    def _piece(self, spec: ComponentSpec, boundary: int) -> Piece:
        page_tokens = self.runner.config.page_tokens
        region = spec.rule.region(boundary, page_tokens)
        if isinstance(spec.rule, Checkpoint):
            return Piece(spec.name, boundary, boundary, self._slots(spec, [boundary] if boundary else []))
        pages = range(region.start // page_tokens, region.end // page_tokens)
        return Piece(spec.name, region.start, region.end, self._slots(spec, pages))

    def _slots(self, spec: ComponentSpec, places: Sequence[int]) -> np.ndarray:
        return np.array([self.held[spec.name, place] for place in places], dtype=np.int32)


def prefill(runner: Runner, state: RequestState, tokens: Sequence[int], shelf: Shelf | None = None) -> Tensor:
    """Chunk by chunk to the end of `tokens`, publishing at every multiple of the grid. Logits [chunks, vocab]."""
    logits = []
    while state.length < len(tokens):
        start = state.length
        end = runner.chunk_end(start, len(tokens))
        logits.append(runner.prefill(state, tokens[start:end]))
        if shelf is not None and end % runner.config.grid_tokens == 0:
            shelf.publish(state, start)
    return torch.stack(logits)


def decode(runner: Runner, state: RequestState, logits: Tensor, count: int) -> tuple[list[int], Tensor]:
    """`count` greedy tokens, one request alone. Logits [count, vocab]."""
    tokens, seen = [], []
    for _ in range(count):
        tokens.append(int(logits.argmax()))
        logits = runner.decode([state], [tokens[-1]])[0]
        seen.append(logits)
    return tokens, torch.stack(seen)


def cold(runner: Runner, tokens: Sequence[int], count: int) -> Run:
    """An uncached run on the grid."""
    return _finish(runner, runner.new_state(), tokens, count)


def warm(runner: Runner, tokens: Sequence[int], count: int, locked: Locked) -> Run:
    """The same run, continued from slots."""
    state = runner.new_state()
    runner.restore(state, locked)
    return _finish(runner, state, tokens, count)


def warm_state(runner: Runner, tokens: Sequence[int], locked: Locked) -> RequestState:
    """Restored and prefilled, not decoded."""
    state = runner.new_state()
    runner.restore(state, locked)
    prefill(runner, state, tokens)
    return state


def state_distance(one: RequestState, other: RequestState) -> float:
    """Largest difference of keys, values (that both hold) and recurrent states; NaN means infinity."""
    assert one.length == other.length
    pairs = list(zip(_tensors(one, other), _tensors(other, one), strict=True))
    largest = max(
        (float((mine.double() - theirs.double()).abs().max()) for mine, theirs in pairs), default=0.0
    )
    return float("inf") if any(bool(mine.isnan().any()) for mine, _ in pairs) else largest


def _tensors(mine: RequestState, other: RequestState) -> Iterable[Tensor]:
    for layer in mine.rows.slabs:
        held = max(state.rows.held_from(layer, state.row) for state in (mine, other))
        yield from mine.rows.tokens(layer, mine.row, held, mine.length)
    for tensor in mine.rows.state_tensors():
        yield tensor[mine.row]


def one_shot(runner: Runner, tokens: Sequence[int], count: int) -> Run:
    """An uncached run whose whole prompt is one forward."""
    state = runner.new_state()
    logits = runner.prefill(state, tokens)
    greedy, seen = decode(runner, state, logits, count)
    runner.drop(state)
    return Run(logits[None], seen, greedy)


def _finish(runner: Runner, state: RequestState, tokens: Sequence[int], count: int) -> Run:
    logits = prefill(runner, state, tokens)
    greedy, seen = decode(runner, state, logits[-1], count)
    runner.drop(state)
    return Run(logits, seen, greedy)


def random_tokens(count: int, seed: int, vocabulary: int) -> list[int]:
    dice = random.Random(seed)
    return [dice.randrange(3, vocabulary) for _ in range(count)]
