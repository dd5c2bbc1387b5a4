"""The load-time examination: may this model continue from a cache, and how? It degrades instead of answering wrongly.

Four questions, on random tokens: does a restored copy continue exactly like the original, with an unrelated request
run in between (catches state kept outside the cache)? Does a continuation of many tokens match the model without a
cache? Does one token at a time (Mamba1 kernels ignore the state in longer forwards)? Does decoding leave the same state
as prefilling (Mamba2 variants that clamp the step only in prefill do not)?
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from agentcache.engine.adapter import FORWARD_FAILURES, LayerPlan, ModelAdapter, Rows, merge
from agentcache.engine.capability import ReuseClass
from agentcache.errors import CacheError, Kind

PROMPT_TOKENS = 64
CONTINUED_TOKENS = 32
WRONG = 0.02  # mean logit error in standard deviations; rounding stays well under, a lost state well over
ROUNDINGS = 8.0  # how many times the error of another exact path still counts as rounding
STATE_ROUNDING = 2e-5  # relative; floor of what decode and prefill may differ by in float32


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome; `sample` is a row that has run, from which shapes and types are read (empty: not reusable)."""

    reuse: ReuseClass
    reason: str
    prompt_only: bool
    sample: Rows


@torch.inference_mode()
def examine(model: ModelAdapter, spare_tokens: int) -> Finding:
    """Classify a loaded model. Cost about 40 forwards of few tokens.

    Errors  CacheError(UNSUPPORTED_MODEL) when the model does not run even without a cache
    """
    tokens = _tokens(model, PROMPT_TOKENS + CONTINUED_TOKENS, seed=0)
    truth = _truth(model, tokens)
    try:
        return _Examination(model, spare_tokens, tokens, truth).finding()
    except CacheError as refusal:
        return _not_reusable(refusal.message)
    except FORWARD_FAILURES as bad:
        return _not_reusable(f"it does not run on our cache layers ({type(bad).__name__}: {str(bad)[:120]})")


def _truth(model: ModelAdapter, tokens: Tensor) -> Tensor:
    try:
        return model.forward_without_cache(tokens, CONTINUED_TOKENS)
    except FORWARD_FAILURES as bad:
        message = f"the model does not run ({type(bad).__name__}: {str(bad)[:120]})"
        raise CacheError(Kind.UNSUPPORTED_MODEL, message) from bad


def _not_reusable(why: str) -> Finding:
    return Finding(ReuseClass.NOT_REUSABLE, f"not reusable: {why}", False, Rows((), 0))


class _Examination:
    """The runs behind a finding, sharing one prompt."""

    def __init__(self, model: ModelAdapter, spare_tokens: int, tokens: Tensor, truth: Tensor) -> None:
        self.model = model
        self.plans: tuple[LayerPlan, ...] = model.layers()
        self.spare_tokens = spare_tokens
        self.tokens = tokens
        self.truth = truth
        self.prompt = Rows(self.plans, spare_tokens)
        model.forward(tokens[:, :PROMPT_TOKENS], self.prompt)

    def finding(self) -> Finding:
        restored = self._copy()
        again = self._copy()
        once = self._continue(self.prompt, CONTINUED_TOKENS)
        self.model.forward(_tokens(self.model, 17, seed=1), Rows(self.plans, self.spare_tokens))
        if not torch.equal(once, self._continue(restored, CONTINUED_TOKENS)):
            return _not_reusable("a restored copy continues differently, so it keeps state outside the cache")
        stepped = self._error(self._continue(again, 1))
        whole = self._error(once)
        if whole <= max(WRONG, ROUNDINGS * stepped) and whole < 1.0:
            return self._reusable(whole, again)
        if stepped <= WRONG:
            reason = f"forwards of several tokens ignore the restored state (error {whole:.2g}), single ones do not"
            return Finding(ReuseClass.TOKEN_BY_TOKEN, f"token by token: {reason}", False, again)
        return _not_reusable(
            f"continuing from a cache is wrong (error {whole:.2g}, token by token {stepped:.2g})"
        )

    def _reusable(self, error: float, decoded: Rows) -> Finding:
        halves = self._fresh_halves()
        rounding = _state_distance(self.prompt, halves)
        distance = _state_distance(self.prompt, decoded)
        prompt_only = distance > max(ROUNDINGS * rounding, STATE_ROUNDING)
        reason = f"reusable: continues from a restored cache (error {error:.1e} against no cache)"
        if prompt_only:
            reason += (
                f"; decoding leaves another state than prefilling ({distance:.1e}), so only prompts are kept"
            )
        return Finding(ReuseClass.REUSABLE, reason, prompt_only, decoded)

    def _fresh_halves(self) -> Rows:
        """The same tokens in other forwards of several tokens: what rounding alone does to the state."""
        rows = Rows(self.plans, self.spare_tokens)
        self.model.forward(self.tokens[:, : PROMPT_TOKENS // 2], rows)
        self.model.forward(self.tokens[:, PROMPT_TOKENS // 2 : -CONTINUED_TOKENS // 2], rows)
        self.model.forward(self.tokens[:, -CONTINUED_TOKENS // 2 :], rows)
        return rows

    def _copy(self) -> Rows:
        return merge([(self.prompt, 0)], row_capacity=1)

    def _continue(self, rows: Rows, step: int) -> Tensor:
        parts = torch.split(self.tokens[:, PROMPT_TOKENS:], step, dim=1)
        return torch.cat([self.model.forward(part, rows, keep=step) for part in parts], dim=1)

    def _error(self, logits: Tensor) -> float:
        return float((logits - self.truth).float().abs().mean() / self.truth.float().std())


def _state_distance(one: Rows, other: Rows) -> float:
    """The largest relative difference between the states of two rows of equal length."""
    pairs = zip(_everything(one), _everything(other), strict=True)
    return max(_relative(mine.float(), theirs.float()) for mine, theirs in pairs)


def _everything(rows: Rows) -> Iterator[Tensor]:
    end = rows.length(0)
    for layer in rows.slabs:
        yield from rows.tokens(layer, 0, max(rows.held_from(layer, 0), end - CONTINUED_TOKENS // 2), end)
    yield from rows.state_tensors()


def _relative(mine: Tensor, theirs: Tensor) -> float:
    return float((mine - theirs).abs().mean() / mine.abs().mean().clamp_min(1e-9))


def _tokens(model: ModelAdapter, count: int, seed: int) -> Tensor:
    dice = torch.Generator().manual_seed(seed)
    return torch.randint(0, model.vocab_size, (1, count), generator=dice).to(model.device)
