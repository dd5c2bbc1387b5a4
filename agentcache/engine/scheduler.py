"""Requests that wait, and which of them begins next."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from agentcache.engine.api import GenerateRequest
from agentcache.errors import CacheError, Kind
from agentcache.sessions import Ticket

PATIENCE = 16
"""How often the oldest request may be passed over before it goes first whatever its prefix."""


class PrefillOrder(StrEnum):
    """Who is admitted next: the oldest, or the one with the longest cached prefix."""

    FCFS = "fcfs"
    LONGEST_PREFIX = "longest_prefix"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue with its place in its session."""

    request: GenerateRequest
    ticket: Ticket
    submitted_ns: int


class WaitingQueue:
    """A bounded queue in order of arrival."""

    def __init__(self, limit: int, order: PrefillOrder = PrefillOrder.FCFS) -> None:
        self._limit = limit
        self._order = order
        self._waiting: dict[str, Waiting] = {}
        self._passed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._waiting

    def ids(self) -> tuple[str, ...]:
        return tuple(self._waiting)

    def check_room(self, seats: int) -> None:
        """Errors: QUEUE_FULL when `limit` requests wait beyond the `seats` that are free to begin."""
        if len(self) >= self._limit + seats:
            raise CacheError(
                Kind.QUEUE_FULL, "too many requests wait; retry later or raise queue_limit", waiting=len(self)
            )

    def push(self, waiting: Waiting) -> None:
        self._waiting[waiting.request.request_id] = waiting

    def pop(
        self, prefix_tokens: Callable[[GenerateRequest], int], arrived: Callable[[Waiting], bool]
    ) -> Waiting | None:
        """Take the next one of those whose prefix has `arrived`, if there is one. Nobody waits for ever.

        Longest prefix first asks `prefix_tokens` of each.
        Cost    FCFS O(those not arrived), longest prefix O(waiting) questions
        """
        there = (name for name, waiting in self._waiting.items() if arrived(waiting))
        oldest = next(there, "")
        if not oldest:
            return None
        chosen = oldest
        if self._order is PrefillOrder.LONGEST_PREFIX and self._passed < PATIENCE:
            chosen = max((oldest, *there), key=lambda name: prefix_tokens(self._waiting[name].request))
        self._passed = 0 if chosen == oldest else self._passed + 1
        return self._waiting.pop(chosen)

    def take(self, request_id: str) -> Waiting:
        """Remove one that is there."""
        self._passed = 0 if request_id == next(iter(self._waiting)) else self._passed
        return self._waiting.pop(request_id)
