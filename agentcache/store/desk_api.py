"""What a session store promises to workers; times, generations and errors are those of `api.py`, which has it all."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agentcache.store.names import SessionRef
from agentcache.wire import Notice, Receipt, WorkerCard, WorkerLoad


@dataclass(frozen=True, slots=True)
class Offer:
    """A session that a worker knows, told after the store lost data or the worker lost notices. `idle_s`: since use.

    `prefill`: the worker computes prompts only, and never has a session.
    """

    ref: SessionRef
    generation: int
    placement: int
    idle_s: float
    ttl_s: float
    parent: str = ""
    prefill: bool = False


class OfferVerdict(StrEnum):
    KEEP = "keep"  # it is yours, or was created again
    HELD = "held"  # open, and another worker has it: you may keep what you have until MOVED comes
    CLOSED = "closed"  # through `generation`
    MOVED = "moved"  # open, another worker has it and has registered: release
    GONE = "gone"  # it ended while you were away, and nothing was lost: release


@dataclass(frozen=True, slots=True)
class Offered:
    verdict: OfferVerdict
    generation: int = 0
    placement: int = 0


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to a heartbeat. `known` False: register again. An `epoch` that is new: offer what you have.

    `unswept_s` is how long ago a router last swept: one that lives does so all the time.
    """

    known: bool
    epoch: str
    unswept_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Mail:
    """Notices after a cursor, oldest first. `gap`: some were lost before them; offer what you have."""

    notices: tuple[Notice, ...] = ()
    cursor: str = ""
    gap: bool = False


class WorkerDesk(Protocol):
    """What a worker tells and asks. Its cursor lives in its own memory; a start begins at the end of its stream."""

    async def register(self, card: WorkerCard) -> str:
        """Take a worker in; answers the epoch. A new incarnation: notices for the old one are answered `restarted`."""

    async def heartbeat(self, worker: str, incarnation: str, highest: int, load: WorkerLoad) -> Beat:
        """Still there. `highest`: the highest generation seen in any tag; generations rise above it."""

    async def leave(self, worker: str, incarnation: str) -> None:
        """Going away in order: as a new incarnation; the worker is no longer listed, and its streams are gone."""

    async def offer(self, worker: str, offers: Sequence[Offer], lost: bool) -> tuple[Offered, ...]:
        """Compare what a worker has with what is known. `lost`: the epoch changed, so unknown ids are created again.

        A live record wins; a generation at or below the one through which the session was closed last is CLOSED, even
        where it is open again.
        """

    async def mail(self, worker: str, shard: int, cursor: str, wait_s: float) -> Mail:
        """Notices of one shard after `cursor` ("" : the end of the stream now, at once). Waits at most `wait_s`."""

    async def receipt(self, receipt: Receipt) -> None:
        """The answer to a notice; expiries and closes go on from it. Twice is once."""

    @property
    def shards(self) -> int:
        """How many streams a worker reads."""
