"""Those that wait: which of them begins next, and when the others can be expected to."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Final, Generic, TypeVar

from agentcache.errors import CacheError, Kind
from agentcache.records import NEVER_NS
from agentcache.waits import Throughput, moved

PATIENCE = 16
"""How often the oldest may be passed over before it goes first whatever its prefix."""

T = TypeVar("T")


class PrefillOrder(StrEnum):
    """Who is admitted next: the oldest, or whose prompt is cached best. Ties go by age."""

    FCFS = "fcfs"
    LONGEST_PREFIX = "longest_prefix"
    LEAST_UNCACHED = "least_uncached"


@dataclass(frozen=True, slots=True)
class Asked:
    """The tokens of a waiting prompt, and how many of them are cached."""

    prompt_tokens: int
    cached_tokens: int

    @property
    def uncached_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens


NOT_LOOKED: Final = Asked(0, 0)


@dataclass(slots=True)
class _Place(Generic[T]):
    """One that waits: what it asked for when last looked at, and the start that was last told of it."""

    item: T
    asked: Asked = NOT_LOOKED
    start_ns: int = NEVER_NS


class WaitingQueue(Generic[T]):
    """A bounded queue in order of arrival, of whatever waits.

    A cache-aware order looks at everything that waits, once for each that begins, and foretells the others' starts from
    that. `rate` is how fast prompts are computed; its user lets it read, or knows.
    """

    def __init__(
        self, limit: int, order: PrefillOrder = PrefillOrder.FCFS, rate: Throughput | None = None
    ) -> None:
        self.rate = rate or Throughput()
        self._limit = limit
        self._order = order
        self._waiting: dict[str, _Place[T]] = {}
        self._passed = 0
        self._ahead_tokens = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def names(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    def check_room(self, seats: int) -> None:
        """Errors: QUEUE_FULL when `limit` wait beyond the `seats` that are free to begin."""
        if len(self) >= self._limit + seats:
            raise CacheError(
                Kind.QUEUE_FULL, "too many requests wait; retry later or raise queue_limit", waiting=len(self)
            )

    def push(self, name: str, item: T) -> None:
        """Put one at the end. Caller: a name that does not wait."""
        self._waiting[name] = _Place(item)

    def pop(self, look: Callable[[T], Asked], arrived: Callable[[T], bool]) -> T | None:
        """Take the next one of those whose prefix has `arrived`, if there is one. Nobody waits for ever.

        Cost    FCFS O(those not arrived); cache-aware one `look` at each that waits, and a sort
        """
        there = (name for name, place in self._waiting.items() if arrived(place.item))
        oldest = next(there, "")
        if not oldest:
            return None
        if self._order is not PrefillOrder.FCFS:
            for place in self._waiting.values():
                place.asked = look(place.item)
        chosen = next(self._in_turn(chain((oldest,), there)))
        self._passed = 0 if chosen == oldest else self._passed + 1
        place = self._waiting.pop(chosen)
        self._ahead_tokens = place.asked.uncached_tokens
        return place.item

    def take(self, name: str) -> T:
        """Remove one that is there."""
        self._passed = 0 if name == next(iter(self._waiting)) else self._passed
        return self._waiting.pop(name).item

    def starts(self, now_ns: int) -> Iterator[tuple[T, int]]:
        """Right after a `pop`: when each of those left is expected to begin, where that moved since it was last told.

        Each begins once the uncached tokens of those before it are computed, the one just taken first. None in FCFS
        order, where a place in the queue says enough.

        Units   monotonic nanoseconds
        Cost    O(waiting) and a sort
        """
        if self._order is PrefillOrder.FCFS:
            return
        ahead_tokens = self._ahead_tokens
        for name in self._in_turn(self._waiting):
            place = self._waiting[name]
            start_ns = now_ns + self.rate.takes_ns(ahead_tokens)
            ahead_tokens += place.asked.uncached_tokens
            if moved(place.start_ns, start_ns, now_ns):
                place.start_ns = start_ns
                yield place.item, start_ns

    def _in_turn(self, names: Iterable[str]) -> Iterator[str]:
        """Names, oldest first, in the order in which they would begin if nobody joined them."""
        if self._order is PrefillOrder.FCFS:
            yield from names
            return
        oldest = deque(names)
        nearest = deque(sorted(oldest, key=self._work))
        gone: set[str] = set()
        passed = self._passed
        while oldest:
            chosen = (oldest if passed >= PATIENCE else nearest)[0]
            passed = 0 if chosen == oldest[0] else passed + 1
            gone.add(chosen)
            for line in (oldest, nearest):
                while line and line[0] in gone:
                    line.popleft()
            yield chosen

    def _work(self, name: str) -> int:
        asked = self._waiting[name].asked
        return -asked.cached_tokens if self._order is PrefillOrder.LONGEST_PREFIX else asked.uncached_tokens
