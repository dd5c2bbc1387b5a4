"""One look at a router or a worker: plain values from `/metrics`, `/v1/sessions` and `/v1/workers`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from agentcache.errors import CacheError, Kind
from agentcache.top.fetching import Fetch, Said

WORKER, WORKERS, ROUTER = "worker", "workers", "router"
MOST_SESSIONS: Final = 1000
"""Of one look: what a router lists at most in one answer."""
TIERS: Final = ("device", "host", "external")
_STATES: Final = ("size", "free", "cached", "leased", "referenced")


@dataclass(frozen=True, slots=True)
class Pool:
    """The slots of one component on one tier."""

    component: str
    tier: str
    slots: Mapping[str, int]

    def share(self, state: str) -> float:
        """Of all slots; `used` are those that are not free."""
        size = self.slots.get("size", 0)
        count = size - self.slots.get("free", 0) if state == "used" else self.slots.get(state, 0)
        return count / size if size else 0.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens since a server's start: of prompts, and of these what came from the cache, by tier."""

    prompt: float = 0.0
    cached: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.cached.values())

    def rate(self, tier: str = "") -> float | None:
        """The hit rate, of one tier or of all; None without prompts."""
        cached = self.cached.get(tier, 0.0) if tier else self.total
        return cached / self.prompt if self.prompt > 0 else None

    def __add__(self, other: "Counts") -> "Counts":
        tiers = self.cached.keys() | other.cached.keys()
        cached = {tier: self.cached.get(tier, 0.0) + other.cached.get(tier, 0.0) for tier in tiers}
        return Counts(self.prompt + other.prompt, cached)


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker; `reached` False: its numbers are not known, only what its router says of it. `role`: "" is not said.

    `open_sessions` None: not known.
    """

    id: str
    state: str = "alive"
    role: str = ""
    reached: bool = True
    running: int = 0
    waiting: int = 0
    open_sessions: int | None = None
    counts: Counts = field(default_factory=Counts)
    pools: tuple[Pool, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """A server at one moment; `notes` say what could not be had. None: it is not shown to who asks.

    `own` is what a router itself counts, without tiers. `sessions` as the API says them, at most `MOST_SESSIONS`.
    `open_sessions` are those of who is shown `sessions`, else of the workers that are reached.
    """

    url: str
    kind: str
    at_s: float
    own: Counts
    open_sessions: int | None
    sessions: tuple[Mapping[str, Any], ...] | None
    workers: tuple[WorkerSeen, ...] | None
    notes: tuple[str, ...] = ()

    @property
    def counted_by(self) -> str:
        """Who counted `counts`: a worker, a router's workers together, or where none is reached the router."""
        if self.kind == WORKER:
            return WORKER
        return WORKERS if _reached(self.workers) else ROUTER

    @property
    def counts(self) -> Counts:
        reached = _reached(self.workers)
        return sum((worker.counts for worker in reached), Counts()) if reached else self.own

    @property
    def running(self) -> int | None:
        return None if self.workers is None else sum(worker.running for worker in self.workers)

    @property
    def waiting(self) -> int | None:
        return None if self.workers is None else sum(worker.waiting for worker in self.workers)


def look(fetch: Fetch, url: str, at_s: float) -> Look:
    """Look at a router or a worker.

    Errors   CacheError(UNREACHABLE) when nobody is there, or somebody else
    Cost     three requests, and at a router one for each of its workers
    """
    metrics = _Metrics(fetch(url, "/metrics"))
    if metrics.has("agentcache_router_workers"):
        return _at_router(fetch, url, at_s, metrics)
    if metrics.has("agentcache_sessions_open"):
        return _at_worker(fetch, url, at_s, metrics)
    raise CacheError(
        Kind.UNREACHABLE, f"what answers at {url} is neither a router nor a worker: name one with --url"
    )


def _at_worker(fetch: Fetch, url: str, at_s: float, metrics: "_Metrics") -> Look:
    worker = _worker_seen(metrics, WorkerSeen(url.partition("://")[2]))
    sessions, _, notes = _sessions(fetch(url, "/v1/sessions"))
    return Look(url, WORKER, at_s, Counts(), worker.open_sessions, sessions, (worker,), notes)


