"""Who goes first: candidates for eviction per component and tier, in the configured order."""

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentcache.tree.api import CoreConfig, Order, OrderBase
from agentcache.tree.reference.node import Node
from agentcache.tree.reference.waiting import LANES, Waits, urgency
from agentcache.types import FULL, ComponentName, PoolName, TierName, Wait

Rank = tuple[int, ...]


@dataclass(slots=True)
class PoolIndex:
    """The copies in one pool: candidates with their ranks, and those that somebody protects or wants back.

    A heap holds bare ranks, which end in the node's serial: a void entry keeps no node alive. `lru` and `session` use
    the first one, `ert` one for each of its lanes.
    """

    heaps: tuple[list[Rank], ...] = field(default_factory=lambda: tuple([] for _ in range(LANES)))
    ranks: dict[Node, Rank] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)  # the candidates by serial
    protected: set[Node] = field(default_factory=set)
    referenced: set[Node] = field(default_factory=set)


class Ranking:
    """One index per pool over the pieces that may be evicted now, smallest rank first.

    Whoever changes a node marks it; marked nodes are ranked again before the next question. A heap entry that no
    longer equals the node's current rank is void (lazy deletion).
    Cost  O(log n) per changed piece and per victim
    """

    def __init__(self, config: CoreConfig) -> None:
        self._config = config
        self._indexes = {
            PoolName(spec.name, tier): PoolIndex() for spec in config.specs for tier in config.tiers
        }
        self._marked: set[Node] = set()
        self.waits = Waits(config.unclaimed_ns)
        self.going: set[Node] = set()  # nodes whose FULL device copy leaves in the running call

    def mark(self, node: Node) -> None:
        self._marked.add(node)

    def mark_all(self, nodes: Iterable[Node]) -> None:
        self._marked.update(nodes)

    def key(self, node: Node, name: ComponentName) -> Rank:
        """The configured order's key (design §7), without tie breaks."""
        if self._config.order is Order.ERT:
            return self.waits.standing(node, name)
        cell = node.cells[name]
        base: Rank = (cell.used_ns,)
        if self._config.order is Order.LRU:
            return base
        if self._config.base is OrderBase.LFU:
            base = (cell.hits, cell.used_ns)
        elif self._config.base is OrderBase.PRIORITY:
            base = (node.priority, cell.used_ns)
        count = cell.references if name == FULL else 0
        return (int(cell.references > 0), count, *base)

    def rank(self, node: Node, name: ComponentName) -> Rank:
        """Key, then deeper first, then older creation."""
        return (*self.key(node, name), -node.end, node.serial)

    def precedes(self, node: Node, other: Node, name: ComponentName) -> bool:
        """Whether the first of two pieces goes before the second, at the order's time."""
        return self._urgency(self.rank(node, name)) < self._urgency(self.rank(other, name))

    def expected_after(self, wait: Wait, node: Node, name: ComponentName) -> bool:
        """Whether a piece goes before all that a session which waits so has for itself: it is expected back later.

        Orders that know no waits say so of what no session references.
        """
        if self._config.order is not Order.ERT:
            return not node.cells[name].references
        return self._urgency(self.key(node, name)) < self._urgency(self.waits.alone(wait))

    def _urgency(self, rank: Rank) -> Rank:
        return urgency(rank, self.waits.now_ns) if self._config.order is Order.ERT else rank

    def candidate(self, node: Node, name: ComponentName, tier: TierName) -> bool:
        """Whether this piece may be evicted now: resident, not protected and, for FULL, the tail of its path."""
        cell = node.cells.get(name)
        if cell is None or tier not in cell.slots or protected(node, name, tier):
            return False
        return name != FULL or self._is_tail(node, tier)

    def _is_tail(self, node: Node, tier: TierName) -> bool:
        carried = (child for child in node.children.values() if child.has(FULL, tier))
        if any(child not in self.going or node.has(FULL, TierName.HOST) for child in carried):
            return False  # a page that has a host copy need not move, so it would leave before its child
        if any(tier in cell.claims for cell in node.cells.values()):
            return False
        last = len(node.cells[FULL].slots) == 1
        return not last or node.jobs_below == 0

    def best(self, name: ComponentName, tier: TierName) -> Node | None:
        """The lowest ranked candidate; None when nothing may go."""
        index = self.index(PoolName(name, tier))
        firsts = [rank for heap in index.heaps if (rank := _first(heap, index)) is not None]
        if not firsts:
            return None
        return index.nodes[min(firsts, key=self._urgency)[-1]]

    def index(self, pool: PoolName) -> PoolIndex:
        """One pool as it stands now."""
        for node in self._marked:
            for name, index in self._indexes.items():
                self._place(node, name, index)
        self._marked.clear()
        return self._indexes[pool]

    def _place(self, node: Node, pool: PoolName, index: PoolIndex) -> None:
        resident = node.has(pool.component, pool.tier)
        _file(index.protected, node, resident and protected(node, pool.component, pool.tier))
        _file(index.referenced, node, resident and bool(node.cells[pool.component].sessions))
        if not self.candidate(node, pool.component, pool.tier):
            index.ranks.pop(node, None)
            index.nodes.pop(node.serial, None)
            return
        rank = self.rank(node, pool.component)
        if index.ranks.get(node) != rank:
            index.ranks[node] = rank
            index.nodes[node.serial] = node
            heapq.heappush(index.heaps[self._lane(rank)], rank)
        if sum(map(len, index.heaps)) > 64 + 4 * len(index.ranks):
            self._rebuild(index)

    def _lane(self, rank: Rank) -> int:
        return rank[0] if self._config.order is Order.ERT else 0

    def _rebuild(self, index: PoolIndex) -> None:
        for heap in index.heaps:
            heap.clear()
        for rank in index.ranks.values():
            index.heaps[self._lane(rank)].append(rank)
        for heap in index.heaps:
            heapq.heapify(heap)

    def indexes(self) -> Iterator[tuple[PoolName, PoolIndex]]:
        """All pools as they stand now, for `check`."""
        return ((pool, self.index(pool)) for pool in self._indexes)


def _first(heap: list[Rank], index: PoolIndex) -> Rank | None:
    """The smallest entry that is not void; void ones go."""
    while heap:
        node = index.nodes.get(heap[0][-1])
        if node is not None and index.ranks[node] == heap[0]:
            return heap[0]
        heapq.heappop(heap)
    return None


def _file(nodes: set[Node], node: Node, belongs: bool) -> None:
    if belongs:
        nodes.add(node)
    else:
        nodes.discard(node)


def protected(node: Node, name: ComponentName, tier: TierName) -> bool:
    """A lease protects device copies, a job the copies that it reads."""
    cell = node.cells[name]
    return tier in cell.claims or (tier is TierName.DEVICE and cell.locks > 0)
