"""Design §7 over plain dictionaries: who must go first. For cores without a host, where nothing but order decides."""

from collections import defaultdict
from fractions import Fraction

from agentcache.keys import Key
from agentcache.tree.api import CoreConfig, Order, OrderBase
from agentcache.types import FULL, Checkpoint, ComponentName, Inserted, Wait, Window
from agentcache.views import PageView, Snapshot
from tests.oracle import Residency, needed_pages
from tests.property.marker_model import MarkerModel, Spot
from tests.property.waiting_model import Turn, WaitingModel, alone

Rank = tuple[Fraction | int, ...]


def spot_of(key: Key, end: int, component: ComponentName) -> Spot:
    return key.namespace.digest().hex(), tuple(key.tokens[:end].tolist()), component


class OrderModel:
    """Last use, hits and priority of every position, from the calls alone."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.used: dict[Spot, int] = {}
        self.hits: defaultdict[Spot, int] = defaultdict(int)
        self.priority: defaultdict[tuple[str, tuple[int, ...]], int] = defaultdict(int)
        self.waiting = WaitingModel(config.unclaimed_ns)

    def matched(self, key: Key, boundary: int, now: int) -> None:
        for spot in self._regions(key, boundary):
            self.used[spot] = now
            self.hits[spot] += 1
            self.waiting.used(spot)

    def inserted(self, key: Key, answer: Inserted, priority: int, now: int) -> None:
        """What was taken is new; the regions at the frontier are used; priority is raised along the path."""
        page = self.config.page_tokens
        for piece in answer.taken:
            ends = range(piece.start + page, piece.end + 1, page) if piece.start < piece.end else (piece.end,)
            for end in ends:
                self.used[spot_of(key, end, piece.component)] = now
        for spot in self._regions(key, answer.frontier.length):
            self.used[spot] = now
            self.waiting.used(spot)
        for end in range(page, answer.frontier.length + 1, page):
            place = spot_of(key, end, FULL)[:2]
            self.priority[place] = max(self.priority[place], priority)

    def forget(self, places: Residency) -> None:
        """A page that left the tree starts anew when it comes back."""
        for spot in [spot for spot in self.hits if spot[:2] not in places]:
            del self.hits[spot]
        for place in [place for place in self.priority if place not in places]:
            del self.priority[place]

    def follow(self, markers: MarkerModel, places: Residency) -> None:
        """A call is over: who references what now, and what lies where."""
        if self.config.order is Order.ERT:
            self.waiting.follow(markers.holders(), markers.ends(), places)

    def lowest(self, snapshot: Snapshot, component: ComponentName, now: int) -> list[Spot]:
        """The candidates that share the smallest rank; ties by creation are not told apart."""
        ranked = {
            (page.namespace, page.path, component): self._rank(page, component, now)
            for page in snapshot.pages
            if self._may_go(page, snapshot, component)
        }
        smallest = min(ranked.values(), default=())
        return [spot for spot, rank in ranked.items() if rank == smallest]

    def why(self, spot: Spot, now: int) -> str:
        """A word on why the order `ert` ranks this piece as it does."""
        return self._turn(spot, now)[1]

    def later(self, spot: Spot, guest: Wait, now: int) -> bool:
        """Whether a piece is expected later than what a session that waits so has for itself."""
        return self._turn(spot, now)[0] < alone(guest, 0, now)[0]

    def _turn(self, spot: Spot, now: int) -> tuple[Turn, str]:
        return self.waiting.turn(spot, self.used[spot], now, self.hits[spot] > 0)

    def _regions(self, key: Key, boundary: int) -> list[Spot]:
        page = self.config.page_tokens
        return [
            spot_of(key, end, s.name) for s in self.config.specs for end in needed_pages(s, boundary, page)
        ]

    def _may_go(self, page: PageView, snapshot: Snapshot, component: ComponentName) -> bool:
        """Resident and unlocked; of FULL only the end of a path."""
        resident = any(name == component for name, _, _ in page.slots)
        if not resident or dict(page.locks).get(component, 0):
            return False
        return component != FULL or not any(
            other.namespace == page.namespace
            and other.path[: len(page.path)] == page.path
            and other is not page
            for other in snapshot.pages
        )

    def _rank(self, page: PageView, component: ComponentName, now: int) -> Rank:
        spot = (page.namespace, page.path, component)
        if self.config.order is Order.ERT:
            return (*self._turn(spot, now)[0], -len(page.path))
        base: Rank = (self.used[spot],)
        if self.config.base is OrderBase.LFU:
            base = (self.hits[spot], *base)
        elif self.config.base is OrderBase.PRIORITY:
            base = (self.priority[spot[:2]], *base)
        if self.config.order is Order.LRU:
            return (self.used[spot], -len(page.path))
        sessions = dict(page.references).get(component, 0)
        return (int(sessions > 0), sessions if component == FULL else 0, *base, -len(page.path))


def lost(before: Snapshot, after: Snapshot) -> set[Spot]:
    """The copies that a call took away."""

    def spots(snapshot: Snapshot) -> set[Spot]:
        return {(page.namespace, page.path, name) for page in snapshot.pages for name, _, _ in page.slots}

    return spots(before) - spots(after)


def taken_along(config: CoreConfig, component: ComponentName) -> set[ComponentName]:
    """What goes with a component in the same range: all with FULL, smaller windows and states with a window."""
    rules = {spec.name: spec.rule for spec in config.specs}
    rule = rules[component]
    if component == FULL:
        return set(rules) - {FULL}
    if not isinstance(rule, Window):
        return set()
    smaller = {
        name for name, other in rules.items() if isinstance(other, Window) and other.tokens <= rule.tokens
    }
    states = {name for name, other in rules.items() if isinstance(other, Checkpoint)}
    return (smaller | states) - {component}


def check_cascade(config: CoreConfig, before: Snapshot, after: Snapshot, component: ComponentName) -> None:
    """On the pages that stay: exactly what the evicted component takes along went with it, unless it was locked."""
    along = taken_along(config, component)
    locked = {(p.namespace, p.path, name) for p in before.pages for name, count in p.locks if count}
    held = {(p.namespace, p.path): {name for name, _, _ in p.slots} for p in before.pages}
    for page in after.pages:
        place, now = (page.namespace, page.path), {name for name, _, _ in page.slots}
        gone = held[place] - now
        if component in gone:
            spared = {name for name in along & held[place] if (*place, name) in locked}
            assert gone == ({component} | along) & held[place] - spared, f"{component} took {gone}"
        else:
            assert not gone, f"{component} was not evicted here, and yet {gone} went"
