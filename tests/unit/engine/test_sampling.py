"""Choosing tokens."""

import math
from collections import Counter

import pytest
import torch

from agentcache.engine.admission import check_sampling
from agentcache.engine.api import Sampling
from agentcache.engine.sampling import Sampler
from agentcache.errors import CacheError, Kind

LOGITS = torch.log(torch.tensor([0.05, 0.6, 0.25, 0.1]))


def draws(sampling: Sampling, count: int = 400, seed: int = 0) -> list[int]:
    sampler = Sampler(sampling, seed)
    return [sampler.choose(LOGITS).token for _ in range(count)]


def test_greedy_takes_the_largest_and_tells_the_margin() -> None:
    choice = Sampler(Sampling(), 0).choose(LOGITS)
    assert choice.token == 1
    assert choice.top_margin == pytest.approx(math.log(0.6 / 0.25), rel=1e-5)


def test_sampling_follows_the_probabilities() -> None:
    counts = Counter(draws(Sampling(temperature=1.0, seed=3), 4000))
    assert {token: counts[token] / 4000 for token in range(4)} == pytest.approx(
        {0: 0.05, 1: 0.6, 2: 0.25, 3: 0.1}, abs=0.03
    )


def test_low_temperature_is_nearly_greedy() -> None:
    assert set(draws(Sampling(temperature=1e-6, seed=1))) == {1}


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    assert set(draws(Sampling(temperature=1.0, top_p=0.6, seed=1))) == {1}
    assert set(draws(Sampling(temperature=1.0, top_p=0.61, seed=1))) == {1, 2}
    assert set(draws(Sampling(temperature=1.0, top_p=1.0, seed=1))) == {0, 1, 2, 3}


def test_a_named_seed_decides_alone() -> None:
    named = Sampling(temperature=1.0, seed=7)
    assert draws(named, seed=1) == draws(named, seed=2)
    assert draws(named) != draws(Sampling(temperature=1.0, seed=8))


def test_without_a_named_seed_the_engines_decides() -> None:
    assert draws(Sampling(temperature=1.0), seed=1) == draws(Sampling(temperature=1.0), seed=1)
    assert draws(Sampling(temperature=1.0), seed=1) != draws(Sampling(temperature=1.0), seed=2)


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70])
def test_any_whole_number_is_a_seed(seed: int) -> None:
    assert len(draws(Sampling(temperature=1.0, seed=seed), 5)) == 5


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=-0.1),
        Sampling(temperature=math.nan),
        Sampling(temperature=math.inf),
        Sampling(top_p=0.0),
        Sampling(top_p=1.1),
        Sampling(top_p=math.nan),
    ],
)
def test_what_cannot_be_sampled_is_refused(sampling: Sampling) -> None:
    with pytest.raises(CacheError) as refused:
        check_sampling(sampling)
    assert refused.value.kind is Kind.BAD_REQUEST


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_an_error_not_a_token(bad: float) -> None:
    with pytest.raises(CacheError) as failed:
        Sampler(Sampling(), 0).choose(torch.tensor([0.0, bad, 1.0]))
    assert failed.value.kind is Kind.ENGINE_FAILED
