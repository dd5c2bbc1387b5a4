"""The contract of a pool: slots of one component on one tier. No bytes, no order, no owners but free and used."""

from typing import Protocol

from agentcache.types import PoolName, Slots


class Pool(Protocol):
    """Slots `0 … size-1`, each free or used.

    Caller       frees each allocated slot exactly once
    Implementer  all or nothing; a refused call changes nothing
    """

    @property
    def name(self) -> PoolName: ...

    @property
    def size(self) -> int: ...

    @property
    def free_slots(self) -> int: ...

    def alloc(self, count: int) -> Slots | None:
        """`count` slots, or None when fewer are free: being full is a value."""

    def free(self, slots: Slots) -> None:
        """Give slots back. Errors: SLOT_MISUSE for one that is not in use."""

    def used(self) -> Slots:
        """All used slots, ascending; for checks. Cost O(size)."""
