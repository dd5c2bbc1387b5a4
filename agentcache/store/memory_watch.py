"""When routers looked at a store in memory, and what that says of workers that could not be heard."""


class Watch:
    """Unix milliseconds. `swept_ms`: when a router last swept.

    Where no router has looked for longer than a worker may be silent, the store may have been away, and no worker could
    say that it lives.
    """

    def __init__(self, worker_ms: int) -> None:
        self._worker_ms = worker_ms
        self.lose()

    def lose(self) -> None:
        """Forget everything."""
        self.swept_ms = 0
        self._looked_ms = 0
        self._silence_ms = (0, 0)

    def look(self, now_ms: int) -> None:
        """A router looks."""
        if self._looked_ms and now_ms - self._looked_ms > self._worker_ms:
            self._silence_ms = (self._looked_ms, now_ms)
        self._looked_ms = now_ms

    def heard(self, heard_ms: int, now_ms: int) -> int:
        """When a worker counts as heard, by when it was: where it could not be, some time after it could be again."""
        since_ms, until_ms = self._silence_ms
        if until_ms <= now_ms and since_ms - self._worker_ms < heard_ms <= until_ms:
            return until_ms + self._worker_ms
        return heard_ms
