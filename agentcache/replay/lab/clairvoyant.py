"""The order of eviction that knows the future: what is needed again last goes first.

A page is never needed later than those behind it, so the page that is needed last ends a path, and evicting tails only
costs nothing: with calls that come at fixed times and take no time this is Belady's MIN, the most pages that any order
can hit. MIN keeps, of so many pages, those that a smaller cache would keep and more, so one order is best for the
device alone and for device and host together. Where calls take time, lock what they use and delay each other it is a
good order, not a bound by proof; nor where an answer brings pages that were there before, which costs nothing.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from agentcache.replay.lab.foresight import Foresight
from agentcache.replay.lab.history import History
from agentcache.replay.lab.residency import Residency
from agentcache.replay.lab.serving import Found, Machine
from agentcache.replay.lab.trie import CallNodes, PromptTrie
from agentcache.replay.lab.world import Script
from agentcache.replay.paged import PagedCall, Pages

Lock = tuple[int, int]


@dataclass(slots=True)
class _Running:
    """A call that has started. `kept`: leading pages of its path that have a place; `room`: those not computed yet."""

    ends: CallNodes
    lock: Lock
    kept: int
    room: int


class Clairvoyant:
    """`Served` by device pages and, where there are any, host pages; a page is in one of the two places.

    Of a running call only what is missing needs room: pages that are there are shared, not computed into a second
    place.
    Cost  O(leaves log leaves + nodes that change) a call
    """

    def __init__(
        self, script: Script, machine: Machine, trie: PromptTrie, device_pages: int, host_pages: int = 0
    ) -> None:
        self._trie = trie
        self._device, self._host = device_pages, host_pages
        self._there = Residency(trie)
        self._future = Foresight(script, machine, trie)
        self._history = History(script.workload)
        self._running: dict[tuple[int, int], _Running] = {}
        self._reserved = 0

    def arrive(self, call: PagedCall, now_ns: int) -> None:
        self._future.expected(call, now_ns)

    def uncached(self, call: PagedCall) -> int:
        return len(call.prompt) - min(call.reusable, self._there.depths(self._trie.of(call).prompt)[1])

    def expects(self, starts: Sequence[tuple[PagedCall, int]], now_ns: int) -> None:
        for call, at_ns in starts:
            self._future.expected(call, at_ns)

    def start(self, call: PagedCall, now_ns: int, must: bool) -> Found | None:
        ends, there = self._trie.of(call), self._there
        on_device, total = there.depths(ends.prompt)
        lock = there.lock(ends.prompt, on_device)
        room = self._room(len(call.prompt) - on_device, must)
        if room is None:
            there.unlock(lock)
            return None
        kept = on_device + room
        here = min(total, kept)
        hit = min(total, call.reusable)  # what finds no place is read from the host, and stays there
        near = min(on_device, hit)
        found = self._history.found(call, (near, hit - near, 0))
        self._future.started(call, now_ns + self._future.ends_after_ns(call, found))
        there.put(ends.prompt, here)
        self._running[call.key] = own = _Running(ends, lock, kept, kept - here)
        self._relock(own, ends.prompt, here)
        self._reserved += own.room
        self._fit()
        return found

    def computed(self, call: PagedCall, now_ns: int) -> None:
        own = self._running[call.key]
        self._publish(own, own.ends.prompt)
        self._note(call, call.prompt, own.kept)

    def finish(self, call: PagedCall, now_ns: int) -> None:
        own = self._running[call.key]
        self._future.started(call, now_ns)
        if len(call.output) and own.kept == len(call.prompt):
            on_device, _ = self._there.depths(own.ends.whole)
            self._relock(own, own.ends.whole, on_device)
            own.room = self._room(call.peak_pages - on_device, must=True) or 0
            self._reserved += own.room
            self._fit()
            own.kept = on_device + own.room
            self._publish(own, own.ends.whole)
        self._note(call, np.concatenate((call.prompt, call.output)), own.kept)
        self._there.unlock(own.lock)
        del self._running[call.key]

    def close(self, session: int, now_ns: int) -> None:
        """Nothing that was not known, but why a page is gone."""
        self._history.closed(session)

    def check(self) -> None:
        """AssertionError unless all fits where it is."""
        self._there.check()
        assert self._there.device_pages + self._reserved <= self._device, "more on the device than fits"
        assert self._there.host_pages <= self._host, "more on the host than fits"
        assert self._reserved == sum(own.room for own in self._running.values())

    # inside

    def _room(self, wanted: int, must: bool) -> int | None:
        """How many pages can be had: all that are wanted, or None, or with `must` what there is."""
        can_be_had = self._device - self._reserved - self._there.locked_pages
        if wanted <= can_be_had:
            return wanted
        return can_be_had if must else None

    def _publish(self, own: _Running, end: int) -> None:
        """What a call has computed is there; its room is given back."""
        self._there.put(end, own.kept)
        self._reserved -= own.room
        own.room = 0
        self._relock(own, end, own.kept)

    def _note(self, call: PagedCall, path: Pages, kept: int) -> None:
        """Remember how much of a path has a place, and what of it found none."""
        _, total = self._there.depths(self._trie.of(call).whole)
        self._history.kept(call.session, path[:kept])
        self._history.found_no_room(path[max(kept, total) :])

    def _relock(self, own: _Running, end: int, pages: int) -> None:
        before, own.lock = own.lock, self._there.lock(end, pages)
        self._there.unlock(before)

    def _fit(self) -> None:
        """Evict until the device holds no more than it can."""
        if self._short > 0:
            _Eviction(self._there, self._future, self._host).run(self._short)

    @property
    def _short(self) -> int:
        return self._there.device_pages + self._reserved - self._device


class _Eviction:
    """Leaves by their next use, the latest first."""

    def __init__(self, there: Residency, future: Foresight, host_pages: int) -> None:
        self._there = there
        self._future = future
        self._host = host_pages
        self._on_device = self._ranked(there.device_leaves)
        self._on_host = self._ranked(there.host_leaves)

    def run(self, short: int) -> None:
        """So many pages leave the device: to the host, unless all there is needed sooner."""
        there = self._there
        while short > 0:
            next_use, node = self._on_device[0]
            pages = min(short, there.loose(node))
            free = self._host - there.host_pages
            if free > 0:
                short -= self._demote(node, min(pages, free), next_use)
            elif self._on_host and self._on_host[0][0] <= next_use:
                self._drop_from_host(pages)
            else:
                there.drop_from_device(node, pages)
                short -= pages
            self._settle(self._on_device, there.device_leaves)

    def _demote(self, node: int, pages: int, next_use: int) -> int:
        on_host = node in self._there.host_leaves
        self._there.demote(node, pages)
        if not on_host and node in self._there.host_leaves:
            heapq.heappush(self._on_host, (next_use, node))
        return pages

    def _drop_from_host(self, pages: int) -> None:
        _, node = self._on_host[0]
        there = self._there
        there.drop_from_host(node, min(pages, there.anywhere[node] - there.on_device[node]))
        self._settle(self._on_host, there.host_leaves)

    def _settle(self, heap: list[tuple[int, int]], leaves: set[int]) -> None:
        """The first of a heap was shortened: if it is no leaf any more the one above may have become one."""
        _, node = heap[0]
        if node in leaves:
            return
        heapq.heappop(heap)
        upper = self._there.above[node]
        if upper in leaves:
            heapq.heappush(heap, (-self._future.next_use(upper), upper))

    def _ranked(self, nodes: Iterable[int]) -> list[tuple[int, int]]:
        """A heap of (negative next use, node)."""
        ordered = np.array(sorted(nodes), dtype=np.int64)
        if not len(ordered):
            return []
        ranked = list(zip((-self._future.next_uses(ordered)).tolist(), ordered.tolist(), strict=True))
        heapq.heapify(ranked)
        return ranked
