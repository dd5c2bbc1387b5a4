"""Design §4.5 over plain tuples: which markers each session has, where they lie, and what they reference.

It shares no code with a core: paths are token tuples, and boundaries are put to the vote of `tests/oracle.py`.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from agentcache.keys import Key, Namespace
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.types import ComponentName, ReleaseMode, TierName
from agentcache.views import Snapshot
from tests.oracle import Poll, Residency, needed_pages

Spot = tuple[str, tuple[int, ...], ComponentName]
Referenced = Counter[Spot]
Seen = tuple[str, int, int, int, int, int, bool]


@dataclass(eq=False)
class Branch:
    """What stays the same while a marker moves forward."""

    left_for: "Branch | None" = None

    def ends_at(self, there: Sequence["Branch"]) -> "Branch":
        """The branch that the session went on with, after however many turns away from this one, by those there."""
        return self.left_for.ends_at(there) if self.left_for and self.left_for in there else self


@dataclass
class Mark:
    """One marker: the path to its frontier, and the length of its alternate on that path (0: none)."""

    space: Namespace
    path: tuple[int, ...]
    alternate: int
    generation: int
    start: int
    finish: int
    branch: Branch = field(default_factory=Branch)

    def on(self, other: "Mark") -> bool:
        return self.space == other.space and other.path[: len(self.path)] == self.path


class MarkerModel:
    """The markers of all sessions."""

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.marks: dict[str, list[Mark]] = {}
        self.moved = 0  # markers that an eviction moved up, for coverage

    def register(self, session: str, new: Mark, superseded: bool) -> None:
        """A finished turn: markers on its path move forward to it, others are left, kept or let go."""
        before = self.marks.get(session, [])
        passed = [mark for mark in before if mark.on(new)]
        others = [mark for mark in before if not mark.on(new) and mark.generation >= new.generation]
        if superseded:
            others = [mark for mark in others if mark.finish >= new.start]
        ahead = max(passed, key=lambda mark: len(mark.path), default=None)
        if ahead:
            new.branch = ahead.branch
            goes_on = ahead.branch.left_for is None and len(new.path) > len(ahead.path)
            there = [ahead.branch, *(mark.branch for mark in others)]
            others = [mark for mark in others if not (goes_on and mark.branch.ends_at(there) is ahead.branch)]
        new.branch.left_for = None
        there = [mark.branch for mark in others]
        for mark in others:
            if mark.finish < new.start and mark.branch.left_for not in there:
                mark.branch.left_for = new.branch
        newest = sorted([*others, new], key=lambda mark: mark.finish)
        self.marks[session] = newest[-self.config.max_markers :]

    def release(self, session: str, through: int) -> None:
        self.marks[session] = [mark for mark in self.marks.get(session, []) if mark.generation > through]

    def settle(self, places: Residency) -> None:
        """Data may have gone: each marker moves up to the deepest boundary that still votes, or goes."""
        for session, marks in self.marks.items():
            self.marks[session] = [mark for mark in marks if self._settled(mark, places)]

    def _settled(self, mark: Mark, places: Residency) -> bool:
        key = Key(np.asarray(mark.path, dtype=np.int32), mark.space)
        poll = Poll(places, key, self.config)
        depth = poll.deepest(len(mark.path))
        self.moved += depth < len(mark.path)
        mark.alternate = poll.deepest(mark.alternate)
        mark.path = mark.path[:depth]
        return depth > 0

    def seen(self) -> list[Seen]:
        """What `snapshot` must show, in any order."""
        return sorted(
            (name, m.generation, len(m.path), m.alternate, m.start, m.finish, m.branch.left_for is not None)
            for name, marks in self.marks.items()
            for m in marks
        )

    def references(self, without: str = "", through: int = 0) -> Referenced:
        """Sessions per (place, component), counted.

        The markers of session `without` up to generation `through` do not count.
        """
        return Counter({spot: len(held) for spot, held in self.holders(without, through).items()})

    def holders(self, without: str = "", through: int = 0) -> dict[Spot, frozenset[str]]:
        """Who references each (place, component): the union of the regions of each session's markers."""
        found: defaultdict[Spot, set[str]] = defaultdict(set)
        for session, marks in self.marks.items():
            kept = [mark for mark in marks if session != without or mark.generation > through]
            for spot in {spot for mark in kept for spot in self._region(mark)}:
                found[spot].add(session)
        return {spot: frozenset(sessions) for spot, sessions in found.items()}

    def ends(self) -> dict[str, frozenset[tuple[str, tuple[int, ...]]]]:
        """Where the markers of each session lie."""
        return {
            session: frozenset((mark.space.digest().hex(), mark.path) for mark in marks)
            for session, marks in self.marks.items()
        }

    def _region(self, mark: Mark) -> set[Spot]:
        space = mark.space.digest().hex()
        return {
            (space, mark.path[:end], spec.name)
            for boundary in (len(mark.path), mark.alternate)
            for spec in self.config.specs
            for end in needed_pages(spec, boundary, self.config.page_tokens)
        }


def shown_markers(snapshot: Snapshot) -> list[Seen]:
    return sorted(
        (str(v.session), v.generation, v.frontier, v.alternate, v.start_seq, v.finish_seq, v.left)
        for v in snapshot.markers
    )


def check_previews(core: UnifiedTreeCore, snapshot: Snapshot, now_ns: int) -> None:
    """All sessions together hold what is referenced, and alone what has one reference."""
    told: Counter[tuple[str, ComponentName, TierName]] = Counter()
    for session in {marker.session for marker in snapshot.markers}:
        for held in core.release(session, 2**62, ReleaseMode.PREVIEW, now_ns).held:
            told["held", held.component, held.tier] += held.slots
            told["alone", held.component, held.tier] += held.slots - held.shared_slots
    there: Counter[tuple[str, ComponentName, TierName]] = Counter()
    for page in snapshot.pages:
        counts = dict(page.references)
        for component, tier, _ in page.slots:
            there["held", component, tier] += counts.get(component, 0)
            there["alone", component, tier] += counts.get(component, 0) == 1
    assert +told == +there


def shown_references(snapshot: Snapshot) -> Referenced:
    found: Referenced = Counter()
    for page in snapshot.pages:
        for component, count in page.references:
            found[page.namespace, page.path, component] += count
    return +found
