"""The contract of a store: where an external tier keeps its objects. Synchronous, slow at times, and fallible.

Only the threads of an external tier call it, several at once; the tier brings the deadline, the breaker and the check
of what comes back. An object is written whole or not at all, and never changed: its name says what is in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentcache.tiers.api import Keep


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """A backend's own figures; None where it cannot say."""

    address: str
    objects: int | None = None
    used_bytes: int | None = None
    capacity_bytes: int | None = None


class BlobStore(Protocol):
    """Named objects under a cap.

    Implementer  an object that is there is whole; beyond the cap old objects leave, LOOSE ones first where the backend
                 has classes, and in a class those that were not used for longest; the order of answers is that of
                 the names
    Errors       CacheError(STORE_FAILED), of every call but `close`: nothing is known of what was asked
    """

    @property
    def name(self) -> str:
        """The backend's name: file, redis, mooncake, memory."""

    def exists(self, names: Sequence[str]) -> list[bool]:
        """Which objects are there, as far as the backend knows."""

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Objects, None for those that are not there. Reading counts as use."""

    def put(self, objects: Sequence[tuple[str, bytes]], keep: Keep) -> list[bool]:
        """Keep objects; False for one that found no room. One that is there already stays as it is: True."""

    def retain(self, names: Sequence[str], keep: Keep | None) -> None:
        """Move those that are there to a soft class; does nothing where the backend has none.

        None: each was used now, the first one first, and stays in its class.
        """

    def remove(self, names: Sequence[str]) -> None:
        """Drop objects (found to be spoilt)."""

    def status(self) -> StoreStatus: ...

    def close(self) -> None:
        """Let go of files, connections and servers that are ours. Idempotent, never fails."""
