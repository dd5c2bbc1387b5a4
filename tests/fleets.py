"""Workers for tests of placement: cards, views, and a roster that can fall silent."""

from collections.abc import Iterable
from typing import Any

from agentcache.errors import CacheError, Kind
from agentcache.router.fleet import WorkerView
from agentcache.store.api import WorkerEntry
from agentcache.wire import ComponentCard, WorkerCard, WorkerLoad

PAGE = 4
FULL_ALONE = (ComponentCard("FULL", "path", 0),)


def card_of(worker: str, **more: Any) -> WorkerCard:
    """A card; `more` are its fields. Pages and chunks of four tokens, eight seats, 64 may wait."""
    said: dict[str, Any] = {
        "incarnation": "first",
        "url": f"http://127.0.0.1/{worker}",
        "model": "m",
        "context_tokens": 4096,
        "page_tokens": PAGE,
        "grid_tokens": PAGE,
        "seats": 8,
        "queue_limit": 64,
        "components": FULL_ALONE,
        "namespace": ("m", "", "", ""),
    }
    return WorkerCard(worker, **(said | more))


def view_of(worker: str, load: int = 0, **more: Any) -> WorkerView:
    """A worker as a router sees it, with so many requests; `more` are fields of the view."""
    return WorkerView(worker, f"http://127.0.0.1/{worker}", in_flight=load, **more)


class Heard:
    """A roster: what workers last said. `down`: it does not answer."""

    def __init__(self, *cards: WorkerCard) -> None:
        self.down = False
        self._now_ms = 0
        self._entries: dict[str, WorkerEntry] = {}
        self.hear(*cards)

    def hear(self, *cards: WorkerCard, **load: Any) -> None:
        """These report, all with this load, later than whatever was heard before."""
        self._now_ms += 1
        for card in cards:
            self._entries[card.worker] = WorkerEntry(card, WorkerLoad(**load), True, self._now_ms)

    def change(self, entry: WorkerEntry) -> None:
        self._entries[entry.card.worker] = entry

    def entry(self, worker: str) -> WorkerEntry:
        return self._entries[worker]

    def lose(self, workers: Iterable[str]) -> None:
        for worker in workers:
            del self._entries[worker]

    async def workers(self) -> tuple[WorkerEntry, ...]:
        if self.down:
            raise CacheError(Kind.STORE_FAILED, "no answer")
        return tuple(self._entries.values())
