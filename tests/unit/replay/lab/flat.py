"""Belady's MIN over single pages that know of no tree, for calls that take no time: quick enough for recorded ones."""

import heapq
from collections import defaultdict
from collections.abc import Sequence

from agentcache.replay.paged import PagedCall

NEVER = 2**62


class FlatMin:
    """A set of pages; what is needed again last goes first, the deeper of two."""

    def __init__(self, calls: Sequence[PagedCall], capacity: int) -> None:
        self._capacity = capacity
        self._there: set[int] = set()
        self._ranked: list[
            tuple[int, int, int]
        ] = []  # negative next use, negative depth, page; may be out of date
        self._uses: dict[int, list[int]] = defaultdict(list)  # the next one last
        for at in reversed(range(len(calls))):
            for page in calls[at].prompt[: calls[at].reusable].tolist():
                self._uses[page].append(at)

    def serve(self, call: PagedCall) -> int:
        """How many pages this call, the next one, finds."""
        prompt = call.prompt.tolist()
        reused = prompt[: call.reusable]
        hit = next((at for at, page in enumerate(reused) if page not in self._there), len(reused))
        for page in reused:
            self._uses[page].pop()
        self._bring(prompt)
        if len(prompt) <= self._capacity:
            self._bring([*prompt, *call.output.tolist()])
        return hit

    def _bring(self, path: list[int]) -> None:
        path = path[: self._capacity]
        self._there.update(path)
        stays = set(path)
        while len(self._there) > self._capacity:
            next_use, depth, page = heapq.heappop(self._ranked)
            if page in stays or page not in self._there:
                continue  # what stays is ranked again below
            if next_use == -self._next_use(page):
                self._there.remove(page)
            else:
                heapq.heappush(self._ranked, (-self._next_use(page), depth, page))
        for depth, page in enumerate(path):
            heapq.heappush(self._ranked, (-self._next_use(page), -depth, page))

    def _next_use(self, page: int) -> int:
        uses = self._uses[page]
        return uses[-1] if uses else NEVER
