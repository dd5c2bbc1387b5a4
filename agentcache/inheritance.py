"""What forked sessions inherit: their parent's path, until their own first turn has registered (decision 0020)."""

from collections.abc import Callable

from agentcache.keys import Key
from agentcache.paths import Paths
from agentcache.tree.api import UnifiedTreeCore
from agentcache.types import Boundary, Released, SessionId, Turn

BEFORE_EVERY_TURN = 0
"""The sequence number of what is inherited: the first turn that registers comes after it."""


class Inheritance:
    """The heirs: sessions that inherited and have no turn yet, with the generation that they inherited in."""

    def __init__(self, core: UnifiedTreeCore, paths: Paths) -> None:
        self._core = core
        self._paths = paths
        self._heirs: dict[SessionId, int] = {}

    def fork(self, child: SessionId, generation: int, parent: SessionId, now_ns: int) -> Released | None:
        """Let the child reference the parent's frontier as it is now; None, and no change, where that is not to be.

        That is where the child has inherited or registered since it was opened, and where the parent has left nothing.
        Cost  O(what the parent's frontier references)
        """
        path = self._paths.of(parent)
        if not path or child in self._heirs or self._paths.has(child):
            return None
        frontier = deepest(self._core, path, len(path))
        if not frontier:
            return None
        self._heirs[child] = generation
        at = Turn(frontier, None, BEFORE_EVERY_TURN, BEFORE_EVERY_TURN)
        return self._core.reference(child, generation, at, now_ns)

    def takes_over(self, child: SessionId) -> bool:
        """A turn of the session registers. True: it is an heir's first, and takes the place of what was inherited."""
        return self._heirs.pop(child, None) is not None

    def release(self, session: SessionId, through_generation: int) -> None:
        """The session's references through this generation are let go of."""
        if self._heirs.get(session, through_generation + 1) <= through_generation:
            del self._heirs[session]

    def check(self, may_hold: Callable[[SessionId, int], bool]) -> None:
        """AssertionError where a session that is not open is an heir."""
        for session, generation in self._heirs.items():
            assert may_hold(session, generation), f"{session} is no heir any more"


def deepest(core: UnifiedTreeCore, path: Key, limit: int) -> Boundary | None:
    """The deepest boundary of a path not beyond `limit` on any tier; None when that is the root."""
    found = core.peek(path, max(0, min(limit, len(path)))).any_tier
    return found if found.length else None
