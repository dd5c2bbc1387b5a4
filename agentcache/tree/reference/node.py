"""One page of a path: its tokens, and per component what lies there.

The reference core is an uncompressed radix tree: a node is one page. Positions therefore need no arithmetic inside
nodes, nothing is ever split, and every count is by position by construction (decisions/0001).
"""

from collections.abc import Iterator

from agentcache.keys import Namespace, chain
from agentcache.types import ComponentName, Region, SessionId, TierName


class Cell:
    """What one component has and owes at one page position."""

    __slots__ = ("claims", "hits", "locks", "noted_ns", "released", "sessions", "slots", "touched", "used_ns")

    def __init__(self) -> None:
        self.slots: dict[TierName, int] = {}  # resident copies
        self.claims: dict[TierName, int] = {}  # jobs that read the copy on that tier
        self.locks = 0  # leases; they protect the device copy
        self.sessions: dict[SessionId, None] = {}  # those with a marker whose region holds this position
        self.used_ns = 0
        self.hits = 0
        self.touched = 0  # sequence of the last use: "used since the job was planned?"
        self.released = False  # the last session let go of it, and nobody used it since
        self.noted_ns = 0  # `ert`: the latest key that an idle session left here; 0: none

    @property
    def references(self) -> int:
        return len(self.sessions)

    def gain(self, session: SessionId) -> None:
        self.sessions[session] = None
        self.released = False

    def let_go(self, session: SessionId) -> None:
        """One session less; after the last one the piece is released and what they noted is void."""
        del self.sessions[session]
        if not self.sessions:
            self.released = True
            self.noted_ns = 0

    def note(self, key_ns: int) -> None:
        """Keep the key of an idle session; of several sessions, the latest."""
        self.noted_ns = key_ns if len(self.sessions) == 1 else max(self.noted_ns, key_ns)


class Node:
    """Tokens `[end - page, end)` of one path, below `parent`. The origin has end 0 and no parent."""

    __slots__ = (
        "_digest",
        "cells",
        "children",
        "edge",
        "end",
        "jobs_below",
        "namespace",
        "parent",
        "priority",
        "serial",
    )

    def __init__(self, edge: bytes, parent: "Node | None", namespace: Namespace, serial: int) -> None:
        self.edge = edge  # the page's tokens, int32 little-endian
        self.parent = parent
        self.namespace = namespace
        self.serial = serial  # creation order, never reused
        self.end: int = (parent.end if parent else 0) + len(edge) // 4
        self.children: dict[object, Node] = {}
        self.cells: dict[ComponentName, Cell] = {}
        self.priority = 0
        self.jobs_below = 0  # jobs with a claim at or below this node
        self._digest = b""

    @property
    def above(self) -> "Node":
        """The parent; the origin is its own."""
        return self.parent or self

    def has(self, name: ComponentName, tier: TierName) -> bool:
        return tier in self.cells[name].slots

    def anywhere(self, name: ComponentName) -> bool:
        return bool(self.cells[name].slots)

    def child_key(self) -> object:
        """How the parent files this node: below the origin, namespaces never meet."""
        return child_key(self.above, self.namespace, self.edge)

    def digest(self) -> bytes:
        """The page hash of `keys.page_hashes`, computed when first asked."""
        if not self._digest:
            above = self.above
            previous = above.digest() if above.end else self.namespace.digest()
            self._digest = chain(previous, self.edge)
        return self._digest


def child_key(parent: Node, namespace: Namespace, edge: bytes) -> object:
    return edge if parent.end else (namespace, edge)


def upward(node: Node) -> Iterator[Node]:
    """The nodes from `node` to the first page, deepest first; the origin is not among them."""
    while node.parent:
        yield node
        node = node.parent


def path_to(node: Node) -> list[Node]:
    """The nodes from the first page to `node`."""
    return list(upward(node))[::-1]


def region_nodes(node: Node, region: Region, is_state: bool) -> Iterator[Node]:
    """The nodes at or above `node` that hold `region`, deepest first: its pages, or the one where a state lies."""
    for at in upward(node):
        if at.end < region.end if is_state else at.end <= region.start:
            return
        if at.end <= region.end:
            yield at


def subtree(node: Node) -> Iterator[Node]:
    """`node` and everything below it, children after parents."""
    stack = [node]
    while stack:
        at = stack.pop()
        yield at
        stack.extend(at.children.values())


def is_prefix(upper: Node, lower: Node) -> bool:
    """Whether the path to `upper` begins the path to `lower`."""
    while lower.end > upper.end:
        lower = lower.above
    return lower is upper
