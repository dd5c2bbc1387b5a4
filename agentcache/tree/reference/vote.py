"""The boundary vote: which ends of a path every component accepts."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, takewhile

from agentcache.tree.reference.component import TreeComponent
from agentcache.tree.reference.node import Node, upward
from agentcache.types import ComponentName


class Ballot:
    """One walk down a path. Every validator sees every page that it reads, because they are stateful."""

    def __init__(self, components: Iterable[TreeComponent]) -> None:
        self._validators = [(component, component.accepts()) for component in components]

    def refusing(self, end: int, resident: Callable[[ComponentName], bool]) -> list[TreeComponent]:
        """The components that refuse a boundary at `end`, in spec order; empty when all accept."""
        return [
            component for component, accept in self._validators if not accept(end, resident(component.name))
        ]

    def resume_below(self, node: Node) -> None:
        """Go on below `node` instead of from the root: each validator is fed what it may still read above.

        FULL, the first component, needs nothing: it is at every node.
        """
        for component, accept in self._validators[1:]:
            for at in _read(node, component.reads_from(node.end + component.page_tokens)):
                accept(at.end, at.anywhere(component.name))


def votes(node: Node, components: Sequence[TreeComponent], grid: int) -> bool:
    """Whether the end of `node` votes on device or host. Cost O(what the components read before it).

    FULL, the first component, always accepts: a node without it does not exist.
    """
    if not node.end or node.end % grid:
        return False
    return all(_accepted(node, component) for component in reversed(components[1:]))  # states read least


def _accepted(node: Node, component: TreeComponent) -> bool:
    accept, pages = component.accepts(), _read(node, component.reads_from(node.end))
    return [accept(at.end, at.anywhere(component.name)) for at in pages][-1]


def _read(node: Node, start: int) -> list[Node]:
    """The nodes down to `node` that end after `start`, shallowest first."""
    return list(takewhile(lambda at: at.end > start, upward(node)))[::-1]


def deepest_votable(node: Node, components: Sequence[TreeComponent], grid: int) -> Node | None:
    """The deepest boundary at or above `node` that votes on device or host. Cost O(pages up to it)."""
    size = 1
    while node.end:
        block = list(islice(upward(node), size))[::-1]
        ballot = Ballot(components)
        ballot.resume_below(block[0].above)
        voting = [at for at in block if not ballot.refusing(at.end, at.anywhere) and at.end % grid == 0]
        if voting:
            return voting[-1]
        node, size = block[0].above, 2 * size
    return None


def cut_off(top: Node, reached: set[Node], components: Sequence[TreeComponent], grid: int) -> list[Node]:
    """The nodes from a lost piece down to the next boundaries that vote without it, each `reached` once."""
    found = [top] if top not in reached else []
    for node in found:
        reached.add(node)
        below = (child for child in node.children.values() if child not in reached)
        found += [child for child in below if not votes(child, components, grid)]
    return found
