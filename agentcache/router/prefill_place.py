"""Which worker computes a prompt for the one that answers it: a pure function of the prompt and of the workers.

long enough? ──► there ──► equal to the decode worker ──► not resting ──► not full ──► the session's usual one
                                                                                 └──► within a window of the least
                                                                                      load the longest prefix
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agentcache.router.fleet import WorkerView
from agentcache.router.place import Candidate
from agentcache.wire import WorkerCard


class NoPrefill(StrEnum):
    """Why nobody computed a prompt ahead of the worker that answers."""

    SHORT = "short"  # too little of it is to be computed
    UNKNOWN = "length unknown"  # nobody could say how long it is
    ABSENT = "no prefill worker"  # none is alive
    UNLIKE = "another model"  # what they compute is not what the decode worker could load
    RESTING = "in vain lately"
    FULL = "full"
    MOVED = "the session has moved"
    LATE = "late"
    UNANSWERED = "no answer"
    REFUSED = "refused"
    FAILED = "failed"
    NOT_STORED = "not stored"
    NO_STORE = "session store unavailable"


@dataclass(frozen=True, slots=True)
class PrefillWish:
    """A prompt, and who will answer it. `cached_tokens` of it that worker is expected to have.

    `least_tokens` is what is worth it; `usual` computed the session's prompts before, "" for nobody; `resting` are not
    to be asked now.
    """

    decoder: WorkerView
    prompt_tokens: int
    cached_tokens: int
    least_tokens: int
    usual: str = ""
    resting: frozenset[str] = frozenset()

    @property
    def boundary(self) -> int:
        """The deepest boundary from which the prompt can be gone on with: one token is always left."""
        grid = self.decoder.card.grid_tokens if self.decoder.card else 1
        return (self.prompt_tokens - 1) // grid * grid


@dataclass(frozen=True, slots=True)
class PrefillChoice:
    """Who computes it, or "" and why nobody does."""

    worker: str = ""
    why: str = ""


def place_prefill(wish: PrefillWish, candidates: Sequence[Candidate]) -> PrefillChoice:
    """Cost O(workers)."""
    if wish.boundary - wish.cached_tokens < wish.least_tokens:
        return PrefillChoice(why=NoPrefill.SHORT)
    there = [each for each in candidates if each.view.prefills and each.view.usable]
    alike = [each for each in there if _alike(each.view.card, wish.decoder.card)]
    awake = [each for each in alike if each.view.id not in wish.resting]
    free = [each for each in awake if not each.view.waits(batches=1)]
    steps = (
        (there, NoPrefill.ABSENT),
        (alike, NoPrefill.UNLIKE),
        (awake, NoPrefill.RESTING),
        (free, NoPrefill.FULL),
    )
    for left, why in steps:
        if not left:
            return PrefillChoice(why=why)
    usual = any(each.view.id == wish.usual for each in free)
    return PrefillChoice(wish.usual if usual else _best(free).view.id)


def _alike(one: WorkerCard | None, other: WorkerCard | None) -> bool:
    """Whether what one stores is what the other looks for: equal names of pages, and the same boundaries."""
    return bool(one and other) and _identity(one) == _identity(other)


def _identity(card: WorkerCard | None) -> tuple[object, ...]:
    return (card.namespace, card.page_tokens, card.grid_tokens, card.components) if card else ()


def _best(free: Sequence[Candidate]) -> Candidate:
    """Within half a batch of the least load the longest prefix."""
    least = min(map(_pressure, free))
    window = [each for each in free if each.view.load <= least * each.view.seats + each.view.seats // 2]
    most = max(each.predicted_tokens for each in window)
    return _least(each for each in window if each.predicted_tokens == most)


def _least(candidates: Iterable[Candidate]) -> Candidate:
    return min(candidates, key=lambda each: (_pressure(each), each.view.chosen, each.view.id))


def _pressure(each: Candidate) -> float:
    return each.view.load / each.view.seats
