"""The absent tier, and the bytes that accounting pools do not have."""

from collections.abc import Sequence

from agentcache.tiers.api import ABSENT, ExternalStatus, JobResult, Keep, Presence, SlotBytes, Transfer
from agentcache.types import ComponentName, Slots, TierName


class NullTier:
    """Holds nothing, ever: each job ends at the next poll with nothing landed."""

    def __init__(self, name: TierName = TierName.HOST) -> None:
        self._name = name
        self._ended: list[JobResult] = []

    @property
    def name(self) -> TierName:
        return self._name

    def lookup(self, wanted: Sequence[tuple[ComponentName, bytes]]) -> tuple[Presence, ...]:
        return (Presence.MISS,) * len(wanted)

    def submit_load(self, transfer: Transfer) -> None:
        self._ended.append(JobResult(transfer.job, ()))

    def submit_store(self, transfer: Transfer) -> None:
        self._ended.append(JobResult(transfer.job, ()))

    def cancel(self, number: int) -> None:
        """Nothing runs."""

    def poll(self) -> tuple[JobResult, ...]:
        ended = tuple(self._ended)
        self._ended.clear()
        return ended

    def drain(self) -> None:
        """Nothing ever waits."""

    def close(self) -> None:
        """Nothing is open."""

    def retain(self, names: Sequence[str], keep: Keep) -> None:
        """Nothing is held."""

    def status(self) -> ExternalStatus:
        return ExternalStatus(backend="none", state=ABSENT)


class NoBytes:
    """The bytes of a pool that only counts."""

    layout = ""
    slot_bytes = 0
    parts = 0

    def copy_part(self, part: int, slots: Slots, target: SlotBytes, target_slots: Slots) -> None:
        """Nothing to copy."""

    def read(self, slot: int) -> bytes:
        return b""

    def write(self, slot: int, payload: bytes | memoryview) -> None:
        """Nothing to keep."""
