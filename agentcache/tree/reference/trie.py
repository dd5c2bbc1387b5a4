"""The pages themselves: the one room where residency changes."""

from collections.abc import Iterable

from agentcache.errors import CacheError, Kind
from agentcache.keys import Namespace
from agentcache.tree.api import CoreConfig
from agentcache.tree.instances import next_instance
from agentcache.tree.reference.arguments import RawKey, demand_numbers
from agentcache.tree.reference.changes import Changes
from agentcache.tree.reference.component import TreeComponent
from agentcache.tree.reference.node import Cell, Node, child_key, region_nodes, subtree
from agentcache.tree.reference.ranking import Ranking
from agentcache.types import FULL, Boundary, ComponentName, NodeRef, PoolName, TierName


class PageTrie:
    """Topology, residency, recency, and the owner of every slot.

    Law  a node other than the origin exists if and only if its FULL is on the device or on the host
    """

    def __init__(self, config: CoreConfig, components: tuple[TreeComponent, ...]) -> None:
        self.config = config
        self.components = components
        self.ranking = Ranking(config)
        self.instance = next_instance()
        self.owners: dict[PoolName, dict[int, Node]] = {
            PoolName(component.name, tier): {} for component in components for tier in config.tiers
        }
        self._serial = 0
        self._nodes: dict[int, Node] = {}
        self.epoch = 0
        self.tick = 0
        self.origin = self._register(Node(b"", None, Namespace(), self._serial))

    def begin(self, now_ns: int) -> None:
        """A call that may change something starts: what it uses is used later than all before. Errors: BAD_REQUEST."""
        demand_numbers(now_ns=now_ns)
        self.tick += 1

    # -- finding

    def node(self, boundary: Boundary) -> Node:
        """The node that ends at `boundary`. Errors: STALE_BOUNDARY."""
        at = self._nodes.get(boundary.node.index, self.origin)
        on_path = 0 <= boundary.length <= at.end and boundary.length % self.config.page_tokens == 0
        if (boundary.epoch, boundary.node) != (self.epoch, _ref(at, self.instance)) or not on_path:
            raise CacheError(
                Kind.STALE_BOUNDARY,
                "data was dropped since this boundary was issued; match again and lock before you evict",
                issued=boundary.epoch,
                now=self.epoch,
            )
        while at.end > boundary.length:
            at = at.above
        return at

    def named(self, boundary: Boundary | None) -> Node | None:
        """The node of a boundary; None for the root, which nobody can reference. Errors: STALE_BOUNDARY."""
        node = self.node(boundary) if boundary else self.origin
        return node if node.end else None

    def boundary(self, node: Node) -> Boundary:
        return Boundary(_ref(node, self.instance), node.end, self.epoch)

    def holds(self, node: Node) -> bool:
        """Whether the node is still part of the tree."""
        return node.serial in self._nodes

    def walk(self, key: RawKey, base: Node) -> list[Node]:
        """The nodes below `base` that hold the longest stored prefix of `key`. Cost O(tokens compared)."""
        page, at, found = self.config.page_tokens, base, []
        for end in range(base.end + page, len(key) + 1, page):
            child = at.children.get(child_key(at, key.namespace, key.page(end, page)))
            if child is None:
                break
            found.append(child)
            at = child
        return found

    @property
    def size(self) -> int:
        """How many nodes there are, the origin not counted."""
        return len(self._nodes) - 1

    def nodes(self) -> Iterable[Node]:
        """Every node but the origin."""
        return (node for node in self._nodes.values() if node.end)

    def component(self, name: ComponentName) -> TreeComponent:
        """Errors: UNKNOWN_COMPONENT."""
        for component in self.components:
            if component.name == name:
                return component
        known = ", ".join(component.name for component in self.components)
        raise CacheError(Kind.UNKNOWN_COMPONENT, f"this tree has {known}", asked=name)

    def region_nodes(self, node: Node, component: TreeComponent, boundary: int) -> Iterable[Node]:
        """The nodes of one component's region at a boundary at or above `node`, deepest first."""
        return region_nodes(node, component.region(boundary), component.is_state)

    # -- changing

    def _register(self, node: Node) -> Node:
        node.cells = {component.name: Cell() for component in self.components}
        self._nodes[node.serial] = node
        self._serial += 1
        return node

    def grow(self, parent: Node, namespace: Namespace, edge: bytes) -> Node:
        """A new page below `parent`; the caller attaches its FULL at once."""
        node = self._register(Node(edge, parent, namespace, self._serial))
        parent.children[node.child_key()] = node
        return node

    def attach(self, node: Node, name: ComponentName, tier: TierName, slot: int, changes: Changes) -> None:
        """The tree now owns `slot`. The place must be empty."""
        assert tier not in node.cells[name].slots
        node.cells[name].slots[tier] = slot
        self.owners[PoolName(name, tier)][slot] = node
        self._moved(node)
        if self.config.emit_events:
            changes.stored(node, name, tier)

    def lose(self, node: Node, name: ComponentName, tier: TierName, changes: Changes) -> None:
        """Free one copy. A node that loses its last FULL goes, with all that lies below it."""
        self._free_copy(node, name, tier, changes)
        if not node.anywhere(FULL):
            self.remove(node, changes)

    def remove(self, node: Node, changes: Changes) -> None:
        """Free every copy at and below a node, deepest first, and take the nodes out of the tree."""
        for at in reversed(list(subtree(node))):
            for name, cell in at.cells.items():
                for tier in list(cell.slots):
                    self._free_copy(at, name, tier, changes)
            del at.above.children[at.child_key()]
            del self._nodes[at.serial]

    def _free_copy(self, node: Node, name: ComponentName, tier: TierName, changes: Changes) -> None:
        cell = node.cells[name]
        slot = cell.slots.pop(tier)
        pool = PoolName(name, tier)
        del self.owners[pool][slot]
        changes.free(pool, slot)
        changes.dropped = True
        changes.disturbed |= cell.sessions
        self._moved(node)
        if self.config.emit_events:
            changes.removed(node, name, tier)

    def _moved(self, node: Node) -> None:
        self.ranking.mark(node)
        self.ranking.mark(node.above)

    def touch(self, node: Node, boundary: int, now_ns: int, hit: bool) -> None:
        """Mark exactly the regions of a boundary as used now; `hit` counts it for `lfu`."""
        for component in self.components:
            for at in self.region_nodes(node, component, boundary):
                cell = at.cells[component.name]
                cell.used_ns = now_ns
                cell.touched = self.tick
                cell.hits += hit
                cell.released = False
                self.ranking.mark(at)

    def claim(self, node: Node, name: ComponentName, tier: TierName, by: int) -> None:
        """Count one job's claim on a copy in (by=1) or out (by=-1)."""
        claims = node.cells[name].claims
        claims[tier] = claims.get(tier, 0) + by
        if not claims[tier]:
            del claims[tier]
        self.ranking.mark(node)


def _ref(node: Node, instance: int) -> NodeRef:
    """Serials are never reused, so the generation only has to part this tree from others."""
    return NodeRef(node.serial, instance)
