"""The contract of a tier: where bytes live below the device, seen as a queue of jobs.

A tier never decides what moves (the tree does) and owns no slots (the controller does). It copies, later, and says
what arrived.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agentcache.types import ComponentName, Job, Piece, TierName


class Presence(StrEnum):
    """The answer to a lookup."""

    MISS = "miss"
    HIT = "hit"
    PENDING = "pending"  # being written: ask again after a poll
    RETRY = "retry"  # could not be asked now (slow, reconnecting): not a miss, not worth waiting for


@dataclass(frozen=True, slots=True)
class Transfer:
    """A job and where to put it: `targets` are pieces of `job.pieces` with slots of the job's target tier.

    A piece of the job without a target (no slot was free there) is not moved.
    """

    job: Job
    targets: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class JobResult:
    """What arrived: pieces, or leading parts of pieces, of the transfer's targets. Empty: nothing did."""

    job: Job
    landed: tuple[Piece, ...]


class Tier(Protocol):
    """A job queue. No call blocks; a job is reported by `poll` exactly once, however it ended.

    Caller       keeps source and target slots untouched from submit until `poll` reports the job
    Implementer  reports no half-written page or state as landed; a fault is a smaller `landed`, never an exception
    """

    @property
    def name(self) -> TierName: ...

    def lookup(self, component: ComponentName, hashes: tuple[bytes, ...]) -> tuple[Presence, ...]:
        """Whether the pages (or the states at their ends) with these chained hashes are held; one answer each."""

    def submit_load(self, transfer: Transfer) -> None:
        """Queue a copy from this tier."""

    def submit_store(self, transfer: Transfer) -> None:
        """Queue a copy to this tier."""

    def poll(self) -> tuple[JobResult, ...]:
        """Jobs that ended since the last poll, in the order of their end."""

    def drain(self) -> None:
        """Let no job wait any longer: one `poll` then reports every job submitted before (shutdown, tests)."""