def _at_router(fetch: Fetch, url: str, at_s: float, metrics: "_Metrics") -> Look:
    sessions, open_sessions, notes = _sessions(fetch(url, f"/v1/sessions?limit={MOST_SESSIONS}"))
    workers, unlisted = _workers(fetch, fetch(url, "/v1/workers"))
    own = Counts(
        metrics.value("agentcache_router_prompt_tokens_total"),
        {"": metrics.value("agentcache_router_reused_tokens_total")},
    )
    reached = _reached(workers)
    if sessions is None and reached:
        open_sessions = sum(worker.open_sessions or 0 for worker in reached)
    return Look(url, ROUTER, at_s, own, open_sessions, sessions, workers, notes + unlisted)


def _workers(fetch: Fetch, said: Said) -> tuple[tuple[WorkerSeen, ...] | None, tuple[str, ...]]:
    """The workers of a router, and what to say if they are not shown."""
    if said.status != 200:
        return None, (_refused("workers", said),)
    return tuple(_seen_by_router(fetch, one) for one in _objects(said.fields, "data")), ()


def _reached(workers: tuple[WorkerSeen, ...] | None) -> tuple[WorkerSeen, ...]:
    return tuple(worker for worker in workers or () if worker.reached)


def _sessions(said: Said) -> tuple[tuple[Mapping[str, Any], ...] | None, int | None, tuple[str, ...]]:
    """The sessions, how many there are, and what to say if they are not shown."""
    if said.status != 200:
        return None, None, (_refused("sessions", said),)
    found = _objects(said.fields, "data")
    return found[:MOST_SESSIONS], _whole(said.fields.get("open_sessions"), len(found)), ()


def _refused(what: str, said: Said) -> str:
    if said.status in (401, 403):
        return f"{what}: shown to whoever has a key for them (--key-file)"
    return f"{what}: not shown now (HTTP {said.status})"


def _seen_by_router(fetch: Fetch, said: Mapping[str, Any]) -> WorkerSeen:
    """A worker's own numbers where they can be had; its metrics are open to all."""
    name, state, role = (str(said.get(name, "")) for name in ("id", "state", "role"))
    who = WorkerSeen(name, state, role)
    if said.get("kind") == "agentcache" and said.get("alive"):
        try:
            metrics = _Metrics(fetch(str(said.get("url", "")), "/metrics"))
        except CacheError:
            metrics = _Metrics(Said(0, ""))
        if metrics.has("agentcache_sessions_open"):
            return _worker_seen(metrics, who)
    running, waiting = _whole(said.get("running")), _whole(said.get("waiting"))
    return replace(who, reached=False, running=running, waiting=waiting)


def _worker_seen(metrics: "_Metrics", who: WorkerSeen) -> WorkerSeen:
    cached = metrics.by_label("agentcache_cached_tokens_total", "cache_source")
    return replace(
        who,
        running=int(metrics.value("agentcache_num_running_reqs")),
        waiting=int(metrics.value("agentcache_num_queue_reqs")),
        open_sessions=int(metrics.value("agentcache_sessions_open")),
        counts=Counts(metrics.value("agentcache_prompt_tokens_total"), cached),
        pools=tuple(metrics.pools()),
    )


class _Metrics:
    """The samples of a `/metrics`; none where it is no such text."""

    def __init__(self, said: Said) -> None:
        self._samples: dict[str, list[Sample]] = {}
        try:
            families = list(text_string_to_metric_families(said.text)) if said.status == 200 else []
        except (ValueError, KeyError, IndexError):
            families = []
        for family in families:
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append(sample)

    def has(self, name: str) -> bool:
        return name in self._samples

    def value(self, name: str) -> float:
        """The sum over all labels; 0 where there is none."""
        return sum(sample.value for sample in self._samples.get(name, ()))

    def by_label(self, name: str, label: str) -> dict[str, float]:
        return {sample.labels.get(label, ""): sample.value for sample in self._samples.get(name, ())}

    def pools(self) -> Iterator[Pool]:
        found: dict[tuple[str, str], dict[str, int]] = {}
        for sample in self._samples.get("agentcache_pool_slots", ()):
            labels = sample.labels
            if labels.get("state") in _STATES:
                named = labels.get("component", ""), labels.get("tier", "")
                found.setdefault(named, {})[labels["state"]] = int(sample.value)
        return (Pool(component, tier, slots) for (component, tier), slots in found.items())


def _objects(fields: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    found = fields.get(name)
    return tuple(one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()


def _whole(value: object, other: int = 0) -> int:
    return value if isinstance(value, int) else other
