"""What sessions and requests still hold at a worker, read from its sessions API and its metrics."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from agentcache.replay.client import WorkerClient


@dataclass(frozen=True, slots=True)
class References:
    """Ids of open sessions, their markers, the slots these keep referenced, and requests that hold a lease."""

    sessions: frozenset[str]
    markers: int
    slots: int
    leases: int

    @property
    def left(self) -> int:
        """All that must be 0 once every session is closed and every request answered."""
        return len(self.sessions) + self.markers + self.slots + self.leases


async def read_references(client: WorkerClient) -> References:
    """Ask the worker now."""
    said = await client.sessions()
    slots, leases = _held(await client.metrics())
    names = frozenset(str(session["session_id"]) for session in said["data"])
    return References(names, int(said["open_references"]), slots, leases)


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
