"""What is counted, and what nobody counts."""

import numpy as np

from agentcache.events import NullEvents
from agentcache.stats import CachedTokens, CacheStats, Counters, NullStats, SessionCounts, TurnCounts
from agentcache.types import (
    FULL,
    SWA,
    Emit,
    Event,
    EventKind,
    Free,
    PoolName,
    TierName,
)
from agentcache.views import ABSENT, ExternalStatus
from agentcache.why import ALL_THERE, Finding, Why

GAP = Finding(Why.WINDOW_GAP, SWA, 16)


def free(tier: TierName, count: int) -> Free:
    return Free(PoolName(SWA, tier), np.arange(count, dtype=np.int32))


def test_counters_sum_up() -> None:
    counters = Counters()
    counters.turn(100, CachedTokens(), GAP)
    counters.turn(50, CachedTokens(device=16, external=16), GAP)
    counters.turn(10, CachedTokens(host=8), ALL_THERE)
    counters.cold_turn()
    counters.evicted(
        (free(TierName.DEVICE, 3), free(TierName.HOST, 5), Emit(Event(EventKind.CLEARED, TierName.DEVICE)))
    )
    counters.evicted((free(TierName.DEVICE, 1),))
    assert counters.counts() == TurnCounts(
        turns=3,
        cold_turns=1,
        hits=2,
        prompt_tokens=160,
        cached_tokens=40,
        cached_by_tier={TierName.DEVICE: 16, TierName.HOST: 8, TierName.EXTERNAL: 16},
        misses={(SWA, Why.WINDOW_GAP): 2},
        evicted_slots={SWA: 4},
    )


def test_counts_are_a_copy() -> None:
    counters = Counters()
    before = counters.counts()
    counters.turn(1, CachedTokens(), Finding(Why.NEVER_STORED, FULL, 0))
    assert before == TurnCounts()


def test_absent_stats_and_events_take_everything() -> None:
    stats = NullStats()
    stats.turn(1, CachedTokens(device=1), GAP)
    stats.cold_turn()
    stats.evicted((free(TierName.DEVICE, 3),))
    NullEvents().publish(Event(EventKind.CLEARED, TierName.DEVICE))
    assert stats.counts() == TurnCounts()


def test_hit_rate_before_the_first_turn_is_zero() -> None:
    nothing = ExternalStatus("none", ABSENT)
    assert CacheStats(TurnCounts(), SessionCounts(), (), 0, 0, 0, nothing, 0, 0).hit_rate == 0
