"""A bell for deadlines: when every other thread hangs or sleeps, somebody must notice that time is up."""

import threading
from collections.abc import Callable

from agentcache.clock import Clock
from agentcache.tiers.rules import NS

NEVER_NS = 1 << 62
AGAIN_S = 0.05  # until the engine has looked, it is rung for again


class Alarm:
    """Rings when a time has come, from a daemon thread, until a later time is set.

    The clock says how long to wait: one that stands still, or is moved by hand, is looked at when that has passed.
    """

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._changed = threading.Condition()
        self._at_ns = NEVER_NS
        self._stopped = False
        threading.Thread(target=self._run, name="agentcache-external-alarm", daemon=True).start()

    @property
    def at_ns(self) -> int:
        return self._at_ns

    def set(self, at_ns: int) -> None:
        """Ring at this time instead. Cost: the thread is woken only for an earlier one."""
        with self._changed:
            earlier = at_ns < self._at_ns
            self._at_ns = at_ns
            if earlier:
                self._changed.notify()

    def not_after(self, at_ns: int) -> None:
        """Ring at this time too. Cost: nothing if it is to ring before."""
        if at_ns < self._at_ns:
            self.set(at_ns)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def _run(self) -> None:
        while self._wait():
            self._ring()

    def _wait(self) -> bool:
        """Return True when it is time to ring, False once stopped."""
        with self._changed:
            self._changed.wait(AGAIN_S)  # or a bell that nobody answers would ring all the time
            while not self._stopped and (left_ns := self._at_ns - self._clock.now_ns()) > 0:
                self._changed.wait(min(left_ns / NS, threading.TIMEOUT_MAX))
            return not self._stopped
