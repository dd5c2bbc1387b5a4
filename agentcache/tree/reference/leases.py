"""Leases: which positions running requests depend on."""

from dataclasses import dataclass

from agentcache.errors import CacheError, Kind
from agentcache.tree.instances import first_number
from agentcache.tree.reference.changes import slots_of
from agentcache.tree.reference.node import Node, region_nodes
from agentcache.tree.reference.trie import PageTrie
from agentcache.types import (
    FULL,
    Boundary,
    ComponentName,
    Lease,
    Locked,
    Piece,
    Region,
    TierName,
)


@dataclass(slots=True)
class LeaseRecord:
    """A lease's boundary, and per component the absolute region that it still covers."""

    node: Node
    regions: dict[ComponentName, Region]


class LeaseTable:
    """Lock counts per position, added and taken back by retracing the recorded regions."""

    def __init__(self, trie: PageTrie) -> None:
        self._trie = trie
        self._records: dict[int, LeaseRecord] = {}
        self._next = first_number(trie.instance)

    def __len__(self) -> int:
        return len(self._records)

    def records(self) -> list[LeaseRecord]:
        return list(self._records.values())

    def record(self, lease: Lease) -> LeaseRecord:
        """Errors: LEASE_REUSED."""
        if lease.number not in self._records:
            raise CacheError(
                Kind.LEASE_REUSED, "this lease is not outstanding; release a lease once", number=lease.number
            )
        return self._records[lease.number]

    def lock(self, boundary: Boundary) -> Locked:
        return self._cover(Lease(self._next), boundary)

    def relock(self, lease: Lease, boundary: Boundary) -> Locked:
        before = self.record(lease)
        locked = self._cover(lease, boundary)
        self._count(before, -1)
        return locked

    def lock_device_part(self, node: Node, device_end: int) -> Lease:
        """Lease what a load finds on the device already: the regions at `node`, cut at `device_end`."""
        record = LeaseRecord(node, {})
        while record.node.end > device_end:
            record.node = record.node.above
        for component in self._trie.components:
            region = component.region(node.end)
            if region.start < device_end or (component.is_state and region.end == device_end):
                record.regions[component.name] = Region(region.start, min(region.end, device_end))
        return self._enter(Lease(self._next), record)

    def unlock(self, lease: Lease, component: ComponentName | None) -> None:
        record = self.record(lease)
        if component is None:
            self._count(record, -1)
            del self._records[lease.number]
            return
        self._trie.component(component)
        if component == FULL:
            raise CacheError(
                Kind.UNKNOWN_COMPONENT, "FULL is released with the whole lease, not alone", asked=FULL
            )
        if component in record.regions:
            early = LeaseRecord(record.node, {component: record.regions.pop(component)})
            self._count(early, -1)

    def _cover(self, lease: Lease, boundary: Boundary) -> Locked:
        node = self._trie.node(boundary)
        pieces = tuple(self._device_piece(node, component.name) for component in self._trie.components)
        regions = {component.name: component.region(node.end) for component in self._trie.components}
        self._enter(lease, LeaseRecord(node, regions))
        return Locked(lease, boundary, pieces)

    def _device_piece(self, node: Node, name: ComponentName) -> Piece:
        """The region of one component with its device slots. Errors: NOT_RESIDENT."""
        component = self._trie.component(name)
        region = component.region(node.end)
        slots = []
        for at in self._trie.region_nodes(node, component, node.end):
            slot = at.cells[name].slots.get(TierName.DEVICE)
            if slot is None:
                raise CacheError(
                    Kind.NOT_RESIDENT,
                    "this boundary does not vote on the device; lock the `device` boundary of a match",
                    component=name,
                    position=at.end,
                )
            slots.append(slot)
        return Piece(name, region.start, region.end, slots_of(slots[::-1]))

    def _enter(self, lease: Lease, record: LeaseRecord) -> Lease:
        self._count(record, 1)
        self._records[lease.number] = record
        self._next = max(self._next, lease.number + 1)
        return lease

    def _count(self, record: LeaseRecord, by: int) -> None:
        for name, region in record.regions.items():
            is_state = self._trie.component(name).is_state
            for at in region_nodes(record.node, region, is_state):
                cell = at.cells[name]
                cell.locks += by
                if by > 0:
                    cell.touched = self._trie.tick  # a job in flight counts this as a use; recency does not
                self._trie.ranking.mark(at)
