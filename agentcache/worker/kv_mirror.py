"""What a worker has told of its pages: all that a reader would know who has heard every event."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentcache.kv_events import AllBlocksCleared, BlockEvent, Groups
from agentcache.types import FULL, ComponentName, Event, EventKind, TierName

Place = tuple[ComponentName, TierName]


@dataclass(slots=True)
class _Page:
    """One page: the hash before it, its tokens as packed numbers, and where it is."""

    parent: bytes | None = None
    tokens: bytes = b""
    places: dict[Place, None] = field(default_factory=dict)


class Mirror:
    """Follows the events of one cache. Pages stand in the order of their coming, so parents before children.

    Memory  as much as the tokens of the resident pages, and about 500 bytes a page
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._pages: dict[bytes, _Page] = {}
        self._cleared = False

    def __len__(self) -> int:
        return len(self._pages)

    def take(self, event: Event) -> list[BlockEvent]:
        """Follow one event, and say how it is told. Cost O(its pages)."""
        if event.kind is EventKind.CLEARED:
            return self.clear()
        self._cleared = False
        if event.kind is EventKind.REMOVED:
            self._remove(event)
            return [self._groups.told(event)]
        if event.component == FULL:
            self._store(event)
            return [self._groups.told(event)]
        place = (event.component, event.tier)
        for page_hash in event.hashes:
            self._pages.setdefault(page_hash, _Page()).places[place] = None
        return [self._told(run, place) for run in self._runs(event.hashes)]

    def clear(self) -> list[BlockEvent]:
        """Nothing is there; told once, however many tiers say so."""
        told: list[BlockEvent] = [] if self._cleared else [AllBlocksCleared()]
        self._pages.clear()
        self._cleared = True
        return told

    def snapshot(self) -> Iterator[BlockEvent]:
        """All that is there, for somebody who knows nothing or something else. Cost O(resident tokens)."""
        yield AllBlocksCleared()
        for run in self._runs(self._pages):
            for place in self._pages[run[0]].places:
                yield self._told(run, place)

    def _store(self, event: Event) -> None:
        """Pages of full attention bring their tokens."""
        packed = array("I", event.tokens).tobytes()
        size = len(packed) // len(event.hashes)
        parent = event.parent
        for at, page_hash in enumerate(event.hashes):
            page = self._pages.setdefault(page_hash, _Page())
            page.parent, page.tokens = parent, packed[at * size : (at + 1) * size]
            page.places[FULL, event.tier] = None
            parent = page_hash

    def _remove(self, event: Event) -> None:
        """What is not there is gone already."""
        for page_hash in event.hashes:
            page = self._pages.get(page_hash, _Page())
            page.places.pop((event.component, event.tier), None)
            if not page.places:
                self._pages.pop(page_hash, None)

    def _runs(self, hashes: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Pages that follow one another and lie in the same places: an event tells of such a run."""
        run: list[bytes] = []
        for page_hash in hashes:
            page = self._pages[page_hash]
            if run and (page.parent != run[-1] or page.places.keys() != self._pages[run[-1]].places.keys()):
                yield run
                run = []
            run.append(page_hash)
        if run:
            yield run

    def _told(self, run: list[bytes], place: Place) -> BlockEvent:
        component, tier = place
        tokens = array("I", b"".join(self._pages[page_hash].tokens for page_hash in run))
        parent = self._pages[run[0]].parent
        return self._groups.told(
            Event(EventKind.STORED, tier, tuple(run), parent, tuple(tokens), component=component)
        )
