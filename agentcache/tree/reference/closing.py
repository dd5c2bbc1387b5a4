"""What a close may do beyond letting go: drop or demote what only that session referenced."""

from agentcache.tree.reference.changes import Changes
from agentcache.tree.reference.jobs import JobTable
from agentcache.tree.reference.markers import Positions, by_path, deepest_first
from agentcache.tree.reference.node import Node
from agentcache.tree.reference.ranking import protected
from agentcache.tree.reference.trie import PageTrie
from agentcache.types import FULL, TierName

DEVICE, HOST = TierName.DEVICE, TierName.HOST


def drop_released(trie: PageTrie, positions: Positions, changes: Changes) -> None:
    """Free whole pages from the tips up: unreferenced, unprotected, and carrying nothing."""
    for node in deepest_first(positions):
        if not node.children and _nobody_needs(trie, node):
            trie.remove(node, changes)


def demote_released(trie: PageTrie, jobs: JobTable, positions: Positions, changes: Changes) -> None:
    """Send device copies down; those with a host copy are freed at once, the others stay if they do not land."""
    nodes = [node for node in deepest_first(positions) if _nobody_needs(trie, node)]
    for path in by_path(nodes):
        places = [
            (node, component.name)
            for node in path
            for component in trie.components
            if node.has(component.name, DEVICE) and not node.has(component.name, HOST)
        ]
        jobs.plan(places, (DEVICE, HOST), changes, leaving=True, keep_unlanded=True)
    for node in nodes:
        _free_backed(trie, node, changes)


def _free_backed(trie: PageTrie, node: Node, changes: Changes) -> None:
    for component in reversed(trie.components):
        name = component.name
        backed = node.has(name, DEVICE) and node.has(name, HOST) and not protected(node, name, DEVICE)
        if backed and (name != FULL or trie.ranking.candidate(node, FULL, DEVICE)):
            if name == FULL and any(node.has(other.name, DEVICE) for other in trie.components[1:]):
                continue
            trie.lose(node, name, DEVICE, changes)


def _nobody_needs(trie: PageTrie, node: Node) -> bool:
    """No session references the page, no lease or job protects any of its copies."""
    return not any(
        node.cells[component.name].references or protected(node, component.name, tier)
        for component in trie.components
        for tier in trie.config.tiers
    )
