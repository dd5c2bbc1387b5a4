"""Host memory as a tier: copies between the device's slots and its own, run by a lane, reported whole or not at all."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import structlog

from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import JobResult, Presence, SlotBytes, Transfer
from agentcache.tiers.lanes import CANCELLED, CLOSED, Copying, Lane, Step
from agentcache.types import ComponentName, Job, Piece, PoolName, Slots, TierName

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Flight:
    transfer: Transfer
    copying: Copying
    steps: int

    @property
    def result(self) -> JobResult:
        whole = self.copying.completed == self.steps and not self.copying.fault
        return JobResult(self.transfer.job, self.transfer.targets if whole else ())


class HostTier:
    """Copies layer by layer: the first part of all pieces, then the second; sidecars are the last parts.

    A transfer lands whole or not at all, so a piece whose sidecars did not arrive has not, either.
    Caller  `pools` has the bytes of every component on both tiers; equal layouts. Errors: CacheError(BAD_CONFIG)
    """

    name = TierName.HOST

    def __init__(self, lane: Lane, pools: Mapping[PoolName, SlotBytes]) -> None:
        _require_twins(pools)
        self._lane = lane
        self._pools = pools
        self._flights: dict[int, _Flight] = {}
        self._ended: list[JobResult] = []

    def lookup(self, wanted: Sequence[tuple[ComponentName, bytes]]) -> tuple[Presence, ...]:
        """Misses: what the host holds is written in the tree."""
        return (Presence.MISS,) * len(wanted)

    def submit_load(self, transfer: Transfer) -> None:
        """Queue a copy from the host to the device."""
        self._submit(transfer)

    def submit_store(self, transfer: Transfer) -> None:
        """Queue a copy from the device to the host."""
        self._submit(transfer)

    def cancel(self, number: int) -> None:
        """End a copy that waits; one that runs is not cut short."""
        self._collect()
        if number in self._flights:
            self._flights[number].copying.cancel()
            self._collect()

    def poll(self) -> tuple[JobResult, ...]:
        self._collect()
        ended = tuple(self._ended)
        self._ended.clear()
        return ended

    def drain(self) -> None:
        self._lane.drain()

    def close(self) -> None:
        self._lane.close()

    def _submit(self, transfer: Transfer) -> None:
        steps = tuple(self._steps(transfer))
        self._flights[transfer.job.number] = _Flight(transfer, self._lane.run(steps), len(steps))

    def _steps(self, transfer: Transfer) -> Iterator[Step]:
        job = transfer.job
        moves = [
            (
                self._pools[PoolName(target.component, job.source)],
                source_slots(job, target),
                self._pools[PoolName(target.component, job.target)],
                target.slots,
            )
            for target in transfer.targets
        ]
        for part in range(max((pool.parts for pool, *_ in moves), default=0)):
            for source, slots, pool, target_slots in moves:
                if part < source.parts:
                    yield partial(source.copy_part, part, slots, pool, target_slots)

    def _collect(self) -> None:
        """Move the flights that ended to what the next poll reports: an end is seen once."""
        for number, flight in [*self._flights.items()]:
            if flight.copying.ended:
                del self._flights[number]
                self._ended.append(flight.result)
                if flight.copying.fault:
                    say = log.debug if flight.copying.fault in (CANCELLED, CLOSED) else log.warning
                    say("copy_incomplete", job=number, reason=flight.copying.fault)


def source_slots(job: Job, target: Piece) -> Slots:
    """The slots of the job's pieces that belong to a target: the same component, and the same tokens or state.

    Errors  CacheError(BAD_INSERT) for a target that is no part of the job
    """
    for piece in job.pieces:
        if piece.component == target.component and piece.start <= target.start <= target.end <= piece.end:
            slots = _within(piece, target)
            if slots.size == target.slots.size:
                return slots
    raise CacheError(Kind.BAD_INSERT, "a target that is no part of its job", job=job.number, target=target)


def _within(piece: Piece, target: Piece) -> Slots:
    if piece.start == piece.end:
        return piece.slots
    if target.start == target.end:
        return np.empty(0, dtype=np.int32)  # a state is no part of pages
    page_tokens = (piece.end - piece.start) // piece.slots.size
    return piece.slots[
        (target.start - piece.start) // page_tokens : (target.end - piece.start) // page_tokens
    ]


def _require_twins(pools: Mapping[PoolName, SlotBytes]) -> None:
    for name, pool in pools.items():
        twin = pools.get(PoolName(name.component, TierName.HOST), pool)
        if twin.layout != pool.layout:
            raise CacheError(
                Kind.BAD_CONFIG,
                "the device's and the host's slots of one component must have one layout",
                component=name.component,
                device=pool.layout,
                host=twin.layout,
            )
