"""The same engine on a CUDA device: pools, copies, restore, decode in a batch. Runs with GPU=1 on a machine with one.

Bits of copies are equal; logits are compared within rounding, because a GPU may choose its kernels by strides.
"""

import functools

import numpy as np
import pytest
import torch

from agentcache.engine.capability import ReuseClass
from agentcache.engine.runner import Runner
from agentcache.pools.buffers import KvLayout, PageBuffers, StateBuffers, TensorLayout
from tests.shelf import GRID, Shelf, cold, prefill, random_tokens, runner_of, state_distance, warm
from tests.zoo import VOCABULARY, ZOO

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

FAMILIES = (
    "qwen3",
    "gemma3",
    "llama4",
    "qwen3_5",
    "granite4",
    "kimi_linear",
    "lfm3",
    "lara_mini",
    "inkling",
    "zaya",
)
BOUNDARY = 96
ROUNDING = {"float32": 1e-3, "bfloat16": 0.5}


@functools.cache
def runner_for(name: str, dtype: str) -> Runner:
    return runner_of(ZOO[name].build(dtype, "cuda"), device="cuda")


def test_pages_and_states_round_trip_between_device_and_pool() -> None:
    device = torch.device("cuda")
    layout = KvLayout(TensorLayout((2, 8), torch.bfloat16), TensorLayout((2, 4), torch.bfloat16))
    pages = PageBuffers(6, 16, [layout], device)
    keys = torch.randn(2, 48, 8, device=device, dtype=torch.bfloat16)
    values = torch.randn(2, 48, 4, device=device, dtype=torch.bfloat16)
    slots = np.array([4, 0, 5], dtype=np.int32)
    pages.write(0, slots, keys, values)
    read = pages.read(0, slots)
    assert torch.equal(read[0], keys)
    assert torch.equal(read[1], values)
    assert pages.read(0, np.array([1], dtype=np.int32))[0].isnan().all()
    states = StateBuffers(3, [TensorLayout((4, 4), torch.float32)], device)
    state = torch.randn(4, 4, device=device)
    states.write(2, [state])
    assert torch.equal(states.read(2)[0], state)
    assert states.tensors[0].is_cuda


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_restored_run_equals_an_uncached_one(name: str, dtype: str) -> None:
    runner = runner_for(name, dtype)
    assert runner.capability.reuse is ReuseClass.REUSABLE
    shelf = Shelf(runner)
    prompt = random_tokens(150, 7, VOCABULARY)
    original, copy = runner.new_state(), runner.new_state()
    prefill(runner, original, prompt[:BOUNDARY], shelf)
    runner.restore(copy, shelf.locked(BOUNDARY))
    assert state_distance(original, copy) == 0.0
    tokens = prompt[:BOUNDARY] + random_tokens(45, 3, VOCABULARY)
    reference = cold(runner, tokens, 16).tail(BOUNDARY // GRID)
    restored = warm(runner, tokens, 16, shelf.locked(BOUNDARY))
    if dtype == "float32":
        assert restored.tokens == reference.tokens
        assert restored.distance(reference) < ROUNDING[dtype]
    else:
        assert float((restored.prefill - reference.prefill).abs().max()) < ROUNDING[dtype]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_batch_says_what_each_request_says_alone(name: str) -> None:
    runner = runner_for(name, "float32")
    prompts = [random_tokens(length, length, VOCABULARY) for length in (20, 33, 70, 140)]
    alone = [cold(runner, prompt, 12).tokens for prompt in prompts]
    states = [runner.new_state() for _ in prompts]
    logits = torch.stack(
        [prefill(runner, state, prompt)[-1] for state, prompt in zip(states, prompts, strict=True)]
    )
    said: list[list[int]] = [[] for _ in prompts]
    for _ in range(12):
        chosen = logits.argmax(dim=-1).tolist()
        for tokens, token in zip(said, chosen, strict=True):
            tokens.append(token)
        logits = runner.decode(states, chosen)
    assert said == alone


def test_mamba1_is_classified_on_the_device_too() -> None:
    assert runner_for("jamba", "float32").capability.reuse is ReuseClass.TOKEN_BY_TOKEN
