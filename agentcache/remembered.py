"""What a cache once kept, page by page: bounded, and cheap enough to be asked for every turn.

Pages go by numbers that name them and all that is before them. Memory: about 100 bytes a page.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from agentcache.keys import Key, Namespace
from agentcache.types import Tokens
from agentcache.why import Why

PAGES: Final = 131_072
"""Of so many pages at least, those used last, it is known whose they were; of twice as many at most."""

_SEED: Final = 20_261_130
_STRIDE: Final = 0x9E3779B97F4A7C15

Numbers = NDArray[np.uint64]


class PathNumbers:
    """Numbers for the pages of a path: a sum over all tokens up to a page's end, modulo 2**64, by odd factors.

    Two paths with one number are equal, but for one chance in 2**60 or so; who would look for such paths gains a wrong
    word about his own misses. Cost: about 1.5 ns a token, where the hashes of `keys.py` take 10.
    """

    def __init__(self, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        source = np.random.default_rng(_SEED)
        self._factors: Numbers = source.integers(0, 2**64, page_tokens, dtype=np.uint64) | np.uint64(1)
        self._strides: Numbers = np.ones(1, dtype=np.uint64)

    def of(self, key: Key, known: Sequence[int] = ()) -> list[int]:
        """One number a page of `key`; `known` are those of its first pages. Cost: of the pages behind these."""
        first, pages = len(known), len(key) // self._page_tokens
        if first >= pages:
            return list(known[:pages])
        tokens = key.tokens[first * self._page_tokens :].astype(np.uint64)
        edges = (tokens.reshape(pages - first, self._page_tokens) + np.uint64(1)) @ self._factors
        numbers = np.cumsum(edges * self._upto(pages)[first:], dtype=np.uint64)
        start = known[-1] if first else _start(key.namespace)
        return [*known, *(numbers + np.uint64(start)).tolist()]

    def _upto(self, pages: int) -> Numbers:
        """A factor for each place, so that pages in another order are another path."""
        if len(self._strides) < pages:
            powers = np.full(2 * pages, _STRIDE, dtype=np.uint64)
            powers[0] = 1
            self._strides = np.cumprod(powers, dtype=np.uint64)
        return self._strides[:pages]


@lru_cache(maxsize=1024)
def _start(namespace: Namespace) -> int:
    return int.from_bytes(namespace.digest()[:8], "little")


def shared_tokens(one: Tokens, other: Tokens) -> int:
    """How many leading tokens are the same. Cost: about 0.4 ns a token."""
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    at = int(differs.argmax()) if length else 0
    return at if length and differs[at] else length


@dataclass(slots=True, eq=False)
class Owner:
    """Who had pages last: a session between two closes. `why` is what it means that they are gone."""

    why: Why = Why.EVICTED


NO_ROOM: Final = Owner(Why.NO_ROOM)
FLUSHED: Final = Owner(Why.FLUSHED)
UNSURE: Final = Owner(Why.UNKNOWN)


class Remembered:
    """Whose pages were last, and at which of them a turn could have gone on. Those not used for long are forgotten."""

    def __init__(self, pages: int = PAGES) -> None:
        self._most = pages
        self._young: dict[int, Owner] = {}
        self._old: dict[int, Owner] = {}
        self._ends: set[int] = set()
        self._old_ends: set[int] = set()
        self.forgot = False
        """Something was kept that is not remembered any more."""

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def keep(self, numbers: Sequence[int], owner: Owner, ends: Iterable[int] = ()) -> None:
        """These pages are its own from now on; a turn can go on at those of `ends`. Cost: 0.1 µs a page."""
        self._young.update(zip(numbers, repeat(owner)))
        self._ends.update(ends)
        if len(self._young) > self._most:
            self.forgot = self.forgot or bool(self._old)
            self._old, self._young = self._young, {}
            self._old_ends, self._ends = self._ends, set()

    def owner(self, number: int) -> Owner | None:
        """None: nobody that is remembered has had it."""
        return self._young.get(number) or self._old.get(number)

    def was_end(self, number: int) -> bool:
        """Whether a turn could have gone on behind this page."""
        return number in self._ends or number in self._old_ends

    def emptied(self, owner: Owner) -> None:
        """Everything that was there is gone at once. Cost: O(pages remembered)."""
        known = {**self._old, **self._young}
        self._young = {number: had if had is NO_ROOM else owner for number, had in known.items()}
        self._old = {}
