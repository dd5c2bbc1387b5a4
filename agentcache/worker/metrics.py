"""What `/metrics` says: requests counted here, the cache and the engine read when asked.

Names mirror SGLang's and vLLM's with our prefix. A session id is never a label.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agentcache.engine.api import EngineLoad
from agentcache.engine.engine import Engine
from agentcache.stats import CachedTokens, CacheStats, PoolUse, ReturnCounts
from agentcache.types import FULL, MAMBA, TierName
from agentcache.worker.kv_telling import NO_COUNTS, EventCounts
from agentcache.worker.reading import NOTHING_CACHED

NAMESPACE = "agentcache"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


SLOT_STATES = ("size", "free", "cached", "leased", "in_flight", "protected", "referenced")


@dataclass(frozen=True, slots=True)
class Facts:
    """One finished request, for the log line and the metrics. Times in seconds; 0 when nothing was generated.

    `generating`: it asked for an answer of the model; what follows is about those. `request_id`: the
    router's, where one sent it.
    """

    route: str
    status: int
    method: str = "POST"
    generating: bool = False
    request_id: str = ""
    reason: str = ""
    session: str = ""
    why: str = ""
    prompt_tokens: int = 0
    cached: CachedTokens = NOTHING_CACHED
    completion_tokens: int = 0
    first_token_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The cache, the engine and what was told of them at one moment."""

    cache: CacheStats
    load: EngineLoad
    page_tokens: int
    events: EventCounts = NO_COUNTS
    happenings: EventCounts = NO_COUNTS


def take_sample(engine: Engine) -> Sample:
    """Read both at once. Caller: on the engine's thread."""
    return Sample(engine.cache.stats(), engine.load(), engine.info.page_tokens)


