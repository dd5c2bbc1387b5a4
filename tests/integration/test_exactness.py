"""What is restored from our pools is what an uncached run computes, bit for bit, over the architecture zoo.

A run publishes its pages, windows and checkpoints at every multiple of the grid. Other prompts fork off it, inside and
beyond the window, at checkpoints and between them (then the earlier one serves), and continue from copies of the slots.
"""

import functools
from collections import Counter
from dataclasses import dataclass

import pytest
import torch
from transformers.cache_utils import DynamicCache

from agentcache.engine.adapter import Model
from agentcache.engine.capability import ReuseClass
from agentcache.engine.runner import Runner
from agentcache.errors import CacheError, Kind
from agentcache.types import FULL
from tests.shelf import (
    GRID,
    Run,
    Shelf,
    cold,
    one_shot,
    prefill,
    random_tokens,
    runner_of,
    state_distance,
    warm,
    warm_state,
)
from tests.zoo import VOCABULARY, WINDOW, ZOO

PROMPT, FORKS, SUFFIX, DECODED = 150, (40, 64, 107, 128), 45, 32
EXACT_AT_LEAST = 26
DTYPES = ("float32", "bfloat16")
ROUNDING = 1e-3
TOKEN_BY_TOKEN = ("jamba", "falcon_mamba")
NOT_REUSABLE = ("recurrent_gemma", "minimax")
REUSABLE = [name for name in ZOO if name not in TOKEN_BY_TOKEN + NOT_REUSABLE]
CLAMPED = ("nemotron_h", "zamba2")  # their prefill clamps the time step, their decode does not


@dataclass(frozen=True)
class Outcome:
    """What a reusable family did, worst fork first. Distances are of logits (or states); 0.0 means equal bits."""

    restored: float
    states: float
    stock: float
    one_shot: float
    same_tokens: bool

    @property
    def exact(self) -> bool:
        return self.restored == self.states == self.stock == 0.0


@functools.cache
def runner_for(name: str, dtype: str) -> Runner:
    return runner_of(ZOO[name].build(dtype))


@functools.cache
def outcome(name: str, dtype: str) -> Outcome:
    """Run a family once; several tests look at it."""
    runner = runner_for(name, dtype)
    shelf = Shelf(runner)
    prompt = random_tokens(PROMPT, 7, VOCABULARY)
    prefill(runner, runner.new_state(), prompt, shelf)
    forks = [_fork(runner, shelf, prompt[:fork]) for fork in FORKS]
    tokens = prompt[:100] + random_tokens(SUFFIX, 3, VOCABULARY)
    return Outcome(
        max(fork.restored for fork in forks),
        max(fork.states for fork in forks),
        cold(runner, tokens, DECODED).distance(_stock(ZOO[name].build(dtype), tokens)),
        max(fork.one_shot for fork in forks),
        all(fork.same_tokens for fork in forks),
    )


def _fork(runner: Runner, shelf: Shelf, shared: list[int]) -> Outcome:
    boundary = len(shared) // GRID * GRID
    tokens = shared + random_tokens(SUFFIX, len(shared), VOCABULARY)
    reference = cold(runner, tokens, DECODED).tail(boundary // GRID)
    continued = warm(runner, tokens, DECODED, shelf.locked(boundary))
    rounded = runner.capability.dtype != "float32"  # then a one-shot run may differ, and nobody asks
    whole = continued.tail(len(continued.prefill) - 1) if rounded else one_shot(runner, tokens, DECODED)
    uncached, restored = runner.new_state(), warm_state(runner, tokens, shelf.locked(boundary))
    prefill(runner, uncached, tokens)
    return Outcome(
        continued.distance(reference),
        state_distance(uncached, restored),
        0.0,
        continued.tail(len(continued.prefill) - 1).distance(whole),
        continued.tokens == whole.tokens,
    )


@torch.inference_mode()
def _stock(model: Model, tokens: list[int]) -> Run:
    """The same grid on transformers' own cache."""
    cache, length = DynamicCache(config=model.config), 0

    def forward(new: list[int]) -> torch.Tensor:
        nonlocal length
        positions = torch.arange(length, length + len(new))[None]
        length += len(new)
        ids = torch.tensor([new])
        output = model(input_ids=ids, position_ids=positions, cache=cache, use_cache=True, logits_to_keep=1)
        last: torch.Tensor = output.logits[0, -1]
        return last

    logits = [forward(tokens[start : start + GRID]) for start in range(0, len(tokens), GRID)]
    greedy, decoded = [int(logits[-1].argmax())], []
    for _ in range(DECODED):
        decoded.append(forward([greedy[-1]]))
        greedy.append(int(decoded[-1].argmax()))
    return Run(torch.stack(logits), torch.stack(decoded), greedy[:-1])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REUSABLE)
def test_a_restored_run_equals_an_uncached_one_bit_for_bit(name: str, dtype: str) -> None:
    result = outcome(name, dtype)
    assert result.restored == 0.0, "logits of prefill and decode"
    assert result.states == 0.0, "keys, values and states themselves"
    assert result.stock == 0.0, "our layers against transformers' own"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", REUSABLE)
