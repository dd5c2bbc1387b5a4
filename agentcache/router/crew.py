"""The processes of a router with several: each that ends is replaced, ever more slowly while they do not stay."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from agentcache.clock import Clock

STAYED_NS: Final = 10_000_000_000
"""A process that ends sooner has not started."""
FIRST_PAUSE_S: Final = 1
LONGEST_PAUSE_S: Final = 30


class Member(Protocol):
    """A process."""

    @property
    def alive(self) -> bool: ...

    def end(self) -> None:
        """Ask it to end, and wait for nothing."""

    def stop(self) -> None:
        """End it and wait until it is gone. Idempotent."""


@dataclass(frozen=True, slots=True)
class _Started:
    member: Member
    at_ns: int


class Crew:
    """So many processes, started by `start`. Errors of `start`: OSError, as if the process had ended at once."""

    def __init__(self, size: int, start: Callable[[], Member], clock: Clock) -> None:
        self._size = size
        self._start = start
        self._clock = clock
        self._started: list[_Started] = []
        self._failures = 0
        self._not_before_ns = 0

    @property
    def alive(self) -> bool:
        """Whether any of them runs."""
        return any(each.member.alive for each in self._started)

    def fill(self) -> None:
        """Replace those that have ended, if it is time."""
        lost = [each for each in self._started if not each.member.alive]
        for each in lost:
            each.member.stop()
            self._started.remove(each)
        if lost:
            self._ended(len(lost), min(self._clock.now_ns() - each.at_ns for each in lost))
        try:
            while len(self._started) < self._size and self._clock.now_ns() >= self._not_before_ns:
                self._started.append(_Started(self._start(), self._clock.now_ns()))
        except OSError as error:
            self._ended(1, 0, str(error))

    def end(self) -> None:
        """Ask all to end, then wait for each."""
        for each in self._started:
            each.member.end()
        for each in self._started:
            each.member.stop()

    def _ended(self, count: int, lived_ns: int, why: str = "") -> None:
        """One line in the log; after processes that did not stay, a pause that doubles."""
        self._failures = 0 if lived_ns >= STAYED_NS else self._failures + 1
        pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S << min(self._failures - 1, 10)) if self._failures else 0
        self._not_before_ns = self._clock.now_ns() + pause_s * 1_000_000_000
        structlog.get_logger().error(
            "process_died",
            died=count,
            left=len(self._started),
            of=self._size,
            failed_starts=self._failures,
            again_in_s=pause_s,
            **({"why": why} if why else {}),
        )
