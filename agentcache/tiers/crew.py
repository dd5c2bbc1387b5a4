"""The threads of an external tier, and the queue in front of them."""

import threading
import time
from collections import deque
from enum import IntEnum
from typing import Protocol


class Lane(IntEnum):
    """What goes first. Nobody waits for the lanes from STORE on."""

    ASK = 0
    LOAD = 1
    STORE = 2
    UPKEEP = 3


class Work(Protocol):
    """Something to do in short steps, so that what is more urgent never waits for more than one."""

    @property
    def live(self) -> bool:
        """False: it need not be started any more."""

    def step(self) -> bool:
        """Do the next piece, which may block. True: there is more. Implementer: never fails."""


class Crew:
    """Daemon threads of our own, and what waits for them.

    A pool of concurrent.futures is joined when the interpreter ends: a thread that hangs in a store would keep the
    process alive. The lanes that nobody waits for leave one thread free, where there are several: stores of pages,
    however slow, hold up no load.
    """

    def __init__(self, threads: int) -> None:
        self._changed = threading.Condition()
        self._lanes: dict[Lane, deque[Work]] = {lane: deque() for lane in Lane}
        self._background = 0
        self._most_background = max(1, threads - 1)
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._run, name=f"agentcache-external-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        with self._changed:
            return sum(len(waiting) for waiting in self._lanes.values())

    def put(self, lane: Lane, work: Work) -> None:
        """Queue work; after `stop` it is dropped."""
        with self._changed:
            if not self._stopped:
                self._lanes[lane].append(work)
                self._changed.notify()

    def prune(self) -> None:
        """Forget queued work that is not live; threads that hang would never come to it. Cost O(queued)."""
        with self._changed:
            for lane, waiting in self._lanes.items():
                self._lanes[lane] = deque(work for work in waiting if work.live)

    def stop(self) -> None:
        """Start nothing any more."""
        with self._changed:
            self._stopped = True
            for waiting in self._lanes.values():
                waiting.clear()
            self._changed.notify_all()

    def join(self, at_most_s: float) -> None:
        """After `stop`: wait for the threads, but not for one that hangs."""
        until_s = time.monotonic() + at_most_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _run(self) -> None:
        while taken := self._take():
            lane, work = taken
            more = work.step()
            self._give_back(lane, work, more)

    def _take(self) -> tuple[Lane, Work] | None:
        """The next work; None once stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._open_lanes())
            if self._stopped:
                return None
            lane = self._open_lanes()[0]
            self._background += lane >= Lane.STORE
            return lane, self._lanes[lane].popleft()

    def _give_back(self, lane: Lane, work: Work, more: bool) -> None:
        with self._changed:
            self._background -= lane >= Lane.STORE
            if more and not self._stopped:
                self._lanes[lane].appendleft(work)
            self._changed.notify_all()

    def _open_lanes(self) -> list[Lane]:
        background = self._background < self._most_background
        return [lane for lane in Lane if self._lanes[lane] and (background or lane < Lane.STORE)]
