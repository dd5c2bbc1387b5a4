"""Choosing the next token from logits: greedy, or nucleus sampling with a seed of the request's own."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from agentcache.engine.api import Sampling
from agentcache.errors import CacheError, Kind

SEEDS = 2**63


@dataclass(frozen=True, slots=True)
class Choice:
    """A token, and the gap between the two largest logits."""

    token: int
    top_margin: float


def check_sampling(sampling: Sampling) -> None:
    """Refuse what cannot be sampled from. Errors: BAD_REQUEST."""
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise CacheError(Kind.BAD_REQUEST, "temperature must be 0 or more", temperature=sampling.temperature)
    if not 0 < sampling.top_p <= 1:
        raise CacheError(Kind.BAD_REQUEST, "top_p must be over 0 and at most 1", top_p=sampling.top_p)


class Sampler:
    """One request's choices. The same logits, sampling and seed give the same tokens, whatever runs beside it.

    `seed` is used when the sampling names none.
    """

    def __init__(self, sampling: Sampling, seed: int) -> None:
        self._temperature = sampling.temperature
        self._top_p = sampling.top_p
        named = sampling.seed if isinstance(sampling.seed, int) else seed
        self._generator = torch.Generator().manual_seed(named % SEEDS)

    def choose(self, logits: Tensor) -> Choice:
        """Pick from one row.

        Shapes  logits: float32[vocab], on the CPU
        Errors  ENGINE_FAILED when the model answered no finite numbers
        """
        largest, tokens = torch.topk(logits, 2)
        if not math.isfinite(float(largest[0])):
            raise CacheError(Kind.ENGINE_FAILED, "the model's logits are not finite; try another dtype")
        margin = float(largest[0] - largest[1])
        token = int(tokens[0]) if self._temperature == 0 else self._draw(logits)
        return Choice(token, margin)

    def _draw(self, logits: Tensor) -> int:
        """Nucleus sampling: the fewest tokens, most likely first, whose probabilities reach top_p."""
        ordered, tokens = torch.sort(
            (logits - logits.max()) / self._temperature, descending=True, stable=True
        )
        odds = torch.softmax(ordered, dim=-1)
        before = torch.cumsum(odds, dim=-1) - odds
        odds[before >= self._top_p] = 0
        return int(tokens[torch.multinomial(odds, 1, generator=self._generator)])
