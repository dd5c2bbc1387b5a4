"""Time by argument: a clock is handed in, never read from the side."""

import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic nanoseconds; never goes back."""

    def now_ns(self) -> int: ...


class SystemClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        return time.monotonic_ns()


class ManualClock:
    """A clock that moves only when told; for tests, replay and the accounting engine."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, by_ns: int) -> int:
        """Move forward by `by_ns` nanoseconds and return the new time."""
        if by_ns < 0:
            raise ValueError("a monotonic clock cannot go back")
        self._now_ns += by_ns
        return self._now_ns
