"""Lanes: copies in order, faults and cancels as values, an end that is told and is final."""

import threading
from collections.abc import Callable, Iterator

import pytest

from agentcache.tiers.lanes import CLOSED, Copying, InlineLane, Lane, Step, StreamLane, ThreadLane
from tests.lanes import ManualStream

WAIT_S = 60.0


def noting(log: list[str], *names: str) -> list[Step]:
    """Steps that write their names; the one called "bad" raises."""

    def step(name: str) -> Step:
        def run() -> None:
            if name == "bad":
                raise OSError("torn")
            log.append(name)

        return run

    return [step(name) for name in names]


class Told:
    """Counts ends that a lane told of, from any thread."""

    def __init__(self) -> None:
        self._count = threading.Semaphore(0)

    def __call__(self) -> None:
        self._count.release()

    def once_more(self) -> bool:
        return self._count.acquire(timeout=WAIT_S)


MADE: dict[str, Callable[[], Lane]] = {
    "inline": InlineLane,
    "thread": ThreadLane,
    "stream": lambda: StreamLane(ManualStream()),
}


@pytest.fixture(params=MADE)
def lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    made = MADE[request.param]()
    yield made
    made.close()


def outcome(copying: Copying) -> tuple[bool, int, str]:
    return copying.ended, copying.completed, copying.fault


def test_copies_run_in_order(lane: Lane) -> None:
    log: list[str] = []
    copies = [lane.run(noting(log, *names)) for names in ("ab", "c", "")]
    lane.drain()
    assert log == ["a", "b", "c"]
    assert [outcome(copy) for copy in copies] == [(True, 2, ""), (True, 1, ""), (True, 0, "")]


def test_a_step_that_fails_ends_its_copy_alone(lane: Lane) -> None:
    log: list[str] = []
    torn = lane.run(noting(log, "a", "bad", "b"))
    whole = lane.run(noting(log, "c"))
    lane.drain()
    assert log == ["a", "c"]
    assert outcome(torn) == (True, 1, "OSError: torn")
    assert outcome(whole) == (True, 1, "")


def test_nothing_runs_after_close(lane: Lane) -> None:
    log: list[str] = []
    lane.close()
    late = lane.run(noting(log, "a"))
    lane.close()
    lane.drain()
    assert (log, outcome(late)) == ([], (True, 0, CLOSED))


def test_a_cancel_after_the_end_changes_nothing(lane: Lane) -> None:
    copy = lane.run(noting([], "a"))
    lane.drain()
    copy.cancel()
    assert outcome(copy) == (True, 1, "")


class Gate:
    """A step that waits until it is let through."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self.open.wait(WAIT_S)


def test_a_thread_tells_of_each_end() -> None:
    told, gate, log = Told(), Gate(), []  # type: Told, Gate, list[str]
    lane = ThreadLane(told)
    copy = lane.run([*noting(log, "a"), gate, *noting(log, "b")])
    assert gate.entered.wait(WAIT_S)
    assert outcome(copy) == (False, 1, "")
    gate.open.set()
    assert told.once_more()
    assert (outcome(copy), log) == ((True, 3, ""), ["a", "b"])
    lane.run(noting(log, "bad"))
    assert told.once_more()
    lane.close()


def test_a_copy_that_waits_is_cancelled_and_one_that_runs_is_not() -> None:
    gate, log = Gate(), []  # type: Gate, list[str]
    lane = ThreadLane()
    running = lane.run([gate, *noting(log, "a")])
    waiting = lane.run(noting(log, "b"))
    assert gate.entered.wait(WAIT_S)
    running.cancel()
    waiting.cancel()
    assert outcome(waiting) == (True, 0, "cancelled")
    assert not running.ended
    gate.open.set()
    lane.drain()
    assert (outcome(running), log) == ((True, 2, ""), ["a"])
    lane.close()


def test_close_cancels_what_waits_and_waits_for_what_runs() -> None:
    gate, log = Gate(), []  # type: Gate, list[str]
    lane = ThreadLane()
    running = lane.run([gate, *noting(log, "a")])
    waiting = lane.run(noting(log, "b"))
    assert gate.entered.wait(WAIT_S)
    closing = threading.Thread(target=lane.close)
    closing.start()
    assert waiting._over.wait(WAIT_S)
    gate.open.set()
    closing.join(WAIT_S)
    assert not closing.is_alive()
    assert (outcome(running), log) == ((True, 2, ""), ["a"])
    assert outcome(waiting) == (True, 0, "cancelled")


def test_a_stream_follows_what_was_computed_before_each_copy() -> None:
    stream = ManualStream()
    lane = StreamLane(stream)
    lane.run(noting([], "a", "b"))
    lane.run(noting([], "c"))
    assert stream.log == ["follow", "submit", "submit", "follow", "submit"]
    lane.close()


def test_a_copy_on_a_stream_is_as_far_as_its_marks() -> None:
    stream, told = ManualStream(), Told()
    lane = StreamLane(stream, told)
    copy = lane.run(noting([], "a", "b"))
    stream.marks[1].reach()  # a later mark says nothing before the earlier ones are passed
    assert outcome(copy) == (False, 0, "")
    stream.marks[0].reach()
    assert told.once_more()
    assert outcome(copy) == (True, 2, "")
    lane.close()


def test_what_a_failing_step_had_queued_is_waited_for() -> None:
    stream = ManualStream()
    lane = StreamLane(stream)
    copy = lane.run(noting([], "a", "bad"))
    stream.marks[0].reach()
    assert outcome(copy) == (False, 1, "")
    stream.marks[1].reach()
    assert outcome(copy) == (True, 1, "OSError: torn")
    lane.close()


def test_a_copy_on_a_stream_cannot_be_cancelled() -> None:
    lane = StreamLane(ManualStream())
    copy = lane.run(noting([], "a"))
    copy.cancel()
    assert not copy.ended
    lane.drain()
    assert outcome(copy) == (True, 1, "")
    lane.close()


def test_a_broken_device_ends_its_copies() -> None:
    stream, told = ManualStream(), Told()
    lane = StreamLane(stream, told)
    copy = lane.run(noting([], "a", "b"))
    stream.marks[0].reach()
    stream.marks[1].broken = True
    assert outcome(copy) == (True, 1, "RuntimeError: device-side assert triggered")
    lane.drain()
    assert told.once_more()
    lane.close()
