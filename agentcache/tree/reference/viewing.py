"""Snapshots and counts: everything observable, by position."""

import numpy as np

from agentcache.tree.reference.markers import MarkerBook
from agentcache.tree.reference.node import Node, path_to
from agentcache.tree.reference.trie import PageTrie
from agentcache.views import CoreStats, PageView, PoolCount, Snapshot


def snapshot(trie: PageTrie, markers: MarkerBook, leases: int, jobs: int) -> Snapshot:
    """Canonical: pages sorted by namespace and path. Cost O(pages · path), for tests and bug reports."""
    pages = sorted((_page(trie, node) for node in trie.nodes()), key=lambda page: (page.namespace, page.path))
    return Snapshot(tuple(pages), tuple(markers.views()), leases, jobs, trie.epoch)


def _page(trie: PageTrie, node: Node) -> PageView:
    raw = b"".join(at.edge for at in path_to(node))
    names = [component.name for component in trie.components]
    cells = [(name, node.cells[name]) for name in names]
    return PageView(
        tuple(np.frombuffer(raw, dtype="<i4").tolist()),
        node.namespace.digest().hex(),
        tuple(
            (name, tier, cell.slots[tier])
            for name, cell in cells
            for tier in trie.config.tiers
            if tier in cell.slots
        ),
        tuple((name, cell.locks) for name, cell in cells if cell.locks),
        tuple((name, cell.references) for name, cell in cells if cell.references),
    )


def stats(trie: PageTrie, markers: MarkerBook, leases: int, jobs: int) -> CoreStats:
    """Counts per pool. Cost O(pools + changes since the last question)."""
    indexes = {pool: trie.ranking.index(pool) for pool in trie.owners}
    counts = tuple(
        PoolCount(pool, len(trie.owners[pool]), len(index.protected), len(index.referenced))
        for pool, index in indexes.items()
    )
    return CoreStats(counts, trie.size, leases, jobs, len(markers.sessions()), markers.size)
