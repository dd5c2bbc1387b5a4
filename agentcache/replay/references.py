"""What sessions and requests still hold: at the address that agents use, and at every worker behind it."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from agentcache.replay.client import WorkerClient


@dataclass(frozen=True, slots=True)
class Site:
    """Where a replay runs: the address that it asks, and the workers that answer (for a worker alone: itself)."""

    front: WorkerClient
    workers: tuple[WorkerClient, ...]

    async def flush(self) -> None:
        """Empty every cache, so that a pass starts cold. Sessions and their ids stay."""
        for worker in self.workers:
            await worker.flush()


@dataclass(frozen=True, slots=True)
class References:
    """Ids of open sessions, their markers, the slots these keep referenced, and requests that hold a lease.

    `by_worker` counts the open sessions of each worker.
    """

    sessions: frozenset[str]
    markers: int
    slots: int
    leases: int
    by_worker: tuple[int, ...] = ()

    @property
    def left(self) -> int:
        """All that must be 0 once every session is closed and every request answered."""
        return len(self.sessions) + self.markers + self.slots + self.leases


async def read_references(site: Site) -> References:
    """Ask now, the front and every worker."""
    names = set(await _names(site.front))
    markers = slots = leases = 0
    by_worker: list[int] = []
    for worker in site.workers:
        said = await worker.sessions()
        here = {str(session["session_id"]) for session in said["data"]}
        names |= here
        by_worker.append(len(here))
        markers += int(said["open_references"])
        more = _held(await worker.metrics())
        slots, leases = slots + more[0], leases + more[1]
    return References(frozenset(names), markers, slots, leases, tuple(by_worker))


async def _names(front: WorkerClient) -> list[str]:
    return [str(session["session_id"]) for session in (await front.sessions())["data"]]


def _held(metrics: str) -> tuple[int, int]:
    """Referenced slots of all pools and tiers, and active turns."""
    slots = leases = 0
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == "agentcache_pool_slots" and sample.labels["state"] == "referenced":
                slots += int(sample.value)
            if sample.name == "agentcache_active_turns":
                leases += int(sample.value)
    return slots, leases
