"""The tree as a drawing has it: branches without forks, the last used first."""

import heapq
from collections import Counter
from collections.abc import Iterator

import numpy as np

from agentcache.tree.reference.markers import MarkerBook
from agentcache.tree.reference.node import Node
from agentcache.tree.reference.trie import PageTrie
from agentcache.tree.reference.vote import deepest_votable
from agentcache.types import FULL
from agentcache.views import Branch, Outline

Turn = tuple[int, int, str, tuple[int, ...]]


def outline(trie: PageTrie, markers: MarkerBook, limit: int) -> Outline:
    """`Inspect.outline` of the contract. A page was used whenever one below it was, so parents come first."""
    endings = Counter(
        marker.frontier for session in markers.sessions() for marker in markers.markers(session)
    )
    waiting: list[tuple[Turn, int, Node]] = []
    branches: list[Branch] = []
    _push(waiting, trie.origin, -1)
    while waiting and len(branches) < limit:
        _, parent, node = heapq.heappop(waiting)
        nodes = list(_unforked(node))
        _push(waiting, nodes[-1], len(branches))
        branches.append(_branch(trie, nodes, parent, sum(endings[at] for at in nodes)))
    return Outline(tuple(branches), bool(waiting))


def _push(waiting: list[tuple[Turn, int, Node]], above: Node, number: int) -> None:
    for node in above.children.values():
        tokens = tuple(np.frombuffer(node.edge, dtype="<i4").tolist())
        turn = (-node.cells[FULL].used_ns, above.end, node.namespace.digest().hex(), tokens)
        heapq.heappush(waiting, (turn, number, node))


def _unforked(node: Node) -> Iterator[Node]:
    """The pages from this one down to the next fork or end."""
    yield node
    while len(node.children) == 1:
        (node,) = node.children.values()
        yield node


def _branch(trie: PageTrie, nodes: list[Node], parent: int, markers: int) -> Branch:
    first, last = nodes[0], nodes[-1]
    resident = (
        (component.name, tier, sum(node.has(component.name, tier) for node in nodes))
        for component in trie.components
        for tier in trie.config.tiers
    )
    boundary = deepest_votable(last, trie.components, trie.config.grid)
    return Branch(
        parent,
        first.above.end,
        last.end,
        first.namespace.digest().hex(),
        tuple(held for held in resident if held[2]),
        referenced=sum(bool(node.cells[FULL].sessions) for node in nodes),
        running=sum(node.cells[FULL].locks > 0 for node in nodes),
        reusable=boundary.end if boundary else 0,
        markers=markers,
        used_ns=first.cells[FULL].used_ns,
    )
