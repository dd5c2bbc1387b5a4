"""What has happened and was not told yet: what a step computed is told once the time that it takes has passed."""

from collections.abc import Iterator

from agentcache.engine.api import Event
from agentcache.engine.computing import Pace


class Untold:
    """Events of an engine in the order of their happening; `events` is where they are put."""

    def __init__(self, pace: Pace) -> None:
        self.events: list[Event] = []
        self._pace = pace
        self._cut: set[str] = set()

    def cut(self, request_id: str) -> None:
        """Nobody waits for the rest of this request: what there is of it may be told at once."""
        self._cut.add(request_id)

    def take(self) -> list[Event]:
        """What may be told now: everything, or what concerns cut requests while the rest is still computed."""
        busy = self._pace.busy_ns()
        told = [event for event in self.events if not busy or event.request_id in self._cut]
        self.events[:] = [event for event in self.events if busy and event.request_id not in self._cut]
        self._cut.clear()
        return told

    def requests(self) -> Iterator[str]:
        """Ids of the requests, not cut, that something is still to be told of."""
        return (event.request_id for event in self.events if event.request_id not in self._cut)
