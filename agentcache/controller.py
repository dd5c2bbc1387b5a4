"""Jobs in flight: where their slots come from, and where they go when less arrives than was sent."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from agentcache.pools.api import Pool
from agentcache.tiers.api import JobResult, Tier, Transfer
from agentcache.types import NO_SLOTS, Job, Piece, PoolName, Slots, TierName


class HybridCacheController:
    """Hands the core's jobs to a tier with destination slots, and owns those slots until the job ends.

    A piece that finds no slots stays out of the transfer; a job may end with nothing landed. Both are ordinary.
    """

    def __init__(self, tier: Tier, pools: Mapping[PoolName, Pool]) -> None:
        self._tier = tier
        self._pools = pools
        self._flights: dict[int, Transfer] = {}

    def submit(self, job: Job) -> None:
        """Start a job. Never fails: what cannot be placed is not moved."""
        transfer = Transfer(job, tuple(self._placed(job)))
        self._flights[job.number] = transfer
        if job.target is TierName.DEVICE:
            self._tier.submit_load(transfer)
        else:
            self._tier.submit_store(transfer)

    def poll(self) -> tuple[JobResult, ...]:
        """Jobs that ended. Slots of what did not land are free again; those of what landed are the caller's."""
        results = self._tier.poll()
        for result in results:
            sent = _by_pool(result.job.target, self._flights.pop(result.job.number).targets)
            landed = _by_pool(result.job.target, result.landed)
            for name, slots in sent.items():
                self._pools[name].free(np.setdiff1d(slots, landed.get(name, NO_SLOTS)))
        return results

    def drain(self) -> None:
        """Let every job end; the next `poll` reports them."""
        self._tier.drain()

    @property
    def idle(self) -> bool:
        """No job is in flight."""
        return not self._flights

    def in_flight(self, name: PoolName) -> Slots:
        """Destination slots in this pool of jobs that no poll has reported."""
        flights = self._flights.values()
        held = [_by_pool(flight.job.target, flight.targets).get(name, NO_SLOTS) for flight in flights]
        return np.concatenate([NO_SLOTS, *held])

    def _placed(self, job: Job) -> Iterator[Piece]:
        for piece in job.pieces:
            if job.target is TierName.EXTERNAL:
                yield replace(piece, slots=NO_SLOTS)
                continue
            slots = self._pools[PoolName(piece.component, job.target)].alloc(piece.slots.size)
            if slots is not None:
                yield replace(piece, slots=slots)


def _by_pool(tier: TierName, pieces: tuple[Piece, ...]) -> dict[PoolName, Slots]:
    slots: dict[PoolName, Slots] = {}
    for piece in pieces:
        if piece.slots.size:
            name = PoolName(piece.component, tier)
            slots[name] = np.concatenate([slots.get(name, NO_SLOTS), piece.slots])
    return slots
