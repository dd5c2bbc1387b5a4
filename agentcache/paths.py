"""Where each open session's last turn ended: the path that it is expected to go on with."""

from collections import OrderedDict
from collections.abc import Callable

from agentcache.keys import Key
from agentcache.types import SessionId

MOST_TOKENS = 32 * 2**20
"""Of all paths, at 4 bytes each; those put longest ago are forgotten first."""


class Paths:
    """The path of each session's last registered turn, cut at its frontier, until the session lets go of it."""

    def __init__(self, most_tokens: int = MOST_TOKENS) -> None:
        self._most_tokens = most_tokens
        self._tokens = 0
        self._kept: OrderedDict[SessionId, Key] = OrderedDict()
        self._generations: dict[SessionId, int] = {}

    def of(self, session: SessionId) -> Key | None:
        """None where no turn has registered since the session was opened, or where its path was forgotten."""
        return self._kept.get(session)

    def has(self, session: SessionId) -> bool:
        """Whether a turn of the session has registered since it was opened."""
        return session in self._generations

    def generation(self, session: SessionId) -> int:
        """In which the last turn of the session has registered since it was opened; 0: none has."""
        return self._generations.get(session, 0)

    def put(self, session: SessionId, generation: int, path: Key, frontier: int) -> None:
        """A turn of the session has registered up to `frontier` tokens of `path`."""
        self._forget(session)
        self._generations[session] = generation
        whole = frontier == len(path)
        self._kept[session] = path if whole else Key(path.tokens[:frontier].copy(), path.namespace)
        self._tokens += frontier
        while self._tokens > self._most_tokens:
            self._forget(next(iter(self._kept)))

    def release(self, session: SessionId, through_generation: int) -> None:
        """The session's references through this generation are let go of."""
        if self._generations.get(session, through_generation + 1) <= through_generation:
            del self._generations[session]
            self._forget(session)

    def check(self, may_hold: Callable[[SessionId, int], bool]) -> None:
        """AssertionError where something is kept of a session that is not open, or too much."""
        for session, generation in self._generations.items():
            assert may_hold(session, generation), f"the path of {session} is kept for nobody"
        assert self._kept.keys() <= self._generations.keys()
        assert self._tokens == sum(map(len, self._kept.values())) <= self._most_tokens

    def _forget(self, session: SessionId) -> None:
        if session in self._kept:
            self._tokens -= len(self._kept.pop(session))
