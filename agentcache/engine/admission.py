"""What a request must satisfy before it may wait: each fault is one clear error, found before anything is taken."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from agentcache.engine.api import ACCOUNTING, EngineInfo, GenerateRequest, Sampling
from agentcache.engine.publish import PublishPolicy
from agentcache.errors import CacheError, Kind
from agentcache.types import ComponentName


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """The model's and the pools' bounds. `caches` False: this model publishes nothing, so no pool bounds it."""

    info: EngineInfo
    policy: PublishPolicy
    sizes: Mapping[ComponentName, int]
    caches: bool

    def check(self, request: GenerateRequest) -> None:
        """Errors: BAD_REQUEST, EMPTY_PROMPT, PROMPT_TOO_LONG, OVER_POOL."""
        if not request.tokens:
            raise CacheError(Kind.EMPTY_PROMPT, "the prompt has no tokens; send at least one")
        self._check_numbers(request)
        self._check_engine(request)
        check_sampling(request.sampling)
        prompt = len(request.tokens)
        if prompt + request.max_tokens > self.info.context_tokens:
            raise CacheError(
                Kind.PROMPT_TOO_LONG,
                f"prompt ({prompt} tokens) and max_tokens ({request.max_tokens}) are over the model's context "
                f"({self.info.context_tokens}); shorten the prompt or lower max_tokens",
            )
        if request.reuse and self.caches:
            self._check_pools(prompt)

    def _check_numbers(self, request: GenerateRequest) -> None:
        if request.max_tokens < 1:
            raise CacheError(Kind.BAD_REQUEST, "max_tokens must be at least 1", max_tokens=request.max_tokens)
        if not 0 <= request.user_end_tokens <= len(request.tokens):
            raise CacheError(Kind.BAD_REQUEST, "user_end_tokens must lie inside the prompt")
        if any(not 0 <= mark <= len(request.tokens) for mark in request.marks):
            raise CacheError(Kind.BAD_REQUEST, "marks must lie inside the prompt")
        named = (*request.tokens, *(request.output or ()))
        if min(named) < 0 or max(named) >= self.info.vocab_size:
            raise CacheError(
                Kind.BAD_REQUEST, f"token ids must lie in [0, {self.info.vocab_size}), the model's vocabulary"
            )

    def _check_engine(self, request: GenerateRequest) -> None:
        """An engine that computes chooses its own words; one that does not has no logits."""
        computes = self.info.engine != ACCOUNTING
        if computes and request.output is not None:
            raise CacheError(
                Kind.BAD_REQUEST, "this engine computes its answers; only the accounting engine is told them"
            )
        if request.digest_logits and not computes:
            raise CacheError(
                Kind.BAD_REQUEST, "the accounting engine computes no logits, so there is no digest of them"
            )

    def _check_pools(self, prompt: int) -> None:
        short = self.policy.over_pool(prompt, self.sizes)
        if short:
            raise CacheError(
                Kind.OVER_POOL,
                f"this prompt ({prompt} tokens) can never fit the {short.component} pool of {short.slots} slots; raise "
                f"{short.setting} to {short.least}, shorten the prompt, or send it with reuse off",
            )


def check_sampling(sampling: Sampling) -> None:
    """Refuse what cannot be sampled from. Errors: BAD_REQUEST."""
    if not (math.isfinite(sampling.temperature) and sampling.temperature >= 0):
        raise CacheError(Kind.BAD_REQUEST, "temperature must be 0 or more", temperature=sampling.temperature)
    if not 0 < sampling.top_p <= 1:
        raise CacheError(Kind.BAD_REQUEST, "top_p must be over 0 and at most 1", top_p=sampling.top_p)
