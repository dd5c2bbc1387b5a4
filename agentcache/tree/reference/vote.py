"""The boundary vote: which ends of a path every component accepts."""

from collections.abc import Callable, Iterable

from agentcache.tree.reference.component import TreeComponent
from agentcache.tree.reference.node import Node, path_to
from agentcache.types import FULL, ComponentName, TierName

ANY_TIER = frozenset({TierName.DEVICE, TierName.HOST})
ON_DEVICE = frozenset({TierName.DEVICE})


class Ballot:
    """One walk from the root. Every validator sees every page, because they are stateful."""

    def __init__(self, components: Iterable[TreeComponent]) -> None:
        self._validators = [(component, component.accepts()) for component in components]

    def refusing(self, end: int, resident: Callable[[ComponentName], bool]) -> list[TreeComponent]:
        """The components that refuse a boundary at `end`, in spec order; empty when all accept."""
        return [
            component for component, accept in self._validators if not accept(end, resident(component.name))
        ]


def votable(node: Node, components: Iterable[TreeComponent], grid: int) -> list[Node]:
    """The nodes at or above `node` whose ends vote on device or host, shallowest first."""
    ballot = Ballot(components)
    return [at for at in path_to(node) if not ballot.refusing(at.end, at.anywhere) and at.end % grid == 0]


def deepest_votable(node: Node, components: Iterable[TreeComponent], grid: int) -> Node | None:
    """The deepest boundary at or above `node` that votes on device or host."""
    return next(reversed(votable(node, components, grid)), None)


def full_end(path: list[Node], tier: TierName) -> int:
    """How far FULL reaches on `tier` alone."""
    end = 0
    for node in path:
        if not node.has(FULL, tier):
            break
        end = node.end
    return end
