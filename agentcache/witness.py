"""Who hears first what happens to sessions, and can say of each how it is and how it came to that."""

from dataclasses import dataclass
from typing import Final

from agentcache.clock import Clock
from agentcache.frontiers import Frontiers
from agentcache.holdings import SessionView
from agentcache.session_events import NOBODY, Happening, SessionEvent, SessionSink
from agentcache.shown import ShownSessions, Waiting
from agentcache.turn_history import SeenTurn, TurnHistory
from agentcache.types import SessionId

ENDED: Final = frozenset({Happening.CLOSED, Happening.EXPIRED, Happening.MOVED})


@dataclass(frozen=True, slots=True)
class Explained:
    """A session as it is, and how it came to that. `children` are open, and `child_count` how many there are of them.

    `turns`: the last ones, newest first.
    """

    view: SessionView
    children: tuple[SessionId, ...]
    child_count: int
    waiting: Waiting
    turns: tuple[SeenTurn, ...]


class Witness:
    """Hears what happens to the sessions of one cache before whoever else listens."""

    listening = True

    def __init__(
        self, history: TurnHistory, frontiers: Frontiers, shown: ShownSessions, clock: Clock
    ) -> None:
        self._history = history
        self._frontiers = frontiers
        self._shown = shown
        self._clock = clock
        self._sink: SessionSink = NOBODY
        shown.tell(self)

    def happened(self, event: SessionEvent) -> None:
        if event.what is Happening.CLOSED:
            self._history.closed(event.session)
        if event.what in ENDED:
            self._frontiers.release(event.session)
        self._sink.happened(event)

    def tell(self, sink: SessionSink) -> None:
        """From now on this one listens."""
        self._sink = self._frontiers.sink = sink

    def explain(self, view: SessionView) -> Explained:
        """A session as it is by this view. Cost: O(its subtree)."""
        now = self._clock.now_ns()
        children, count = self._shown.children(view.session)
        waiting = self._shown.waiting(view.session, now)
        return Explained(view, children, count, waiting, self._history.turns(view.session))
