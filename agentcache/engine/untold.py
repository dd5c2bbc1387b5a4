"""What has happened and was not told yet: what a step computed is told once the time that it takes has passed.

The end of a request that hands its path over is told when the path is where others can load it.
"""

from collections.abc import Iterator
from dataclasses import replace

from agentcache.engine.api import Event, Finished
from agentcache.engine.computing import Pace
from agentcache.handing import Handing


class Untold:
    """Events of an engine in the order of their happening; `events` is where they are put."""

    def __init__(self, pace: Pace, handing: Handing) -> None:
        self.events: list[Event] = []
        self._pace = pace
        self._handing = handing
        self._handed: dict[str, tuple[int, Finished]] = {}
        self._cut: set[str] = set()

    @property
    def nothing(self) -> bool:
        """All was told."""
        return not (self.events or self._handed)

    def when_stored(self, turn: int, end: Finished) -> None:
        """Tell the end of a turn once what it hands over is there, or will not come."""
        self._handed[end.request_id] = (turn, end)

    def cut(self, request_id: str) -> None:
        """Nobody waits for the rest of this request: what there is of it may be told at once."""
        self._cut.add(request_id)

    def take(self) -> list[Event]:
        """What may be told now: everything, or what concerns cut requests while the rest is still computed."""
        self._settle()
        busy = self._pace.busy_ns()
        told = [event for event in self.events if not busy or event.request_id in self._cut]
        self.events[:] = [event for event in self.events if busy and event.request_id not in self._cut]
        self._cut.clear()
        return told

    def requests(self) -> Iterator[str]:
        """Ids of the requests, not cut, that something is still to be told of."""
        names = (*(event.request_id for event in self.events), *self._handed)
        return (name for name in names if name not in self._cut)

    def _settle(self) -> None:
        """The ends whose paths have arrived, or that nobody waits for."""
        for request_id, (turn, end) in tuple(self._handed.items()):
            stored = self._handing.stored(turn)
            if stored is None and request_id not in self._cut:
                continue
            del self._handed[request_id]
            self._handing.forget(turn)
            self.events.append(replace(end, stored_tokens=stored or 0))
