"""Which pages outside are wanted back by open sessions: the mirror of their references as soft classes."""

from collections import Counter
from collections.abc import Iterable

from agentcache.types import SessionId


class Keeping:
    """Per session the page hashes of its last registered path. A page that several sessions want counts for each."""

    def __init__(self) -> None:
        self._paths: dict[SessionId, tuple[bytes, ...]] = {}
        self._wanted: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._paths)

    def wants(self, page: bytes) -> bool:
        """Whether an open session wants this page back."""
        return page in self._wanted

    def path(self, session: SessionId) -> tuple[bytes, ...]:
        """What a session wants back; nothing where that is not known."""
        return self._paths.get(session, ())

    def hold(self, session: SessionId, path: tuple[bytes, ...]) -> tuple[list[bytes], list[bytes]]:
        """The session wants this path now. Answers the pages that somebody wants since, and those that nobody does."""
        before = self._paths.get(session, ())
        shared = _shared(before, path)
        self._paths[session] = path
        gained = [page for page in path[shared:] if not self._wanted[page]]
        self._wanted.update(path[shared:])
        return gained, self._let_go(before[shared:])

    def release(self, session: SessionId) -> list[bytes]:
        """The session wants nothing any more. Answers the pages that nobody wants since."""
        return self._let_go(self._paths.pop(session, ()))

    def _let_go(self, pages: Iterable[bytes]) -> list[bytes]:
        gone = []
        for page in pages:
            self._wanted[page] -= 1
            if not self._wanted[page]:
                del self._wanted[page]
                gone.append(page)
        return gone


def _shared(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> int:
    """How many pages two paths have in common: a page's hash names all before it."""
    length = min(len(one), len(other))
    if one[:length] == other[:length]:
        return length
    return next(at for at in range(length) if one[at] != other[at])
