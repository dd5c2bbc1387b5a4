"""One cell of a table: what is replayed how, under which policy, in which room; and what came out, in numbers."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agentcache.replay.lab.parts import FULL_ONLY, Parts
from agentcache.replay.lab.serving import NANOSECONDS, Machine, Replayed
from agentcache.tree.api import Order


class Policy(StrEnum):
    """An eviction order of the cache, or a bound."""

    LRU = "lru"
    SESSION = "session"
    ERT = "ert"
    CLAIRVOYANT = "clairvoyant"
    UNBOUNDED = "unbounded"

    @property
    def order(self) -> Order | None:
        """The cache's order; None: a bound."""
        return Order(self.value) if self in (Policy.LRU, Policy.SESSION, Policy.ERT) else None


UNQUEUED = Machine()


class Hints(StrEnum):
    """What clients say of how long their tools take; people are never predicted."""

    NONE = "none"
    EXACT = "exact"
    NOISY = "noisy"


@dataclass(frozen=True, slots=True)
class Cell:
    """Units: the rooms of device, host and external tier in mean session peaks, 0: no such tier.

    `live` sessions are live on the average, 0: as recorded. `closes`: clients say when a session is over. `sigma`: the
    standard deviation of noisy hints, in natural logarithm. `supersedes`: clients say that a prompt leaves its path.
    `parts` are those of the model.
    """

    policy: Policy
    device: float
    host: float = 0.0
    live: float = 40.0
    machine: Machine = UNQUEUED
    closes: bool = True
    hints: Hints = Hints.NONE
    sigma: float = 0.7
    supersedes: bool = False
    external: float = 0.0
    parts: Parts = FULL_ONLY


@dataclass(frozen=True, slots=True)
class Score:
    """One cell with one seed. Units: tokens, seconds; `why`: calls by what ended their hit."""

    calls: int
    prompt_tokens: int
    device_tokens: int
    host_tokens: int
    external_tokens: int
    ttft_s: float
    ttft_p95_s: float
    why: dict[str, int]

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that any tier had."""
        return (self.device_tokens + self.host_tokens + self.external_tokens) / max(1, self.prompt_tokens)

    @property
    def device_rate(self) -> float:
        return self.device_tokens / max(1, self.prompt_tokens)

    @property
    def external_rate(self) -> float:
        return self.external_tokens / max(1, self.prompt_tokens)


def p95(values: Sequence[float]) -> float:
    """What 95 of 100 are not above; 0 of none."""
    return sorted(values)[int(0.95 * len(values))] if values else 0.0


def score(replayed: Sequence[Replayed], page_tokens: int) -> Score:
    """What a replay comes to."""
    waits = sorted((one.first_token_ns - one.arrived_ns) / NANOSECONDS for one in replayed)
    why = Counter(one.found.ended_by for one in replayed)
    return Score(
        calls=len(replayed),
        prompt_tokens=sum(one.call.prompt_tokens for one in replayed),
        device_tokens=page_tokens * sum(one.found.device for one in replayed),
        host_tokens=page_tokens * sum(one.found.host for one in replayed),
        external_tokens=page_tokens * sum(one.found.external for one in replayed),
        ttft_s=sum(waits) / max(1, len(waits)),
        ttft_p95_s=p95(waits),
        why=dict(sorted(why.items())),
    )
