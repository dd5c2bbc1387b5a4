"""Lanes and streams for tests that decide when, in which order and how far copies go."""

import threading
from collections.abc import Sequence

from agentcache.tiers.lanes import CANCELLED, Step


class ManualCopy:
    """A copying whose steps run when a test says so."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.completed = 0
        self.fault = ""
        self.ended = False

    def advance(self, count: int) -> None:
        """Run up to `count` more steps; after the last of all it has ended."""
        for step in self.steps[self.completed : self.completed + count]:
            step()
            self.completed += 1
        self.ended = self.completed == len(self.steps)

    def finish(self) -> None:
        self.advance(len(self.steps))

    def fail(self, at: int) -> None:
        """Die in step `at`, whose bytes may have come in part: here they are all there."""
        self.advance(at + 1)
        self.completed = at
        self.fault, self.ended = f"OSError: step {at}", True

    def cancel(self) -> None:
        if not self.completed and not self.ended:
            self.fault, self.ended = CANCELLED, True


class ManualLane:
    """Keeps every copying that was queued, for the test to carry out."""

    def __init__(self) -> None:
        self.copies: list[ManualCopy] = []
        self.closed = False

    def run(self, steps: Sequence[Step]) -> ManualCopy:
        copy = ManualCopy(steps)
        self.copies.append(copy)
        return copy

    def drain(self) -> None:
        for copy in self.copies:
            if not copy.ended:
                copy.finish()

    def close(self) -> None:
        self.closed = True
        for copy in self.copies:
            copy.cancel()
        self.drain()


class FailingLane(ManualLane):
    """Carries everything out at once; copying number `k` dies in the k-th of `at` steps, -1: it does not."""

    def __init__(self, *at: int) -> None:
        super().__init__()
        self._at = at

    def run(self, steps: Sequence[Step]) -> ManualCopy:
        copy = super().run(steps)
        at = self._at[len(self.copies) - 1] if len(self.copies) <= len(self._at) else -1
        if at < 0:
            copy.finish()
        else:
            copy.fail(at)
        return copy


class ManualMark:
    """A place in a `ManualStream`."""

    def __init__(self) -> None:
        self.broken = False
        self._passed = threading.Event()

    def reach(self) -> None:
        self._passed.set()

    def query(self) -> bool:
        if self.broken:
            raise RuntimeError("device-side assert triggered")
        return self._passed.is_set()

    def synchronize(self) -> None:
        self._passed.wait()
        self.query()


class ManualStream:
    """A stream that gets as far as a test lets it. `log` is what was asked of it, in order."""

    def __init__(self) -> None:
        self.marks: list[ManualMark] = []
        self.log: list[str] = []

    def follow(self) -> None:
        self.log.append("follow")

    def submit(self, step: Step) -> ManualMark:
        self.log.append("submit")
        step()
        self.marks.append(ManualMark())
        return self.marks[-1]

    def synchronize(self) -> None:
        self.log.append("synchronize")
        for mark in self.marks:
            mark.reach()
            mark.query()
