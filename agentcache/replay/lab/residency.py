"""Which pages of a trie lie on which tier, for a cache that keeps every page in one place.

    a path of the trie    device … device host … host nothing …

A node knows how many of its leading pages are on the device, and how many there are at all; a page is there only
where all before it are.
"""

from collections import defaultdict

from agentcache.replay.lab.trie import PromptTrie


class Residency:
    """Cost of every call: O(nodes that it changes, or passes on the way up to the first that has what it looks for).

    `device_leaves` and `host_leaves` are the nodes whose last page may leave its tier: nothing below is there, and no
    running call keeps it.
    """

    def __init__(self, trie: PromptTrie) -> None:
        nodes = len(trie.above)
        self.above = trie.above
        self._depth, self._pages = trie.depth, trie.pages
        self.on_device = [0] * nodes
        self.anywhere = [0] * nodes
        self._below_on_device = [0] * nodes  # how many children have a page there
        self._below_anywhere = [0] * nodes
        self.locked = [0] * nodes  # leading pages that running calls keep
        self._below_locked = [0] * nodes
        self._locks: dict[int, list[int]] = defaultdict(
            list
        )  # per node the pages that each lock ending here keeps
        self.device_pages = 0
        self.host_pages = 0
        self.locked_pages = 0
        self.device_leaves: set[int] = set()
        self.host_leaves: set[int] = set()

    # what is there

    def depths(self, end: int) -> tuple[int, int]:
        """How many leading pages of the path to a node are on the device, and how many are there at all."""
        node = end
        while node and not self.anywhere[node]:
            node = self.above[node]
        total = self._depth[node] + self.anywhere[node]
        while node and not self.on_device[node]:
            node = self.above[node]
        return self._depth[node] + self.on_device[node], total

    def loose(self, node: int) -> int:
        """How many pages at the end of a device leaf may leave."""
        return self.on_device[node] - self.locked[node]

    # what comes and goes

    def put(self, end: int, pages: int) -> int:
        """So many leading pages of a path are on the device now; answers how many were not."""
        node, new = end, 0
        while node:
            keeps = min(self._pages[node], pages - self._depth[node])
            if keeps > 0:
                if self.on_device[node] >= keeps:
                    break
                new += keeps - self.on_device[node]
                self._set(node, keeps, max(keeps, self.anywhere[node]))
            node = self.above[node]
        return new

    def demote(self, node: int, pages: int) -> None:
        """The last pages of a device leaf go to the host."""
        self._set(node, self.on_device[node] - pages, self.anywhere[node])

    def drop_from_device(self, node: int, pages: int) -> None:
        """The last pages of a device leaf go, below which nothing is on the host."""
        self._set(node, self.on_device[node] - pages, self.anywhere[node] - pages)

    def drop_from_host(self, node: int, pages: int) -> None:
        """The last pages of a host leaf go."""
        self._set(node, self.on_device[node], self.anywhere[node] - pages)

    def _set(self, node: int, on_device: int, anywhere: int) -> None:
        upper = self.above[node]
        self._below_on_device[upper] += bool(on_device) - bool(self.on_device[node])
        self._below_anywhere[upper] += bool(anywhere) - bool(self.anywhere[node])
        self.device_pages += on_device - self.on_device[node]
        self.host_pages += (anywhere - on_device) - (self.anywhere[node] - self.on_device[node])
        self.on_device[node], self.anywhere[node] = on_device, anywhere
        self._look(node)
        self._look(upper)

    def _look(self, node: int) -> None:
        """Is this a leaf?"""
        _file(self.device_leaves, node, not self._below_on_device[node] and self.loose(node) > 0)
        on_host = self.anywhere[node] - self.on_device[node]
        _file(self.host_leaves, node, not self._below_anywhere[node] and on_host > 0)

    # what stays

    def lock(self, end: int, pages: int) -> tuple[int, int]:
        """Keep so many leading pages of a path, all on the device; `unlock` takes the answer back."""
        node = end
        while pages <= self._depth[node] and node:
            node = self.above[node]
        self._locks[node].append(pages - self._depth[node])
        self._count_locks(node)
        return node, pages - self._depth[node]

    def unlock(self, lock: tuple[int, int]) -> None:
        node, pages = lock
        self._locks[node].remove(pages)
        self._count_locks(node)

    def _count_locks(self, node: int) -> None:
        """Say again what is kept here and, as long as that changes it, above."""
        while node:
            before = self.locked[node]
            here = self._locks[node]
            now = self._pages[node] if self._below_locked[node] else max(here, default=0)
            if now == before:
                return
            self.locked[node] = now
            self.locked_pages += now - before
            if not self._below_on_device[node]:
                self._look(node)
            if bool(now) == bool(before):
                return
            node = self.above[node]
            self._below_locked[node] += 1 if now else -1

    def check(self) -> None:
        """AssertionError unless every sum is right, and every page has all pages before it. Cost: O(nodes)."""
        for node in range(1, len(self.above)):
            upper = self.above[node]
            assert 0 <= self.locked[node] <= self.on_device[node] <= self.anywhere[node] <= self._pages[node]
            for there in (self.on_device, self.anywhere, self.locked):
                assert not there[node] or there[upper] == self._pages[upper], (
                    f"{node} is there without {upper}"
                )
        assert self.device_pages == sum(self.on_device)
        assert self.host_pages == sum(self.anywhere) - self.device_pages
        assert self.locked_pages == sum(self.locked)
        tails = [node for node in range(1, len(self.above)) if self.loose(node)]
        inner = {self.above[node] for node in range(1, len(self.above)) if self.on_device[node]}
        assert self.device_leaves == set(tails) - inner


def _file(nodes: set[int], node: int, belongs: bool) -> None:
    if belongs:
        nodes.add(node)
    else:
        nodes.discard(node)
