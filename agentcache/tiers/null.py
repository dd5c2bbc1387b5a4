"""The absent tier."""

from agentcache.tiers.api import JobResult, Presence, Transfer
from agentcache.types import ComponentName, TierName


class NullTier:
    """Holds nothing, ever: each job ends at the next poll with nothing landed."""

    def __init__(self, name: TierName = TierName.HOST) -> None:
        self._name = name
        self._ended: list[JobResult] = []

    @property
    def name(self) -> TierName:
        return self._name

    def lookup(self, component: ComponentName, hashes: tuple[bytes, ...]) -> tuple[Presence, ...]:
        return (Presence.MISS,) * len(hashes)

    def submit_load(self, transfer: Transfer) -> None:
        self._ended.append(JobResult(transfer.job, ()))

    def submit_store(self, transfer: Transfer) -> None:
        self._ended.append(JobResult(transfer.job, ()))

    def poll(self) -> tuple[JobResult, ...]:
        ended = tuple(self._ended)
        self._ended.clear()
        return ended

    def drain(self) -> None:
        """Nothing ever waits."""
