"""The text of `/metrics` for a cache of three tiers."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agentcache.engine.api import EngineLoad
from agentcache.stats import CacheStats
from agentcache.views import ExternalStatus
from agentcache.worker.kv_telling import EventCounts
from agentcache.worker.metrics import Sample, WorkerMetrics
from tests.unit.worker.test_cache_routes import ABSENT, UP, stats

IDLE = EngineLoad(0, 0, 0, 0, 0, 0, 0, {})


def scraped(cache: CacheStats) -> dict[tuple[str, ...], float]:
    text = WorkerMetrics().render(Sample(cache, IDLE, 4)).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        (s.name.removeprefix("agentcache_"), *(value for _, value in sorted(s.labels.items()))): s.value
        for s in samples
    }


def test_cached_tokens_and_slots_are_told_by_tier() -> None:
    figures = scraped(stats())
    cached = {tier: figures["cached_tokens_total", tier] for tier in ("device", "host", "external")}
    assert cached == {"device": 64, "host": 32, "external": 4}
    assert figures["pool_slots", "FULL", "size", "host"] == 100
    assert figures["pool_slots", "MAMBA", "free", "device"] == 2
    assert figures["jobs_in_flight",] == 2
    assert figures["prefetched_tokens_total",] == 4


def test_what_was_brought_before_it_was_asked_for_is_told_by_what_became_of_it() -> None:
    figures = scraped(stats())
    outcomes = [figures["promoted_sessions_total", outcome] for outcome in ("on_time", "late", "unused")]
    assert (figures["promoted_tokens_total",], outcomes) == (64, [3, 2, 1])


def test_what_others_call_it_is_told_too() -> None:
    """The names of vLLM and SGLang; all in tokens of full attention, 4 to a page."""
    figures = scraped(stats())
    queries = [figures[f"{where}prefix_cache_queries_total",] for where in ("", "external_")]
    hits = [figures[f"{where}prefix_cache_hits_total",] for where in ("", "external_")]
    assert (queries, hits) == ([200, 136], [64, 36])
    assert figures["kv_cache_usage_perc",] == pytest.approx(0.6)
    assert (figures["hicache_host_used_tokens",], figures["hicache_host_total_tokens",]) == (240, 400)
    assert (figures["session_held_tokens",], figures["evicted_tokens_total",]) == (8, 0)


def test_the_external_store_is_counted() -> None:
    counted = replace(UP, stored=5, loaded=4, missed=3, refused=2, failed=1, used_bytes=9)
    figures = scraped(stats(counted))
    names = ("stored", "loaded", "missed", "refused", "failed")
    assert [figures[f"external_{name}_total",] for name in names] == [5, 4, 3, 2, 1]
    assert (figures["external_up",], figures["external_used_bytes",]) == (1, 9)


@pytest.mark.parametrize("status", [ABSENT, replace(UP, state="down")])
def test_a_store_that_is_not_asked_is_not_up(status: ExternalStatus) -> None:
    figures = scraped(stats(status))
    assert figures["external_up",] == 0
    assert ("external_used_bytes",) not in figures


def test_usage_is_that_of_the_device() -> None:
    figures = scraped(stats())
    assert figures["full_token_usage",] == pytest.approx(0.6)
    assert figures["kv_used_tokens",] == 24


def test_placement_events_are_counted() -> None:
    counted = EventCounts(events=5, batches=4, replays=3, snapshots=2, dropped=1)
    text = WorkerMetrics().render(Sample(stats(), IDLE, 4, counted, replace(counted, events=6))).decode()
    for name, figure in (("published", 5), ("batches", 4), ("replays", 3), ("snapshots", 2), ("dropped", 1)):
        assert f"agentcache_kv_events_{name}_total {figure}.0" in text
    assert "agentcache_session_events_published_total 6.0" in text
