"""What somebody knows who hears placement events and nothing else; an event that makes no sense then is an error."""

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

import numpy as np

from agentcache.keys import chain
from agentcache.tree.api import CoreConfig
from agentcache.types import FULL, ComponentName, Effects, Emit, Event, EventKind, TierName
from tests.oracle import Place, Residency

Shelf = tuple[ComponentName, TierName]
Index = dict[Shelf, set[bytes]]


class Listener:
    """An index of page hashes by component and tier, from events alone."""

    def __init__(self, config: CoreConfig) -> None:
        self._config = config
        self._order = [spec.name for spec in config.specs]
        self._held: Index = defaultdict(set)

    @property
    def index(self) -> Index:
        """What there is by now; shelves without anything are left out."""
        return {shelf: set(hashes) for shelf, hashes in self._held.items() if hashes}

    def hear(self, effects: Effects) -> list[Event]:
        """The events of one call, in the order that decisions/0008 gives them."""
        events = [effect.event for effect in effects if isinstance(effect, Emit)]
        assert self._config.emit_events or not events, "events that nobody asked for"
        assert events == sorted(events, key=self._rank), events
        told = [(event.kind, event.component, event.tier) for event in events if not _is_run(event)]
        assert len(told) == len(set(told)), f"told in two: {told}"
        for event in events:
            self._hear(event)
        return events

    def agree(self, places: Residency) -> None:
        """The index equals what lies in the tree, on every tier and of every component."""
        if self._config.emit_events:
            assert self.index == index_of(places, self._config.page_tokens)

    def _rank(self, event: Event) -> tuple[int, ...]:
        """Stored, removed, cleared; FULL stored first and removed last; the device first."""
        kinds, tiers = (EventKind.STORED, EventKind.REMOVED, EventKind.CLEARED), (*TierName,)
        place = self._order.index(event.component)
        sign = -1 if event.kind is EventKind.REMOVED else 1
        return kinds.index(event.kind), sign * place, tiers.index(event.tier)

    def _hear(self, event: Event) -> None:
        held, hashes = self._held[event.component, event.tier], set(event.hashes)
        assert bool(hashes) == (event.kind is not EventKind.CLEARED)
        assert len(hashes) == len(event.hashes), "a hash told twice"
        if _is_run(event):
            assert event.parent is None or event.parent in self._anywhere(), "a parent that nobody told of"
            assert not hashes & held, "stored twice"
            _demand_chain(event, self._config.page_tokens)
            held |= hashes
            return
        assert (event.parent, event.tokens) == (None, ()), event
        if event.kind is EventKind.CLEARED:
            self._clear(event.tier)
            return
        if event.kind is EventKind.STORED:
            assert not hashes & held, "stored twice"
            held |= hashes
        else:
            assert hashes <= held, "removed what was not there"
            held -= hashes
        self._demand_ground()

    def _clear(self, tier: TierName) -> None:
        for (_, place), held in self._held.items():
            if place is tier:
                held.clear()

    def _anywhere(self) -> set[bytes]:
        return self._held[FULL, TierName.DEVICE] | self._held[FULL, TierName.HOST]

    def _demand_ground(self) -> None:
        """After every single event, but between those of a clear: no window page and no state where no FULL is."""
        ground = self._anywhere()
        for (name, tier), held in self._held.items():
            assert held <= ground, f"{name} on {tier} without FULL"


def _is_run(event: Event) -> bool:
    """Whether the event tells of stored FULL, one run of a path."""
    return event.kind is EventKind.STORED and event.component == FULL


def _demand_chain(event: Event, page_tokens: int) -> None:
    """Every page's hash follows from the one before and its tokens; before the first page of all is a namespace."""
    edges = np.array(event.tokens, dtype="<i4").reshape(len(event.hashes), page_tokens)
    links = list(pairwise((event.parent, *event.hashes)))
    for (above, below), edge in zip(links, edges, strict=True):
        assert above is None or chain(above, edge.tobytes()) == below


@lru_cache(maxsize=20_000)
def _hash_of(place: Place, page_tokens: int) -> bytes:
    """The page hash of a place: the last of `keys.page_hashes` of the path to it."""
    space, path = place
    above, edge = path[:-page_tokens], np.array(path[-page_tokens:], dtype="<i4").tobytes()
    return chain(_hash_of((space, above), page_tokens) if above else bytes.fromhex(space), edge)


def index_of(places: Residency, page_tokens: int) -> Index:
    """The index that a tree ought to have told."""
    index: Index = defaultdict(set)
    for place, held in places.items():
        for shelf in held:
            index[shelf].add(_hash_of(place, page_tokens))
    return dict(index)


def shelves(events: Iterable[Event]) -> list[tuple[EventKind, ComponentName, TierName]]:
    """What each event is about."""
    return [(event.kind, event.component, event.tier) for event in events]
