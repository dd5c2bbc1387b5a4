"""Jobs in flight: who carries them, where their slots come from, and where they go when less arrives than was sent."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from agentcache.pools.api import Pool
from agentcache.tiers.api import ABSENT, ExternalTier, JobResult, Keep, Tier, Transfer
from agentcache.types import NO_SLOTS, ComponentName, Job, Piece, PoolName, Slots, TierName

DEVICE, HOST, EXTERNAL = TierName.DEVICE, TierName.HOST, TierName.EXTERNAL


@dataclass(frozen=True, slots=True)
class Names:
    """What an external tier needs of a path: its pages' chained hashes from the root on, and their soft class."""

    hashes: tuple[bytes, ...] = ()
    keep: Keep = Keep.LOOSE


UNNAMED = Names()


class HybridCacheController:
    """Hands jobs to the host or the external tier with destination slots, and owns those slots until the job ends.

    The tree's jobs come by `submit`; a load to the device is held until somebody has made room and says `start`. Loads
    from outside are ours (`fetch`): the tree knows nothing of them until what arrived is grafted. A piece that finds no
    slots stays out of its transfer; a job may end with nothing landed. Both are ordinary. `external` is the external
    tier, for questions; `has_external` whether one is attached, reachable or not.
    """

    def __init__(self, host: Tier, external: ExternalTier, pools: Mapping[PoolName, Pool]) -> None:
        self._host = host
        self._pools = pools
        self._held: dict[int, Job] = {}
        self._flights: dict[int, Transfer] = {}
        self._ended: list[JobResult] = []
        self._fetched: list[JobResult] = []
        self._fetches = count(-1, -1)
        self._attach(external)

    # jobs of the tree

    def submit(self, job: Job, names: Names = UNNAMED) -> None:
        """Start a job, or hold a load until `start`. Never fails: what cannot be placed is not moved."""
        if job.target is DEVICE:
            self._held[job.number] = job
        elif job.target is EXTERNAL:
            self._launch(Transfer(job, job.pieces, names.hashes, names.keep))
        else:
            self._launch(Transfer(job, tuple(_placed(job, self._pools))))

    def held(self, number: int) -> Mapping[ComponentName, int] | None:
        """The slots that a held load needs; None when it is not held (any more)."""
        job = self._held.get(number)
        if job is None:
            return None
        needs: Counter[ComponentName] = Counter()
        for piece in job.pieces:
            needs[piece.component] += int(piece.slots.size)
        return needs

    def start(self, number: int) -> None:
        """Let a held load go."""
        job = self._held.pop(number)
        self._launch(Transfer(job, tuple(_placed(job, self._pools))))

    def cancel(self, number: int) -> None:
        """End a job early, held or in flight; the next poll reports it. Unknown numbers have ended already."""
        job = self._held.pop(number, None)
        if job:
            self._ended.append(JobResult(job, ()))
        elif number in self._flights:
            self._carrier(self._flights[number].job).cancel(number)

    def poll(self) -> tuple[JobResult, ...]:
        """Jobs of the tree that ended. Slots of what did not land are free again, those of what did the caller's."""
        ended = [*self._ended, *self._host.poll(), *self.external.poll()]
        self._ended.clear()
        for result in ended:
            self._settle(result)
        self._fetched += [result for result in ended if result.job.number < 0]
        return tuple(result for result in ended if result.job.number > 0)

    # loads from outside

    def fetch(self, pieces: tuple[Piece, ...], target: TierName, names: Names) -> int:
        """Load pieces into slots that the caller has taken for them; answers a number for `cancel` and `is_out`."""
        bare = tuple(replace(piece, slots=NO_SLOTS) for piece in pieces)
        job = Job(next(self._fetches), EXTERNAL, target, bare)
        self._launch(Transfer(job, pieces, names.hashes, names.keep))
        return job.number

    def fetched(self) -> tuple[JobResult, ...]:
        """Loads from outside that `poll` found ended; their landed slots are the caller's from now on."""
        fetched = tuple(self._fetched)
        self._fetched.clear()
        return fetched

    # the whole

    def drain(self) -> None:
        """Let every job end; the next `poll` reports them. Held loads end with nothing."""
        for number in tuple(self._held):
            self.cancel(number)
        self._host.drain()
        self.external.drain()

    def replace_external(self, tier: ExternalTier) -> None:
        """Go on with another external tier; the jobs of the old one end with what has landed."""
        self.external.close()
        self._ended += self.external.poll()
        self._attach(tier)

    def close(self) -> None:
        """Close both tiers; what was out ends."""
        self._host.close()
        self.external.close()

    @property
    def jobs_out(self) -> int:
        """Jobs that no poll has reported."""
        return len(self._held) + len(self._flights) + len(self._ended) + len(self._fetched)

    def is_out(self, number: int) -> bool:
        """Whether this job has not been reported."""
        return number in self._held or number in self._flights

    def uses(self, tier: TierName) -> bool:
        """Whether a job in flight reads or fills slots of a tier."""
        return any(tier in (flight.job.source, flight.job.target) for flight in self._flights.values())

    def leaving(self, component: ComponentName) -> int:
        """Device slots that come free when the demotions in flight have ended."""
        jobs = [flight.job for flight in self._flights.values() if flight.job.leaving]
        return sum(piece.slots.size for job in jobs for piece in job.pieces if piece.component == component)

    def in_flight(self, name: PoolName) -> Slots:
        """Destination slots in this pool of jobs that no poll has reported."""
        owed = [_by_pool(flight.job.target, flight.targets) for flight in self._flights.values()]
        owed += [_by_pool(result.job.target, result.landed) for result in self._fetched]
        return np.concatenate([NO_SLOTS, *(held.get(name, NO_SLOTS) for held in owed)])

    def _attach(self, tier: ExternalTier) -> None:
        self.external = tier
        self.has_external = tier.status().state != ABSENT

    def _launch(self, transfer: Transfer) -> None:
        job = transfer.job
        self._flights[job.number] = transfer
        carrier = self._carrier(job)
        if job.source is EXTERNAL or job.target is DEVICE:
            carrier.submit_load(transfer)
        else:
            carrier.submit_store(transfer)

    def _carrier(self, job: Job) -> Tier:
        return self.external if EXTERNAL in (job.source, job.target) else self._host

    def _settle(self, result: JobResult) -> None:
        flight = self._flights.pop(result.job.number, None)
        if flight is None or result.job.target is EXTERNAL:
            return  # never left, or took no slots
        sent = _by_pool(result.job.target, flight.targets)
        landed = _by_pool(result.job.target, result.landed)
        for name, slots in sent.items():
            arrived = landed.get(name, NO_SLOTS)
            if not np.array_equal(slots, arrived):
                self._pools[name].free(np.setdiff1d(slots, arrived))


def _placed(job: Job, pools: Mapping[PoolName, Pool]) -> Iterator[Piece]:
    """The job's pieces with slots of the target, those that find some."""
    for piece in job.pieces:
        slots = pools[PoolName(piece.component, job.target)].alloc(piece.slots.size)
        if slots is not None:
            yield replace(piece, slots=slots)


def _by_pool(tier: TierName, pieces: tuple[Piece, ...]) -> dict[PoolName, Slots]:
    slots: dict[PoolName, Slots] = {}
    for piece in pieces:
        if piece.slots.size and tier is not EXTERNAL:
            name = PoolName(piece.component, tier)
            slots[name] = np.concatenate([slots.get(name, NO_SLOTS), piece.slots])
    return slots
