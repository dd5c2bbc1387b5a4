"""The contract of a tier: where bytes live below the device, seen as a queue of jobs.

A tier never decides what moves (the tree does) and owns no slots (the controller does). It copies, later, and says
what arrived.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agentcache.types import ComponentName, Job, Piece, Slots, TierName
from agentcache.views import ABSENT as ABSENT
from agentcache.views import ExternalStatus as ExternalStatus


class Presence(StrEnum):
    """The answer to a lookup."""

    MISS = "miss"
    HIT = "hit"  # a hint: it may be gone, or spoilt, once it is loaded
    PENDING = "pending"  # being asked, or being written: ask again after a poll
    RETRY = "retry"  # could not be asked now (slow, reconnecting): not a miss, not worth waiting for


class Keep(StrEnum):
    """The soft class of an external object: what no open session references leaves first."""

    LOOSE = "loose"
    REFERENCED = "referenced"


@dataclass(frozen=True, slots=True)
class Transfer:
    """A job and where to put it: `targets` are pieces of `job.pieces` with slots of the job's target tier.

    A piece of the job without a target (no slot was free there) is not moved. A job to EXTERNAL has no slots there: its
    targets carry those of the source. `hashes` are the chained hashes of the path's pages, from the root on
    (`keys.page_hashes`), for jobs from and to EXTERNAL; the page or state that ends at `end` is named by
    `hashes[end // page_tokens - 1]`.
    """

    job: Job
    targets: tuple[Piece, ...]
    hashes: tuple[bytes, ...] = ()
    keep: Keep = Keep.LOOSE


@dataclass(frozen=True, slots=True)
class JobResult:
    """What arrived: pieces, or parts of pieces, of the transfer's targets. Empty: nothing did."""

    job: Job
    landed: tuple[Piece, ...]


class SlotBytes(Protocol):
    """The bytes of one pool by slot: `parts` tensors, layer by layer, those of its sidecars last.

    A sidecar has no slots of its own: it lies in its source pool's, and moves when they do.
    """

    @property
    def layout(self) -> str:
        """What the bytes of a slot mean; equal layouts may exchange payloads."""

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot, sidecars included; 0 in accounting pools."""

    @property
    def parts(self) -> int: ...

    def copy_part(self, part: int, slots: Slots, target: "SlotBytes", target_slots: Slots) -> None:
        """Copy one part of these slots into the same part of another pool of this layout."""

    def read(self, slot: int) -> bytes:
        """A copy of all parts of one slot. Shapes: `slot_bytes` bytes."""

    def write(self, slot: int, payload: bytes | memoryview) -> None:
        """Fill one slot. Caller: `payload` has `slot_bytes` bytes."""


class Tier(Protocol):
    """A job queue. No call blocks; a job is reported by `poll` exactly once, however it ended.

    Caller       keeps source and target slots untouched from submit until `poll` reports the job; one thread
    Implementer  reports no half-written page or state as landed, and touches no slot of a job that it has reported;
                 a fault is a smaller `landed`, never an exception
    """

    @property
    def name(self) -> TierName: ...

    def lookup(self, wanted: Sequence[tuple[ComponentName, bytes]]) -> tuple[Presence, ...]:
        """Whether the page (or the state at its end) with each chained hash is held; one answer each.

        Implementer  PENDING ends by itself: as HIT, MISS or RETRY
        """

    def submit_load(self, transfer: Transfer) -> None:
        """Queue a copy from this tier."""

    def submit_store(self, transfer: Transfer) -> None:
        """Queue a copy to this tier."""

    def cancel(self, number: int) -> None:
        """End a job early: the next poll reports it with what has landed. Unknown numbers have ended already."""

    def poll(self) -> tuple[JobResult, ...]:
        """Jobs that ended since the last poll, in the order of their end."""

    def drain(self) -> None:
        """Let no job wait any longer: one `poll` then reports every job submitted before (shutdown, tests)."""

    def close(self) -> None:
        """Let go of threads and connections, once. Jobs still out end as cancelled; later ones end with nothing."""


class ExternalTier(Tier, Protocol):
    """A tier beyond this process, which may be slow, lie or vanish."""

    def retain(self, names: Sequence[str], keep: Keep) -> None:
        """Move objects (`keys.object_name`) to a soft class, later, where the backend has classes; best effort."""

    def status(self) -> ExternalStatus:
        """What is known without asking the backend. Never blocks."""
