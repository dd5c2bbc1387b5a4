"""What a busy machine does, on purpose: sockets, threads and the loop are late at random. `LATE=seed make test`.

A test that presumes an order which nothing promises fails here sooner than beside other work. Processes that tests
start are not late.
"""

import queue
import selectors
import threading
import time
from collections.abc import Callable
from concurrent.futures import thread as pool
from random import Random
from typing import Any

Ready = list[tuple[selectors.SelectorKey, int]]
SOCKET = (0.25, 0.05)
"""Chance, and seconds at most."""
LOOP = (0.01, 0.03)
THREAD = (0.15, 0.02)
SWITCH_S = 0.0001
"""How long a thread runs before another may."""


class Late:
    """Chances by a seed. Sleeps with what `time.sleep` was, whatever a test puts in its place."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)
        self._sleep = time.sleep

    def by(self, chance: float, most_s: float) -> float:
        """Seconds, mostly none."""
        return self._random.random() * most_s if self._random.random() < chance else 0.0

    def nap(self, chance: float, most_s: float) -> None:
        if seconds := self.by(chance, most_s):
            self._sleep(seconds)

    def around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """The same, sometimes late to begin and late to return."""

        def late(*given: Any, **named: Any) -> Any:
            self.nap(*THREAD)
            answer = real(*given, **named)
            self.nap(*THREAD)
            return answer

        return late

    def selecting(self, real: Callable[..., Ready]) -> Callable[..., Ready]:
        """The same, in which some of what is ready is not seen yet: the kernel tells of it again."""
        held: dict[tuple[int, int], float] = {}

        def select(selector: selectors.BaseSelector, timeout: float | None = None) -> Ready:
            self.nap(*LOOP)
            waits_s = [until - time.monotonic() for (of, _), until in held.items() if of == id(selector)]
            if waits_s:
                soonest = max(0.0, min(waits_s))
                timeout = soonest if timeout is None else min(timeout, soonest)
            ready = real(selector, timeout)
            seen = [one for one in ready if self._is_seen(held, (id(selector), one[0].fd))]
            if ready and not seen:
                self._sleep(0.001)  # it would be asked again at once
            now_s = time.monotonic()
            for key in [key for key, until in held.items() if until <= now_s]:
                held.pop(key, None)
            return seen

        return select

    def _is_seen(self, held: dict[tuple[int, int], float], key: tuple[int, int]) -> bool:
        if key in held:
            return held[key] <= time.monotonic()
        seconds = self.by(*SOCKET)
        if seconds:
            held[key] = time.monotonic() + seconds
        return not seconds


def make_late(patch: Callable[[Any, str, Any], None], seed: str) -> None:
    """Put lateness into the standard library, by `setattr` or what takes it back."""
    late = Late(seed)
    selector: Any = selectors.DefaultSelector
    patch(selector, "select", late.selecting(selector.select))
    for owner, name in (
        (threading.Thread, "start"),
        (threading.Event, "wait"),
        (queue.Queue, "get"),
        (pool._WorkItem, "run"),
    ):
        patch(owner, name, late.around(getattr(owner, name)))