def test_greedy_tokens_of_a_restored_run_equal_one_shot_in_float32(name: str) -> None:
    result = outcome(name, "float32")
    assert result.same_tokens
    assert result.one_shot < ROUNDING


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["mistral", "gemma3", "llama4", "lfm3", "lara_mini", "inkling", "zaya"])
def test_a_fork_inside_the_window_is_exact_too(name: str) -> None:
    """With a grid of half a window the first boundaries have less than a window before them."""
    runner = runner_of(ZOO[name].build(), page=4, grid=WINDOW // 2)
    shelf = Shelf(runner)
    prompt = random_tokens(3 * WINDOW // 2, 7, VOCABULARY)
    prefill(runner, runner.new_state(), prompt, shelf)
    for fork in (WINDOW // 2, WINDOW // 2 + 5, WINDOW, WINDOW + 9, 3 * WINDOW // 2):
        chunks = fork // runner.config.grid_tokens
        tokens = prompt[:fork] + random_tokens(SUFFIX, fork, VOCABULARY)
        continued = warm(runner, tokens, 4, shelf.locked(chunks * runner.config.grid_tokens))
        assert continued.distance(cold(runner, tokens, 4).tail(chunks)) == 0.0


@pytest.mark.timeout(600)
def test_the_zoo_has_at_least_26_exact_families(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the table of families."""
    verdicts: Counter[str] = Counter()
    lines = [
        f"{'family':16s}{'cache':36s}{'verdict':9s}{'restored':>9s}{'states':>8s}{'stock':>7s}{'one-shot':>10s}"
    ]
    for name, family in ZOO.items():
        verdict, figures = _verdict(name)
        verdicts[verdict] += 1
        lines.append(f"{name:16s}{family.label:36s}{verdict:9s}{figures}")
    with capsys.disabled():
        print("\n" + "\n".join(lines) + f"\n{dict(verdicts)}")
    assert verdicts["exact"] >= EXACT_AT_LEAST
    assert verdicts["WRONG"] == 0


def _verdict(name: str) -> tuple[str, str]:
    capability = runner_for(name, "float32").capability
    if capability.reuse is not ReuseClass.REUSABLE:
        return (
            "probed" if capability.reuse is ReuseClass.TOKEN_BY_TOKEN else "refused"
        ), f"  {capability.reason[:70]}"
    results = [outcome(name, dtype) for dtype in DTYPES]
    worst = [max(getattr(result, column) for result in results) for column in ("restored", "states", "stock")]
    figures = "".join(f"{value:{width}.0e}" for value, width in zip(worst, (9, 8, 7), strict=True))
    return (
        "exact" if all(result.exact for result in results) else "WRONG"
    ), f"{figures}{results[0].one_shot:10.0e}"


@pytest.mark.parametrize("name", REUSABLE)
def test_only_models_that_clamp_their_step_are_prompt_only(name: str) -> None:
    assert runner_for(name, "float32").capability.prompt_only == (name in CLAMPED)
    assert runner_for(name, "bfloat16").capability.prompt_only == (name in CLAMPED)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TOKEN_BY_TOKEN)
def test_mamba1_continues_token_by_token_and_is_right(name: str, dtype: str) -> None:
    runner = runner_for(name, dtype)
    assert runner.capability.reuse is ReuseClass.TOKEN_BY_TOKEN
    assert "ignore the restored state" in runner.capability.reason
    shelf = Shelf(runner)
    prompt = random_tokens(PROMPT, 7, VOCABULARY)
    prefill(runner, runner.new_state(), prompt, shelf)
    tokens = prompt[:128] + random_tokens(SUFFIX, 3, VOCABULARY)
    continued = warm(runner, tokens, 16, shelf.locked(128))
    whole = one_shot(runner, tokens, 16)
    if dtype == "float32":
        assert continued.tokens == whole.tokens
        assert Run(continued.prefill[-1:], continued.decode, continued.tokens).distance(whole) < ROUNDING


@pytest.mark.parametrize("name", TOKEN_BY_TOKEN)
def test_mamba1_in_one_continued_forward_would_be_wrong(name: str) -> None:
    """The negative control of the probe: what it protects from."""
    model = ZOO[name].build()
    tokens = random_tokens(96, 7, VOCABULARY)
    wrong = _stock(model, tokens)
    right = one_shot(runner_for(name, "float32"), tokens, DECODED)
    assert Run(wrong.prefill[-1:], wrong.decode, wrong.tokens).distance(right) > 0.1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NOT_REUSABLE)
def test_a_model_that_is_not_reusable_recomputes_and_is_right(name: str) -> None:
    """Two requests take turns: state that a model keeps for itself must not leak from one into the other."""
    runner = runner_for(name, "float32")
    assert runner.capability.reuse is ReuseClass.NOT_REUSABLE
    assert [spec.name for spec in runner.capability.specs] == [FULL]
    prompts = [random_tokens(length, length, VOCABULARY) for length in (40, 57)]
    alone = [one_shot(runner, prompt, 8) for prompt in prompts]
    states = [runner.new_state(), runner.new_state()]
    logits = torch.stack(
        [prefill(runner, state, prompt)[-1] for state, prompt in zip(states, prompts, strict=True)]
    )
    for step in range(8):
        assert [int(row.argmax()) for row in logits] == [run.tokens[step] for run in alone]
        logits = runner.decode(states, [int(row.argmax()) for row in logits])


@pytest.mark.parametrize("name", NOT_REUSABLE)
def test_a_model_that_is_not_reusable_refuses_to_restore(name: str) -> None:
    runner = runner_for(name, "float32")
    shelf = Shelf(runner)
    prefill(runner, runner.new_state(), random_tokens(64, 1, VOCABULARY))
    shelf.hold(FULL, range(4))
    with pytest.raises(CacheError, match="not reusable") as refused:
        runner.restore(runner.new_state(), shelf.locked(64))
    assert refused.value.kind is Kind.UNSUPPORTED_MODEL