class WorkerMetrics:
    """Counts requests in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests by route and HTTP status", "route", "status")
        self._finished = self._counter("finished_requests", "Generations by finish reason", "reason")
        self._first = self._histogram("time_to_first_token_seconds", "From arrival to the first text sent")
        self._total = self._histogram("e2e_request_latency_seconds", "From arrival to the end of the answer")

    def count(self, facts: Facts) -> None:
        self._requests.labels(facts.route, str(facts.status)).inc()
        if facts.reason:
            self._total.observe(facts.total_s)
            self._finished.labels(facts.reason).inc()
        if facts.first_token_s:
            self._first.observe(facts.first_token_s)

    def render(self, sample: Sample) -> bytes:
        """The text that Prometheus scrapes."""
        now = CollectorRegistry(auto_describe=False)
        now.register(_Snapshot(sample))
        return generate_latest(self._registry) + generate_latest(now)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, namespace=NAMESPACE, registry=self._registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, namespace=NAMESPACE, registry=self._registry, buckets=_SECONDS)


class _Snapshot(Collector):
    """One sample as metric families."""

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Metric]:
        yield from _turns(self._sample.cache)
        yield from _tokens(self._sample)
        yield from _sessions(self._sample.cache)
        yield from _pools(self._sample.cache.pools)
        yield from _usage(self._sample)
        yield from _load(self._sample.load)
        yield from _external(self._sample.cache)
        yield from _returns(self._sample.cache.returns)
        yield from _events("kv_events", "Placement events", self._sample.events)
        yield from _events("session_events", "Session events", self._sample.happenings)


def _turns(stats: CacheStats) -> Iterator[Metric]:
    turns = stats.turns
    yield _gauge("cache_hit_rate", "Cached by prompt tokens since the start", stats.hit_rate)
    yield _total("prompt_tokens", "Prompt tokens of turns that asked the cache", turns.prompt_tokens)
    cached = CounterMetricFamily(
        f"{NAMESPACE}_cached_tokens", "Prompt tokens restored, by tier", labels=["cache_source"]
    )
    for tier in TierName:
        cached.add_metric([tier], turns.cached_by_tier.get(tier, 0))
    yield cached
    misses = CounterMetricFamily(
        f"{NAMESPACE}_cache_misses", "Turns by what ended their hit", labels=["component", "reason"]
    )
    for (component, reason), count in turns.misses.items():
        misses.add_metric([component, reason], count)
    yield misses
    evicted = CounterMetricFamily(f"{NAMESPACE}_evicted_slots", "Device slots evicted", labels=["component"])
    for component, count in turns.evicted_slots.items():
        evicted.add_metric([component], count)
    yield evicted


def _tokens(sample: Sample) -> Iterator[Metric]:
    """What vLLM and SGLang count in tokens, of full attention; hits of the device alone, as theirs are."""
    turns, page = sample.cache.turns, sample.page_tokens
    on_device = turns.cached_by_tier.get(TierName.DEVICE, 0)
    yield _total("prefix_cache_queries", "Prompt tokens that the device was asked for", turns.prompt_tokens)
    yield _total("prefix_cache_hits", "Prompt tokens that were on the device", on_device)
    beyond, lower = turns.prompt_tokens - on_device, turns.cached_tokens - on_device
    yield _total("external_prefix_cache_queries", "Prompt tokens that the lower tiers were asked for", beyond)
    yield _total("external_prefix_cache_hits", "Prompt tokens that came from lower tiers", lower)
    evicted = turns.evicted_slots.get(FULL, 0) * page
    yield _total("evicted_tokens", "Tokens whose FULL pages left the device", evicted)
    for use in sample.cache.pools:
        if use.pool.component == FULL:
            yield from _held(use, page)


def _held(use: PoolUse, page: int) -> Iterator[Metric]:
    """The FULL pool of one tier, in tokens."""
    if use.pool.tier is TierName.DEVICE:
        yield _gauge(
            "kv_cache_usage_perc", "Share of the FULL device pool in use, 0 to 1", 1 - use.free / use.size
        )
        yield _gauge(
            "session_held_tokens", "Tokens on the device that sessions reference", use.referenced * page
        )
    else:
        yield _gauge("hicache_host_used_tokens", "Tokens in host memory", (use.size - use.free) * page)
        yield _gauge("hicache_host_total_tokens", "Tokens that host memory has room for", use.size * page)


def _sessions(stats: CacheStats) -> Iterator[Metric]:
    sessions = stats.sessions
    yield _gauge("sessions_open", "Sessions open now", sessions.open)
    yield _gauge("session_tombstones", "Closed sessions remembered", sessions.tombstones)
    yield _gauge("open_references", "Markers of open sessions", stats.open_references)
    yield _gauge("active_turns", "Turns that hold a lease", stats.active_turns)
    yield _gauge("tree_pages", "Pages of the prefix tree", stats.tree_pages)
    yield _total("sessions_opened", "Sessions opened, reopening included", sessions.opened)
    yield _total("sessions_closed", "Sessions closed", sessions.closed)
    yield _total("sessions_expired", "Sessions whose idle lease ran out", sessions.expired)


def _pools(pools: Iterable[PoolUse]) -> Iterator[Metric]:
    slots = GaugeMetricFamily(
        f"{NAMESPACE}_pool_slots", "Slots by pool and state", labels=["component", "tier", "state"]
    )
    for use in pools:
        for state in SLOT_STATES:
            slots.add_metric([use.pool.component, use.pool.tier, state], getattr(use, state))
    yield slots


def _usage(sample: Sample) -> Iterator[Metric]:
    device = [use for use in sample.cache.pools if use.pool.tier is TierName.DEVICE]
    for use in device:
        component = use.pool.component
        name = re.sub(r"\W", "_", component.lower()) + ("_usage" if component == MAMBA else "_token_usage")
        yield _gauge(name, f"Share of the {component} device pool in use", 1 - use.free / use.size)
    for use in device:
        if use.pool.component == FULL:
            page = sample.page_tokens
            yield _gauge("kv_used_tokens", "Tokens of FULL pages in use", (use.size - use.free) * page)
            yield _gauge("kv_available_tokens", "Tokens of free FULL pages", use.free * page)
            yield _gauge("kv_evictable_tokens", "Tokens that may go", (use.cached - use.protected) * page)


def _load(load: EngineLoad) -> Iterator[Metric]:
    yield _gauge("num_running_reqs", "Requests being computed", load.running)
    yield _gauge("num_queue_reqs", "Requests waiting", load.waiting)
    yield _total("prefill_tokens", "Prompt tokens computed", load.prefill_tokens_total)
    yield _total("generation_tokens", "Tokens generated", load.generated_tokens_total)


def _external(stats: CacheStats) -> Iterator[Metric]:
    """Jobs between the tiers, and the external store; an absent one counts nothing and is not up."""
    store = stats.external
    yield _gauge("jobs_in_flight", "Transfers between tiers that have not ended", stats.jobs_in_flight)
    yield _total(
        "prefetched_tokens", "Prompt tokens fetched from the external store", stats.prefetched_tokens
    )
    yield _gauge("external_up", "1 while the external store is asked", store.state == "up")
    yield _total("external_stored", "Objects that the external store has taken", store.stored)
    yield _total("external_loaded", "Objects read from the external store", store.loaded)
    yield _total("external_missed", "Objects that the external store did not have", store.missed)
    yield _total("external_refused", "Objects that were not what was asked for", store.refused)
    yield _total("external_failed", "Calls of the external store that failed or were late", store.failed)
    if store.used_bytes is not None:
        yield _gauge("external_used_bytes", "Bytes that the external store holds", store.used_bytes)


def _returns(returns: ReturnCounts) -> Iterator[Metric]:
    """What was brought to the device before its session asked for it, and whether that helped."""
    yield _total("promoted_tokens", "Tokens brought back before their sessions returned", returns.tokens)
    sessions = CounterMetricFamily(
        f"{NAMESPACE}_promoted_sessions", "Sessions that tokens were brought back for", labels=["outcome"]
    )
    for outcome in ("on_time", "late", "unused"):
        sessions.add_metric([outcome], getattr(returns, outcome))
    yield sessions


def _events(name: str, what: str, counts: EventCounts) -> Iterator[Metric]:
    """Events of one kind; without anybody who asked for them all are 0."""
    yield _total(f"{name}_published", f"{what} published", counts.events)
    yield _total(f"{name}_batches", f"Messages with {what.lower()}", counts.batches)
    yield _total(f"{name}_replays", "Replays that readers asked for", counts.replays)
    yield _total(f"{name}_snapshots", "Replays answered with all that is there", counts.snapshots)
    yield _total(f"{name}_dropped", f"{what} lost, after which readers start anew", counts.dropped)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{NAMESPACE}_{name}", text, value=value)


def _total(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{NAMESPACE}_{name}", text, value=value)
