"""The boundary vote written a second time, from design §2 alone, over explicit dictionaries.

Slow and obvious on purpose: it looks at every page of every region for every candidate. It judges the cores.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from agentcache.keys import Key
from agentcache.tree.api import CoreConfig
from agentcache.types import (
    FULL,
    Checkpoint,
    ComponentName,
    ComponentSpec,
    MissReason,
    Path,
    TierName,
    Window,
)
from agentcache.views import Snapshot

Place = tuple[str, tuple[int, ...]]  # namespace digest, tokens up to the end of a page
Residency = dict[Place, dict[tuple[ComponentName, TierName], int]]
Line = dict[int, frozenset[tuple[ComponentName, TierName]]]  # page end on one key → what lies there
Tiers = frozenset[TierName]

DEVICE_ONLY = frozenset({TierName.DEVICE})
ANY_TIER = frozenset({TierName.DEVICE, TierName.HOST})


@dataclass(frozen=True, slots=True)
class Vote:
    """What `match` must answer, in positions."""

    device: int
    any_tier: int
    full_tokens: int
    miss: tuple[ComponentName, int, MissReason] | None


def residency(snapshot: Snapshot) -> Residency:
    """The snapshot as a dictionary; a place or a slot named twice is a fault."""
    places: Residency = {}
    for page in snapshot.pages:
        place = (page.namespace, page.path)
        assert place not in places, f"two nodes hold the page that ends {page.path[-1:]} at {len(page.path)}"
        places[place] = {(component, tier): slot for component, tier, slot in page.slots}
        assert len(places[place]) == len(page.slots), "one component twice on one tier"
    return places


def needed_pages(spec: ComponentSpec, boundary: int, page_tokens: int) -> Iterator[int]:
    """The page ends (absolute tokens) that must hold data of `spec` for a request to resume at `boundary`."""
    rule = spec.rule
    if isinstance(rule, Checkpoint):
        if boundary:
            yield boundary
        return
    first = 0
    if isinstance(rule, Window):
        first = max(0, boundary - rule.tokens)
    elif not isinstance(rule, Path):
        raise TypeError(rule)
    for end in range(page_tokens, boundary + 1, page_tokens):
        if end > first:
            yield end


def line_of(places: Residency, key: Key, config: CoreConfig) -> Line:
    """What lies along one key, by page end."""
    space, tokens = key.namespace.digest().hex(), tuple(key.tokens.tolist())
    ends = range(config.page_tokens, len(tokens) + 1, config.page_tokens)
    return {end: frozenset(places.get((space, tokens[:end]), ())) for end in ends}


def holds(line: Line, spec: ComponentSpec, boundary: int, page_tokens: int, tiers: Tiers) -> bool:
    """Is the whole region of one component there, each page on one of `tiers`?"""
    return all(
        any((spec.name, tier) in line.get(end, ()) for tier in tiers)
        for end in needed_pages(spec, boundary, page_tokens)
    )


def votes(line: Line, boundary: int, config: CoreConfig, tiers: Tiers) -> bool:
    """Do all components accept this boundary?"""
    return all(holds(line, spec, boundary, config.page_tokens, tiers) for spec in config.specs)


class Poll:
    """All candidates of one key put to the vote once; answers for every limit."""

    def __init__(self, places: Residency, key: Key, config: CoreConfig) -> None:
        self.config = config
        self.line = line_of(places, key, config)
        candidates = range(0, len(key) + 1, config.grid)
        self._accepted = {
            tiers: [n for n in candidates if votes(self.line, n, config, tiers)]
            for tiers in (DEVICE_ONLY, ANY_TIER)
        }
        ends = range(0, len(key) + 1, config.page_tokens)
        full = config.specs[0]
        self._full = [n for n in ends if holds(self.line, full, n, config.page_tokens, ANY_TIER)]
        self._length = len(key)

    def deepest(self, limit: int, tiers: Tiers = ANY_TIER) -> int:
        """The deepest boundary on the grid, not beyond `limit`, that every component accepts. 0 always does."""
        return max(n for n in self._accepted[tiers] if n <= limit)

    def full_tokens(self, limit: int) -> int:
        """How far FULL alone goes on any tier, in whole pages, not beyond `limit`."""
        return max(n for n in self._full if n <= limit)

    def vote(self, limit: int) -> Vote:
        """Everything that `match` answers."""
        device = self.deepest(limit, DEVICE_ONLY)
        return Vote(device, self.deepest(limit), self.full_tokens(limit), self._miss(limit, device))

    def _miss(self, limit: int, device: int) -> tuple[ComponentName, int, MissReason] | None:
        """Why `device` is not deeper: the deepest refused candidate on the FULL path, else the end of FULL itself."""
        if device == min(limit, self._length) // self.config.grid * self.config.grid:
            return None
        full = self.full_tokens(limit)
        candidate = full // self.config.grid * self.config.grid
        if candidate <= device:
            return FULL, full, MissReason.NOT_CACHED
        for tiers in (ANY_TIER, DEVICE_ONLY):
            for spec in self.config.specs:
                if not holds(self.line, spec, candidate, self.config.page_tokens, tiers):
                    return spec.name, candidate, _reason(spec, tiers)
        raise AssertionError("the candidate votes, so it is not deeper than `device`")


def _reason(spec: ComponentSpec, tiers: Tiers) -> MissReason:
    if tiers is DEVICE_ONLY:
        return MissReason.ON_HOST
    return MissReason.NO_CHECKPOINT if isinstance(spec.rule, Checkpoint) else MissReason.WINDOW_GAP
