"""What a loaded model can do with a cache: plain values, no model and no tensors."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agentcache.types import ComponentName, ComponentSpec


class ReuseClass(StrEnum):
    """How a model continues from a restored cache."""

    REUSABLE = "reusable"
    TOKEN_BY_TOKEN = "token-by-token"  # right only one token at a time: slow, never wrong
    NOT_REUSABLE = "not-reusable"  # every step recomputes the whole prompt: slower still, never wrong


@dataclass(frozen=True, slots=True)
class Capability:
    """The load-time record of a model.

    `specs` are the components with their slot sizes, FULL first (0 bytes for a model without full attention).
    `prompt_only`: decoded state differs from prefilled state by more than rounding, so only pages computed from
    prompts may be published. `reason` is one sentence for people. `batched_decode`: requests decode together; else the
    runner takes them in turn.
    `chunk_bound`: it has experts, and what a token rounds to depends on the rest of its forward; sessions that part
    inside a chunk share pages shorter than the chunk only up to rounding.
    """

    specs: tuple[ComponentSpec, ...]
    reuse: ReuseClass
    reason: str
    prompt_only: bool
    context_tokens: int
    dtype: str
    vocab_size: int
    batched_decode: bool = True
    chunk_bound: bool = False


@dataclass(frozen=True, slots=True)
class RunnerConfig:
    """How to run a model. `grid_tokens` is a multiple of `page_tokens`; `pool_slots` names every component.

    `threads`: CPU threads of torch, set once; None leaves torch's own choice.
    """

    page_tokens: int
    grid_tokens: int
    device: str
    pool_slots: Mapping[ComponentName, int]
    threads: int | None = None
