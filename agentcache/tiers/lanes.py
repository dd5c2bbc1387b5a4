"""Lanes: where copies run, one after the other, in steps that a caller can watch.

On CPUs a lane is a thread (`ThreadLane`), on a CUDA device a stream of its own (`StreamLane`; the stream itself is in
`cuda.py`), in tests and accounting the calling thread (`InlineLane`). What is copied is the caller's.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

Step = Callable[[], None]
CANCELLED = "cancelled"
CLOSED = "the lane is closed"


def nobody() -> None:
    """Wakes nobody: the default for who is told of an end."""


class Copying(Protocol):
    """Steps on their way: they run in order, and the first that fails ends them.

    Implementer  once `ended` is true nothing changes any more and no memory is touched
    """

    @property
    def ended(self) -> bool: ...

    @property
    def completed(self) -> int:
        """How many steps, from the first on, are done: their bytes have arrived."""

    @property
    def fault(self) -> str:
        """Why not all of them ran; empty until that is known, and where all did."""

    def cancel(self) -> None:
        """Do not start what has not started. What has goes on to its end."""


class Lane(Protocol):
    """A queue of copies.

    Caller       one thread; keeps what is copied alive and untouched until the copying has ended
    Implementer  copies run and end in the order of `run`, but for cancelled ones; calls its `on_ended` after each end
                 that `run` did not see, from any thread
    """

    def run(self, steps: Sequence[Step]) -> Copying:
        """Queue some steps. Never blocks on copies, never raises what a step raises."""

    def drain(self) -> None:
        """Wait until everything queued has ended."""

    def close(self) -> None:
        """Cancel what waits, wait for what runs, and take no more. Idempotent."""


class Copy:
    """One copying, its steps run by whoever calls `advance`."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.completed = 0
        self.fault = ""
        self._steps = steps
        self._started = threading.Lock()  # taken once: by the run, or by the cancel that comes before it
        self._over = threading.Event()

    @property
    def ended(self) -> bool:
        return self._over.is_set()

    def cancel(self) -> None:
        self.refuse(CANCELLED)

    def refuse(self, why: str) -> None:
        """End it, unless it has started."""
        if self._started.acquire(blocking=False):
            self.fault = why
            self._over.set()

    def advance(self) -> None:
        """Run the steps, unless it was cancelled."""
        if not self._started.acquire(blocking=False):
            return
        try:
            for step in self._steps:
                step()
                self.completed += 1
        except Exception as bad:  # whatever a copy dies of, it must end
            self.fault = _words(bad)
        self._over.set()

    def wait(self) -> None:
        self._over.wait()


class InlineLane:
    """Copies at once, in `run` itself."""

    def __init__(self) -> None:
        self._open = True

    def run(self, steps: Sequence[Step]) -> Copy:
        copy = Copy(steps)
        if not self._open:
            copy.refuse(CLOSED)
        copy.advance()
        return copy

    def drain(self) -> None:
        """Nothing ever waits."""

    def close(self) -> None:
        self._open = False


class ThreadLane:
    """Copies on one daemon thread."""

    def __init__(self, on_ended: Callable[[], None] = nobody) -> None:
        self._on_ended = on_ended
        self._out: list[Copy] = []
        self._waiting: queue.SimpleQueue[Copy | None] = queue.SimpleQueue()
        self._open = True
        self._thread = threading.Thread(target=self._work, name="agentcache-copies", daemon=True)
        self._thread.start()

    def run(self, steps: Sequence[Step]) -> Copy:
        copy = Copy(steps)
        if self._open:
            self._out = [*(other for other in self._out if not other.ended), copy]
            self._waiting.put(copy)
        else:
            copy.refuse(CLOSED)
        return copy

    def drain(self) -> None:
        for copy in self._out:
            copy.wait()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        for copy in self._out:
            copy.cancel()
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        for copy in iter(self._waiting.get, None):
            copy.advance()
            self._on_ended()


class Mark(Protocol):
    """A place in a stream, after some work."""

    def query(self) -> bool:
        """Whether the work before it is done. Errors: RuntimeError when it failed."""

    def synchronize(self) -> None:
        """Wait for it. Errors: as `query`."""


class Stream(Protocol):
    """A device's own queue of copies, which runs beside its computing."""

    def follow(self) -> None:
        """What comes next runs after all that this thread has given the device so far."""

    def submit(self, step: Step) -> Mark:
        """Let the step queue its copies here; the mark is after them. Errors: what the step raises."""

    def synchronize(self) -> None:
        """Wait for everything submitted. Errors: RuntimeError when some of it failed."""


class Streamed:
    """One copying on a stream: `steps` of its steps are queued there, each with a mark, and perhaps a last mark."""

    def __init__(self, marks: Sequence[Mark], steps: int, fault: str) -> None:
        self._marks = marks
        self._steps = steps
        self._passed = 0
        self._fault = fault

    @property
    def ended(self) -> bool:
        self._look()
        return self._passed == len(self._marks)

    @property
    def completed(self) -> int:
        self._look()
        return min(self._passed, self._steps)

    @property
    def fault(self) -> str:
        return self._fault if self.ended else ""

    def cancel(self) -> None:
        """It is on the stream already, and goes on to its end."""

    def _look(self) -> None:
        try:
            while self._passed < len(self._marks) and self._marks[self._passed].query():
                self._passed += 1
        except RuntimeError as bad:  # the device is broken: nothing on it will ever end in another way
            self._fault, self._steps, self._marks = _words(bad), self._passed, self._marks[: self._passed]


class StreamLane:
    """Copies on a stream of a device. A thread sleeps until a copying ends, only to call `on_ended`."""

    def __init__(self, stream: Stream, on_ended: Callable[[], None] = nobody) -> None:
        self._stream = stream
        self._on_ended = on_ended
        self._open = True
        self._last_marks: queue.SimpleQueue[Mark | None] = queue.SimpleQueue()
        self._watcher = threading.Thread(target=self._watch, name="agentcache-copies", daemon=True)
        self._watcher.start()

    def run(self, steps: Sequence[Step]) -> Streamed:
        if not self._open:
            return Streamed((), 0, CLOSED)
        marks: list[Mark] = []
        fault = ""
        try:
            self._stream.follow()
            for step in steps:
                marks.append(self._stream.submit(step))  # noqa: PERF401 - those before a failing one count
        except Exception as bad:  # whatever a copy dies of, it must end
            fault = _words(bad)
        return self._watched(marks, fault)

    def drain(self) -> None:
        with suppress(RuntimeError):  # each copying that failed says so itself
            self._stream.synchronize()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self.drain()
        self._last_marks.put(None)
        self._watcher.join()

    def _watched(self, marks: list[Mark], fault: str) -> Streamed:
        steps = len(marks)
        with suppress(RuntimeError):  # of a device that is broken
            if fault:
                marks.append(self._stream.submit(nobody))  # behind what the failing step had queued
        if marks:
            self._last_marks.put(marks[-1])
        return Streamed(marks, steps, fault)

    def _watch(self) -> None:
        for mark in iter(self._last_marks.get, None):
            with suppress(RuntimeError):
                mark.synchronize()
            self._on_ended()


def _words(bad: Exception) -> str:
    return f"{type(bad).__name__}: {bad}"
