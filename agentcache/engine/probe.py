"""The load-time examination: may this model continue from a cache, and how? It degrades instead of answering wrongly.

Five questions, on random tokens: does a restored copy continue exactly like the original, with an unrelated request
run in between (catches state kept outside the cache)? Does a continuation of many tokens match the model without a
cache? Does one token at a time (Mamba1 kernels ignore the state in longer forwards)? Does decoding leave the same state
as prefilling (Mamba2 variants that clamp the step only in prefill do not)? Do two requests of different length decode
together as they do alone?
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from agentcache.engine.adapter import FORWARD_FAILURES, LayerPlan, float32_twin
from agentcache.engine.capability import ReuseClass
from agentcache.engine.forward import ModelAdapter
from agentcache.engine.rows import Rows, merge
from agentcache.errors import CacheError, Kind

PROMPT_TOKENS = 64
CONTINUED_TOKENS = 32
SHORT_TOKENS = 17
SEVERAL_TOKENS = 4  # short forwards: each depends on what was restored
REFUSALS = (
    RuntimeError,
    ValueError,
    NotImplementedError,
)  # what a model's forward says to input it cannot take
TWIN_PARAMETERS = 1 << 28  # up to here a low-precision model is examined in float32


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What counts as rounding: mean logit error in standard deviations, and relative difference of states."""

    logits: float
    states: float


PRECISE = Tolerance(logits=0.005, states=1e-3)
COARSE = Tolerance(logits=0.1, states=0.1)


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome; `sample` is a row that has run, from which shapes and types are read (empty: not reusable)."""

    reuse: ReuseClass
    reason: str
    prompt_only: bool
    batched_decode: bool
    sample: Rows


@torch.inference_mode()
def examine(model: ModelAdapter, spare_tokens: int) -> Finding:
    """Classify a loaded model. Cost about 100 forwards of few tokens.

    Errors  CacheError(UNSUPPORTED_MODEL) when the model does not run even without a cache
    """
    _truth(model, _tokens(model, CONTINUED_TOKENS, seed=0))
    try:
        return _examine(model, spare_tokens)
    except CacheError as refusal:
        return _not_reusable(refusal.message)
    except REFUSALS as bad:
        return _not_reusable(f"it does not continue on our cache layers ({_said(bad)})")


def _examine(model: ModelAdapter, spare_tokens: int) -> Finding:
    try:
        native = _Examination(model, spare_tokens)
    except FORWARD_FAILURES as bad:
        return _not_reusable(f"it does not run on our cache layers ({_said(bad)})")
    if not native.restores_exactly():
        return _not_reusable("a restored copy continues differently, so it keeps state outside the cache")
    twin = float32_twin(model.model, TWIN_PARAMETERS)
    precise = native if twin is model.model else _Examination(ModelAdapter(twin), spare_tokens)
    return precise.finding(PRECISE if twin.dtype == torch.float32 else COARSE, native.prompt)


def _truth(model: ModelAdapter, tokens: Tensor) -> Tensor:
    try:
        return model.forward_without_cache(tokens, CONTINUED_TOKENS)
    except FORWARD_FAILURES as bad:
        raise CacheError(Kind.UNSUPPORTED_MODEL, f"the model does not run ({_said(bad)})") from bad


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:120]}"


def _not_reusable(why: str) -> Finding:
    return Finding(ReuseClass.NOT_REUSABLE, f"not reusable: {why}", False, False, Rows((), 0))


class _Examination:
    """The runs behind a finding: one prompt, continued in several ways. `prompt` stays at its end."""

    def __init__(self, model: ModelAdapter, spare_tokens: int) -> None:
        self.model = model
        self.spare_tokens = spare_tokens
        self.plans: tuple[LayerPlan, ...] = model.layers()
        self.tokens = _tokens(model, PROMPT_TOKENS + CONTINUED_TOKENS, seed=0)
        self.prompt = Rows(self.plans, spare_tokens)
        model.forward(self.tokens[:, :PROMPT_TOKENS], self.prompt)

    def restores_exactly(self) -> bool:
        """A copy continues like the original, whatever ran in between: with the same bits on a CPU."""
        original, restored = self._copy(), self._copy()
        once = self._continue(original, SEVERAL_TOKENS)
        self.model.forward(_tokens(self.model, SHORT_TOKENS, seed=1), Rows(self.plans, self.spare_tokens))
        allowed = 0.0 if self.model.device.type == "cpu" else PRECISE.logits
        return _error(self._continue(restored, SEVERAL_TOKENS), once) <= allowed

    def finding(self, tolerance: Tolerance, sample: Rows) -> Finding:
        truth = _truth(self.model, self.tokens)
        whole, prefilled, decoded = Rows(self.plans, self.spare_tokens), self._copy(), self._copy()
        self.model.forward(self.tokens, whole)
        several = _error(self._continue(prefilled, SEVERAL_TOKENS), truth)
        single = _error(self._continue(decoded, 1), truth)
        lost = _state_distance(whole, prefilled)
        if single > tolerance.logits:
            return _not_reusable(f"continuing from a cache is wrong even token by token (error {single:.2g})")
        if several > tolerance.logits or lost > tolerance.states:
            reason = f"token by token: its forwards of several tokens ignore the restored state (error {several:.2g})"
            return Finding(ReuseClass.TOKEN_BY_TOKEN, reason, False, self._batches(tolerance), sample)
        reason = (
            f"reusable: a kept prefix continues like a run without a cache (mean logit error {several:.1e})"
        )
        distance = _state_distance(whole, decoded)
        differs = distance > tolerance.states
        if differs:
            reason += (
                f"; decoding leaves another state than prefilling ({distance:.1e}): only prompts are kept"
            )
        return Finding(ReuseClass.REUSABLE, reason, differs, self._batches(tolerance), sample)

    def _batches(self, tolerance: Tolerance) -> bool:
        """Two rows of different length decode one token together as they do alone."""
        short = Rows(self.plans, self.spare_tokens)
        self.model.forward(self.tokens[:, :SHORT_TOKENS], short)
        rows = merge([(self.prompt, 0), (short, 0)], row_capacity=2)
        following = self.tokens[:, [PROMPT_TOKENS, SHORT_TOKENS]]
        alone = [
            self.model.forward(following[:, :1], self._copy()),
            self.model.forward(following[:, 1:], short),
        ]
        try:
            together = self.model.forward(following.T, rows)
        except REFUSALS:
            return False
        return _error(together, torch.cat(alone)) <= tolerance.logits

    def _copy(self) -> Rows:
        return merge([(self.prompt, 0)], row_capacity=1)

    def _continue(self, rows: Rows, step: int) -> Tensor:
        parts = torch.split(self.tokens[:, PROMPT_TOKENS:], step, dim=1)
        return torch.cat([self.model.forward(part, rows, keep=step) for part in parts], dim=1)


def _error(logits: Tensor, truth: Tensor) -> float:
    """Mean error in standard deviations of the logits."""
    return float((logits - truth).float().abs().mean() / truth.float().std())


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
