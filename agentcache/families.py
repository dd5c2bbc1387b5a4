"""Who descends from whom on one worker, and how many of a session's children are open. Ids only; costs are O(1)."""

from collections import Counter
from collections.abc import Iterator

from agentcache.types import SessionId


class Families:
    """Children by parent, known or forgotten. A child is linked to one parent at most."""

    def __init__(self) -> None:
        self._children: dict[SessionId, dict[SessionId, None]] = {}
        self._open: Counter[SessionId] = Counter()

    def move(
        self, child: SessionId, before: SessionId | None, parent: SessionId | None, is_open: bool
    ) -> None:
        """Link a child to a parent, or to none. Caller: `before` is its parent now, `is_open` its own state."""
        if before is not None:
            siblings = self._children[before]
            del siblings[child]
            if not siblings:
                del self._children[before]
            if is_open:
                self.ended(before)
        if parent is not None:
            self._children.setdefault(parent, {})[child] = None
            if is_open:
                self.opened(parent)

    def opened(self, parent: SessionId) -> None:
        """One more of its children is open."""
        self._open[parent] += 1

    def ended(self, parent: SessionId) -> None:
        """One of its children is no longer open."""
        self._open[parent] -= 1
        if not self._open[parent]:
            del self._open[parent]

    def is_wanted(self, parent: SessionId) -> bool:
        """Whether a child of it is open."""
        return parent in self._open

    def below(self, session: SessionId) -> Iterator[SessionId]:
        """Children, their children and so on, parents first, also through those that have ended."""
        reached = [session]
        for parent in reached:
            reached.extend(self._children.get(parent, ()))
        return iter(reached[1:])
