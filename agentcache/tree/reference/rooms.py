"""Room on the host for what goes down: the free slots of one call, and who makes way (design §7)."""

from collections.abc import Sequence

from agentcache.tree.reference.changes import Changes
from agentcache.tree.reference.node import Node, is_prefix
from agentcache.tree.reference.ranking import protected
from agentcache.tree.reference.trie import PageTrie
from agentcache.types import FULL, ComponentName, TierName

HOST = TierName.HOST


class HostRoom:
    """Free host slots, less those promised in this call; where none is left, a lower ranked piece makes way."""

    def __init__(self, trie: PageTrie, free: dict[ComponentName, int], changes: Changes) -> None:
        self._trie = trie
        self._free = dict(free)
        self._changes = changes

    def take(
        self, node: Node, name: ComponentName, leaving: Sequence[tuple[Node, ComponentName]] = ()
    ) -> bool:
        """One slot for this piece; False when it cannot be had. What is `leaving` the device must keep its path."""
        if not self._free.get(name, 0):
            self._make_way(node, name, leaving)
        if not self._free.get(name, 0):
            return False
        self._free[name] -= 1
        return True

    def _make_way(
        self, node: Node, name: ComponentName, leaving: Sequence[tuple[Node, ComponentName]]
    ) -> None:
        """Evict one lower ranked piece from the host; any, when host data below would lose its path."""
        ranking = self._trie.ranking
        lowest = ranking.best(name, HOST)
        if lowest is None or (name == FULL and any(is_prefix(lowest, at) for at, _ in leaving)):
            return  # nothing may go, or what is about to move would lose its path
        if (name == FULL and self._carries(node)) or ranking.precedes(lowest, node, name):
            for other in [*cascaded(self._trie, lowest, name, HOST, demoted=False), name]:
                self._free[other] = self._free.get(other, 0) + 1
                self._trie.lose(lowest, other, HOST, self._changes)

    def _carries(self, node: Node) -> bool:
        """Whether a page right below is on the host or goes there in this call: its path would end without this one."""
        going = self._trie.ranking.going
        return any(child in going or child.has(FULL, HOST) for child in node.children.values())


def cascaded(
    trie: PageTrie, node: Node, name: ComponentName, tier: TierName, demoted: bool
) -> list[ComponentName]:
    """The aux components at this page that lose their copy on `tier` with `name`."""
    others = [component.spec for component in trie.components if component.name not in (FULL, name)]
    return [
        other
        for other in trie.component(name).cascade(others, demoted)
        if node.has(other, tier) and not protected(node, other, tier)
    ]
