"""Counters as typed records: what the cache counts, and the view that metrics read."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agentcache.types import ComponentName, Effect, Free, PoolName, TierName
from agentcache.views import ExternalStatus
from agentcache.why import Finding, Why


@dataclass(frozen=True, slots=True)
class CachedTokens:
    """Prompt tokens that were restored, by the tier that they came from."""

    device: int = 0
    host: int = 0
    external: int = 0

    @property
    def total(self) -> int:
        return self.device + self.host + self.external


@dataclass(frozen=True, slots=True)
class TurnCounts:
    """Turns that asked the cache since the start; `cold_turns` asked not to be answered and count in nothing else."""

    turns: int = 0
    cold_turns: int = 0
    hits: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cached_by_tier: Mapping[TierName, int] = field(default_factory=dict)
    misses: Mapping[tuple[ComponentName, Why], int] = field(default_factory=dict)
    evicted_slots: Mapping[ComponentName, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """Sessions: open now, and how often one was opened (reopening included), closed and idled out since the start."""

    open: int = 0
    opened: int = 0
    closed: int = 0
    expired: int = 0
    tombstones: int = 0


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Slots of one pool now: free + cached + leased + in_flight = size. The last two are parts of cached."""

    pool: PoolName
    size: int
    free: int
    cached: int
    leased: int
    in_flight: int
    protected: int
    referenced: int


@dataclass(slots=True)
class ReturnCounts:
    """Sessions that were expected back, since the start.

    `tokens` were brought to the device before their sessions asked; of these some found all of it (`on_time`), some
    came while it was on its way (`late`), and to some it was of no use: they ended, or it had left again (`unused`).
    """

    tokens: int = 0
    on_time: int = 0
    late: int = 0
    unused: int = 0


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a worker's metrics show.

    `open_references` are the markers of open sessions, `tree_pages` page positions; `jobs_in_flight` between tiers,
    `prefetched_tokens` grafted from the external tier since the start, `returns` what was brought unasked.
    """

    turns: TurnCounts
    sessions: SessionCounts
    pools: tuple[PoolUse, ...]
    active_turns: int
    open_references: int
    tree_pages: int
    external: ExternalStatus
    jobs_in_flight: int
    prefetched_tokens: int
    returns: ReturnCounts = field(default_factory=ReturnCounts)

    @property
    def hit_rate(self) -> float:
        """Cached tokens by prompt tokens; 0 before the first turn."""
        return self.turns.cached_tokens / max(1, self.turns.prompt_tokens)


class Stats(Protocol):
    """Takes what happened and answers the sums."""

    def turn(self, prompt_tokens: int, cached: CachedTokens, found: Finding) -> None: ...

    def cold_turn(self) -> None: ...

    def evicted(self, effects: Iterable[Effect]) -> None: ...

    def counts(self) -> TurnCounts: ...


class Counters:
    """Counts in memory, since the start."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._by_tier: Counter[TierName] = Counter()
        self._misses: Counter[tuple[ComponentName, Why]] = Counter()
        self._evicted: Counter[ComponentName] = Counter()

    def turn(self, prompt_tokens: int, cached: CachedTokens, found: Finding) -> None:
        self._sums["turns"] += 1
        self._sums["hits"] += cached.total > 0
        self._sums["prompt_tokens"] += prompt_tokens
        self._sums["cached_tokens"] += cached.total
        self._by_tier.update(
            {TierName.DEVICE: cached.device, TierName.HOST: cached.host, TierName.EXTERNAL: cached.external}
        )
        if found.why is not Why.NOTHING:
            self._misses[found.component, found.why] += 1

    def cold_turn(self) -> None:
        self._sums["cold_turns"] += 1

    def evicted(self, effects: Iterable[Effect]) -> None:
        """Count the device slots that an eviction frees, cascades included."""
        for effect in effects:
            if isinstance(effect, Free) and effect.pool.tier is TierName.DEVICE:
                self._evicted[effect.pool.component] += int(effect.slots.size)

    def counts(self) -> TurnCounts:
        return TurnCounts(
            **self._sums,
            cached_by_tier=dict(self._by_tier),
            misses=dict(self._misses),
            evicted_slots=dict(self._evicted),
        )


class NullStats:
    """Counts nothing."""

    def turn(self, prompt_tokens: int, cached: CachedTokens, found: Finding) -> None:
        """Dropped."""

    def cold_turn(self) -> None:
        """Dropped."""

    def evicted(self, effects: Iterable[Effect]) -> None:
        """Dropped."""

    def counts(self) -> TurnCounts:
        return TurnCounts()
