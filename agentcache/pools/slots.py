"""The free list of a pool. Pages (FULL, SWA) and states (MAMBA) are slots alike, so there is one of it."""

import numpy as np
from numpy.typing import NDArray

from agentcache.errors import CacheError, Kind
from agentcache.types import PoolName, Slots


class SlotPool:
    """Slots `0 … size-1` on a stack: the lowest are handed out first, freed ones again before fresh ones.

        stack   [ free, the next one last … | junk of used slots ]
                                            ^ free_slots

    Accounting pools are this alone; pools with bytes index their tensors with the same slots.
    """

    def __init__(self, name: PoolName, size: int) -> None:
        if size < 1:
            raise CacheError(Kind.BAD_CONFIG, "a pool needs at least one slot", pool=_label(name), size=size)
        self._name = name
        self._stack: Slots = np.arange(size - 1, -1, -1, dtype=np.int32)
        self._free_slots = size
        self._used: NDArray[np.bool_] = np.zeros(size, dtype=np.bool_)

    @property
    def name(self) -> PoolName:
        return self._name

    @property
    def size(self) -> int:
        return int(self._stack.size)

    @property
    def free_slots(self) -> int:
        return self._free_slots

    def alloc(self, count: int) -> Slots | None:
        """`count` slots (a copy, no view of the pool), or None when fewer are free. Cost O(count)."""
        if count < 0:
            raise CacheError(Kind.SLOT_MISUSE, "cannot allocate fewer than 0 slots", pool=_label(self._name))
        if count > self._free_slots:
            return None
        self._free_slots -= count
        slots: Slots = self._stack[self._free_slots : self._free_slots + count][::-1].copy()
        self._used[slots] = True
        return slots

    def free(self, slots: Slots) -> None:
        """Give slots back, all or none. Errors: SLOT_MISUSE for one not in use or named twice. Cost O(n log n)."""
        self._require_used(slots)
        self._used[slots] = False
        self._stack[self._free_slots : self._free_slots + slots.size] = slots[::-1]
        self._free_slots += int(slots.size)

    def used(self) -> Slots:
        """All used slots, ascending. Cost O(size)."""
        return np.flatnonzero(self._used).astype(np.int32)

    def _require_used(self, slots: Slots) -> None:
        if not slots.size:
            return
        ordered = np.sort(slots)
        known = ordered[0] >= 0 and ordered[-1] < self.size
        if not known or not self._used[slots].all() or (ordered[1:] == ordered[:-1]).any():
            raise CacheError(
                Kind.SLOT_MISUSE,
                "a slot was freed twice or never allocated; nothing was freed",
                pool=_label(self._name),
                slots=slots.tolist(),
            )


def _label(name: PoolName) -> str:
    return f"{name.component}/{name.tier}"
