"""How whoever drives an engine learns that a tier has done something while it slept."""

import threading
from collections.abc import Callable


def nobody() -> None:
    """Wakes nobody."""


class Bell:
    """Rung from any thread; heard once by whoever waits, and by the one who listens."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._listener: Callable[[], None] = nobody

    def ring(self) -> None:
        self._rung.set()
        self._listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called at each ring, on the ringing thread."""
        self._listener = listener

    def wait(self, seconds: float) -> None:
        """Sleep until the next ring, or the first one since the last wait; at most `seconds`."""
        if self._rung.wait(seconds):
            self._rung.clear()
