"""Choosing the next token from logits: greedy, or nucleus sampling with a seed of the request's own."""

import hashlib
import math

import torch
from torch import Tensor

from agentcache.engine.api import GenerateRequest, Sampling
from agentcache.engine.computing import SEEDS, Choice
from agentcache.errors import CacheError, Kind


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

    def digest(self, row: Tensor) -> str:
        return hashlib.sha256(row.numpy().tobytes()).hexdigest()

    def _draw(self, logits: Tensor) -> int:
        """Nucleus sampling: the fewest tokens, most likely first, whose probabilities reach top_p."""
        ordered, tokens = torch.sort(
            (logits - logits.max()) / self._temperature, descending=True, stable=True
        )
        odds = torch.softmax(ordered, dim=-1)
        before = torch.cumsum(odds, dim=-1) - odds
        odds[before >= self._top_p] = 0
        return int(tokens[torch.multinomial(odds, 1, generator=self._generator)])


def sampler_of(request: GenerateRequest, seed: int) -> Sampler:
    """The chooser of a request that a model computes."""
    return Sampler(request.sampling, seed)
