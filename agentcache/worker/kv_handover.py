"""How events come from the engine's thread to the one that tells them: bounded, and without ever waiting."""

import contextlib
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from agentcache.types import Event

PAGE_WEIGHT: Final = 16
T = TypeVar("T")


class Handover(Generic[T]):
    """A queue between two threads, with a bell that wakes a poll. Bounded by what its events `weigh`.

    Once it overflows it takes nothing more until the reader has looked: an event that is missing makes those around it
    worthless.
    """

    def __init__(self, limit: int, weigh: Callable[[T], int]) -> None:
        self._limit = limit
        self._weigh = weigh
        self._queue: deque[T] = deque()
        self._put = self._taken = self._refused = self._discarded = 0  # one writer each
        self._rung = False
        self._ringing, self.bell = _bell()
        self._overflown = False

    @property
    def dropped(self) -> int:
        """Events that will never be told: refused on arrival, or discarded with what was missing."""
        return self._refused + self._discarded

    def put(self, event: T) -> None:
        """One thread only. Never waits, never raises."""
        weight = self._weigh(event)
        held = self._put - self._taken
        if self._overflown or (held and held + weight > self._limit):
            self._refused += 1
            self._overflown = True
        else:
            self._put += weight
            self._queue.append(event)
        if not self._rung:
            self._rung = True
            self.ring()

    def ring(self) -> None:
        """Wake the reader. A bell that is full of rings will be heard; one that is closed need not be."""
        with contextlib.suppress(OSError):
            self._ringing.send(b"\0")

    @property
    def waiting(self) -> bool:
        return self._rung

    def take(self) -> tuple[list[T], bool]:
        """All that is there, in order, and whether something is missing: then what is there is dropped with it."""
        with contextlib.suppress(BlockingIOError):
            self.bell.recv(4096)
        self._rung = False  # before the queue is read: what comes later rings again
        lost = self._overflown  # before the queue is read: until it is reset nothing is added
        taken = [self._queue.popleft() for _ in range(len(self._queue))]
        self._taken += sum(map(self._weigh, taken))
        if not lost:
            return taken, False
        self._discarded += len(taken)
        self._overflown = False
        return [], True

    def close(self) -> None:
        self._ringing.close()
        self.bell.close()


def weight(event: Event) -> int:
    """Of a placement event: its tokens, and 16 for each page."""
    return len(event.tokens) + PAGE_WEIGHT * (len(event.hashes) + 1)


def _bell() -> tuple[socket.socket, socket.socket]:
    """Both ends of a wire on which nobody ever waits."""
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    return ends
