"""What a router's `/metrics` says: requests counted here, workers and the store as they are when asked.

No label has a session or a tenant. Processes that share a port write to files in one folder, and whichever of them is
asked answers for all.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from agentcache.router.fleet import WorkerView

NAMESPACE: Final = "agentcache_router"
SHARED_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable in which prometheus_client looks for that folder; set before a process of several starts."""
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ADDED: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


@dataclass(slots=True)
class Times:
    """Of one request, in nanoseconds of the clock; 0: never."""

    arrived_ns: int
    sent_ns: int = 0
    first_ns: int = 0
    ended_ns: int = 0

    def seconds(self, at_ns: int) -> float:
        """From the arrival; 0 for never."""
        return (at_ns - self.arrived_ns) / 1e9 if at_ns else 0.0


@dataclass(slots=True)
class Tokens:
    """Of a prompt: all, the most that any worker could reuse, what was expected of the chosen one, what it did reuse,
    and what another worker had computed ahead.

    -1: unknown.
    """

    prompt: int = -1
    best: int = -1
    predicted: int = -1
    cached: int = -1
    prefilled: int = -1

    def known(self) -> Iterator[tuple[str, int]]:
        """What is known, by name."""
        told = (
            ("prompt", self.prompt),
            ("best", self.best),
            ("predicted", self.predicted),
            ("cached", self.cached),
            ("prefilled", self.prefilled),
        )
        return (each for each in told if each[1] >= 0)


@dataclass(slots=True)
class Facts:
    """One request, for the log line and the metrics. `request_id`: of one that is to be passed on.

    `source`: which names gave the session. `placed`: why this worker. `session_state`: as answered.
    """

    route: str
    times: Times
    status: int = 500
    reason: str = ""
    request_id: str = ""
    tenant: str = ""
    session: str = ""
    source: str = ""
    worker: str = ""
    placed: str = ""
    session_state: str = ""
    why: str = ""
    attempts: int = 0
    tokens: Tokens = field(default_factory=Tokens)
    answer_bytes: int = 0


class RouterMetrics:
    """Counts requests in a registry of its own; `shared` is the folder of several processes, "" for one alone."""

    def __init__(self, shared: str = "") -> None:
        self._shared = shared
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests by route and HTTP status", "route", "status")
        self._ends = self._counter("request_ends", "Passed requests by how they ended", "reason")
        self._sources = self._counter("identity", "Passed requests by what named their session", "source")
        self._placed = self._counter("placements", "Passed requests by why they went to their worker", "why")
        self._states = self._counter(
            "session_states", "Passed requests by the state of their session", "state"
        )
        self._retries = self._counter("retries", "Attempts beyond the first, before the first byte")()
        self._tokens = self._counter(
            "cached_tokens",
            "Of the prompts that were looked up and answered: best possible, predicted for the worker, delivered",
            "what",
        )
        self._prompts = self._counter("prompt_tokens", "Of all prompts whose answer says what was reused")()
        self._reused = self._counter("reused_tokens", "What was reused of them")()
        self._added_later: list[Collector] = []
        self._first = self._histogram(
            "time_to_first_byte_seconds", "From arrival to the first byte", _SECONDS
        )
        self._total = self._histogram("request_seconds", "From arrival to the end of the answer", _SECONDS)
        self._added = self._histogram("dispatch_seconds", "From arrival to sending it to a worker", _ADDED)

    @property
    def registry(self) -> CollectorRegistry:
        """Where others count, too."""
        return self._registry

    def count(self, facts: Facts) -> None:
        """Count a request of any route."""
        self._requests(facts.route, facts.status).inc()

    def count_passed(self, facts: Facts) -> None:
        """Count a request that was to be passed on, with all that is known of it."""
        self.count(facts)
        self._ends(facts.reason).inc()
        self._sources(facts.source or "none").inc()
        if facts.placed:
            self._placed(_rule(facts.placed)).inc()
        if facts.session_state:
            self._states(facts.session_state).inc()
        self._retries.inc(max(0, facts.attempts - 1))
        self._count_tokens(facts)
        self._observe(facts)

    def add(self, collector: Collector) -> None:
        """Ask this one, too, whenever somebody wants to know."""
        self._added_later.append(collector)

    def render(self, workers: Iterable[WorkerView], store_up: bool) -> bytes:
        """The text that Prometheus scrapes."""
        now = CollectorRegistry(auto_describe=False)
        for collector in (_Snapshot(tuple(workers), store_up), *self._added_later):
            now.register(collector)
        counted = self._registry
        if self._shared:
            counted = CollectorRegistry()
            MultiProcessCollector(counted, self._shared)  # type: ignore[no-untyped-call]
        return generate_latest(counted) + generate_latest(now)

    def _count_tokens(self, facts: Facts) -> None:
        """What is compared is of the same requests."""
        tokens = facts.tokens
        if tokens.cached < 0:
            return
        self._prompts.inc(max(0, tokens.prompt))
        self._reused.inc(tokens.cached)
        if tokens.best >= 0:
            told = {"best": tokens.best, "predicted": tokens.predicted, "delivered": tokens.cached}
            for what, count in told.items():
                self._tokens(what).inc(count)

    def _observe(self, facts: Facts) -> None:
        times = facts.times
        if times.sent_ns:
            self._added.observe(times.seconds(times.sent_ns))
        if times.first_ns:
            self._first.observe(times.seconds(times.first_ns))
            self._total.observe(times.seconds(times.ended_ns))

    def _counter(self, name: str, text: str, *labels: str) -> Callable[..., Counter]:
        """The counters of a name, by the values of its labels; the library's own look-up takes locks."""
        counter = Counter(name, text, labels, namespace=NAMESPACE, registry=self._registry)
        return cache(counter.labels) if labels else lambda: counter

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, namespace=NAMESPACE, registry=self._registry, buckets=buckets)


class _Snapshot(Collector):
    """Workers and store at one moment, as this process sees them."""

    def __init__(self, workers: tuple[WorkerView, ...], store_up: bool) -> None:
        self._workers = workers
        self._store_up = store_up

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            f"{NAMESPACE}_store_up", "1 while the session store answers", value=float(self._store_up)
        )
        states = {state: 0 for state in ("usable", "draining", "not_alive")}
        for view in self._workers:
            states["usable" if view.usable else "draining" if view.alive else "not_alive"] += 1
        counted = GaugeMetricFamily(f"{NAMESPACE}_workers", "Workers known, by state", labels=["state"])
        for state, count in states.items():
            counted.add_metric([state], count)
        yield counted
        in_flight = _by_worker("in_flight", "Requests of this process at a worker")
        load = _by_worker("worker_load", "Requests at a worker, as far as this process knows")
        for view in self._workers:
            in_flight.add_metric([view.id], view.in_flight)
            load.add_metric([view.id], view.load)
        yield from (in_flight, load)


def _by_worker(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{NAMESPACE}_{name}", text, labels=["worker"])


def _rule(placed: str) -> str:
    """The first words of why, without what they name: a label with few values."""
    first = placed.split(";")[0].strip()
    return "model" if first.startswith("model ") else first
