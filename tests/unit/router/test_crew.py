"""Several router processes: each that ends is replaced, those that do not stay ever more slowly, and it is said."""

from dataclasses import dataclass, field

import structlog

from agentcache.clock import ManualClock
from agentcache.router.crew import LONGEST_PAUSE_S, STAYED_NS, Crew
from agentcache.router.processes import Told
from tests.routing import now_ms

SECOND_NS = 1_000_000_000


@dataclass
class Process:
    """A process that lives until it is told otherwise."""

    alive: bool = True
    ended: int = 0

    def end(self) -> None:
        self.ended += 1

    def stop(self) -> None:
        self.alive = False


@dataclass
class World:
    """A crew of two, and the processes that it has started."""

    clock: ManualClock = field(default_factory=ManualClock)
    started: list[Process] = field(default_factory=list)
    refusing: bool = False

    def __post_init__(self) -> None:
        self.crew = Crew(2, self.start, self.clock)

    def start(self) -> Process:
        if self.refusing:
            raise BlockingIOError(11, "no more processes")
        self.started.append(Process())
        return self.started[-1]

    def looked(self, seconds: float) -> int:
        """Look each tenth of a second for so long; how many were started."""
        before = len(self.started)
        for _ in range(round(seconds * 10)):
            self.crew.fill()
            self.clock.advance(SECOND_NS // 10)
        return len(self.started) - before


def test_one_that_ends_after_a_while_is_replaced_at_once() -> None:
    world = World()
    assert world.looked(60) == 2
    world.started[0].alive = False
    with structlog.testing.capture_logs() as lines:
        assert world.looked(0.1) == 1
    assert [(line["died"], line["left"], line["failed_starts"]) for line in lines] == [(1, 1, 0)]
    assert world.crew.alive


def test_those_that_do_not_start_are_tried_ever_more_slowly_and_counted() -> None:
    world, pauses = World(), []
    world.looked(0.1)
    for _ in range(8):
        for process in world.started:
            process.alive = False
        assert not world.crew.alive
        with structlog.testing.capture_logs() as lines:
            world.looked(0.1)
        (line,) = lines
        pauses.append((line["failed_starts"], line["again_in_s"]))
        with structlog.testing.capture_logs() as lines:
            assert world.looked(line["again_in_s"] - 0.2) == 0
            assert world.looked(0.3) == 2
        assert lines == []
    assert pauses == list(enumerate((1, 2, 4, 8, 16, 30, 30, LONGEST_PAUSE_S), start=1))


def test_a_start_that_stays_ends_the_count() -> None:
    world = World()
    world.looked(0.1)
    world.started[0].alive = False
    world.looked(0.5)
    assert len(world.started) == 2
    assert world.looked(1) == 1
    world.clock.advance(STAYED_NS)
    world.started[-1].alive = False
    assert world.looked(0.1) == 1


def test_a_machine_that_starts_no_more_processes_ends_nobody() -> None:
    world = World()
    world.looked(0.1)
    world.started[0].alive, world.refusing = False, True
    with structlog.testing.capture_logs() as lines:
        world.looked(20)
    assert [line["again_in_s"] for line in lines if "why" in line] == [2, 4, 8, 16]
    world.refusing = False
    assert world.looked(60) == 1
    world.crew.end()
    assert [process.ended for process in world.started if process.ended] == [1, 1]


def test_a_process_finds_the_time_of_the_store_by_its_name() -> None:
    told = Told({}, "redis://h", "00", "at h", "", "tests.routing:now_ms")
    assert told.store_now_ms is now_ms
    assert Told({}, "redis://h", "00", "at h", "").store_now_ms is None
