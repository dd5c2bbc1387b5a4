"""Least recently used, written to be believed at sight: the judge of the real cache's order `lru`.

Every page is an entry of one dictionary, and every question looks at all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agentcache.replay.lab.history import History
from agentcache.replay.lab.serving import Found
from agentcache.replay.paged import PagedCall, Workload


@dataclass(slots=True)
class Page:
    """A page that is there: when it was last used, how many come before it, and how many were made before it."""

    used_ns: int
    depth: int
    serial: int


@dataclass(slots=True)
class _Running:
    """A call that has asked to start. `path`: its pages that are there and stay; `room`: those kept free for it."""

    path: list[int]
    hit: int
    room: int = 0


@dataclass(slots=True)
class NaiveLru:
    """`Served` by `capacity` pages of device memory, least recently used leaf first, equal ones the deepest first.

    A match, a computed prompt and a finished answer use the pages of their path; one that is evicted takes those above
    it along that were used at the same moment, as far as room is needed.
    """

    workload: Workload
    capacity: int
    pages: dict[int, Page] = field(default_factory=dict)
    _running: dict[tuple[int, int], _Running] = field(default_factory=dict)
    _serial: int = 0
    _history: History = field(init=False)

    def __post_init__(self) -> None:
        self._history = History(self.workload)

    # what a replay asks

    def arrive(self, call: PagedCall, now_ns: int) -> None:
        """Nothing to do."""

    def uncached(self, call: PagedCall) -> int:
        return len(call.prompt) - len(self._match(call))

    def expects(self, starts: Sequence[tuple[PagedCall, int]], now_ns: int) -> None:
        """Nothing to do."""

    def start(self, call: PagedCall, now_ns: int, must: bool) -> Found | None:
        key = call.key
        if key not in self._running:  # asked again, it goes on from what it found first
            path = self._match(call)
            self._running[key] = _Running(path, hit=len(path))
            self._use(path, now_ns)
        own = self._running[key]
        room = self._make_room(len(call.prompt) - own.hit, must)
        if room is None:
            return None
        own.room = room
        return self._history.found(call, (own.hit, 0, 0))

    def computed(self, call: PagedCall, now_ns: int) -> None:
        own = self._running[call.key]
        self._publish(own, call.prompt.tolist(), now_ns)
        self._note(call, own, call.prompt.tolist())

    def finish(self, call: PagedCall, now_ns: int) -> None:
        own = self._running[call.key]
        path = [*call.prompt.tolist(), *call.output.tolist()]
        if len(call.output) and len(own.path) == len(call.prompt):
            own.room = self._make_room(len(call.output), must=True) or 0
            self._publish(own, path, now_ns)
        self._note(call, own, path)
        del self._running[call.key]

    def close(self, session: int, now_ns: int) -> None:
        """This order knows no sessions; why a page is gone is told as for others."""
        self._history.closed(session)

    # how it is done

    def _match(self, call: PagedCall) -> list[int]:
        """The leading pages of a prompt that are there, as many as may be reused."""
        found = []
        for page in call.prompt[: call.reusable].tolist():
            if page not in self.pages:
                break
            found.append(page)
        return found

    def _use(self, path: list[int], now_ns: int) -> None:
        for page in path:
            self.pages[page].used_ns = now_ns

    def _publish(self, own: _Running, path: list[int], now_ns: int) -> None:
        """Store what of a path has room; what is there already needs none."""
        own.path = path[: len(own.path) + own.room]
        own.room = 0
        for depth, page in enumerate(own.path):
            if page not in self.pages:
                self.pages[page] = Page(now_ns, depth, self._serial)
                self._serial += 1
        self._use(own.path, now_ns)

    def _note(self, call: PagedCall, own: _Running, path: list[int]) -> None:
        """Remember what of a path is kept, and what found no room."""
        self._history.kept(call.session, np.array(own.path, dtype=np.int32))
        lost = [page for page in path[len(own.path) :] if page not in self.pages]
        self._history.found_no_room(np.array(lost, dtype=np.int32))

    def _make_room(self, wanted: int, must: bool) -> int | None:
        """Evict until so many pages are free. If that cannot be: None, or with `must` as many as can be had."""
        locked = self._locked()
        reserved = sum(own.room for own in self._running.values())
        can_be_had = self.capacity - reserved - len(locked)
        if wanted > can_be_had:
            if not must:
                return None
            wanted = can_be_had
        last = None
        while self.capacity - reserved - len(self.pages) < wanted:
            last = self._evict(locked, last)
        return wanted

    def _locked(self) -> set[int]:
        return {page for own in self._running.values() for page in own.path}

    def _evict(self, locked: set[int], last: tuple[int, int] | None) -> tuple[int, int]:
        """Evict one page. `last` is what went before in this call: a page and when it was used. Answers the same."""
        before = self.workload.before
        inner = {int(before[page]) for page in self.pages}
        leaves = [page for page in self.pages if page not in inner and page not in locked]
        going = min(leaves, key=self._rank)
        if last is not None:
            upper, used_ns = int(before[last[0]]), last[1]
            if upper in leaves and self.pages[upper].used_ns == used_ns:
                going = upper
        used_ns = self.pages.pop(going).used_ns
        return going, used_ns

    def _rank(self, page: int) -> tuple[int, int, int]:
        there = self.pages[page]
        return there.used_ns, -there.depth, there.serial

    def check(self) -> None:
        """AssertionError unless all fits, and every page's path is there."""
        reserved = sum(own.room for own in self._running.values())
        assert len(self.pages) + reserved <= self.capacity, "more pages than fit"
        for page in [*self.pages, *self._locked()]:
            upper = int(self.workload.before[page])
            assert page in self.pages, f"page {page} is in use and gone"
            assert upper == 0 or upper in self.pages, f"page {page} is there, and {upper} before it is not"
