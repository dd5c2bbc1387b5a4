"""The queue between two threads: all in order, or the word that something is missing."""

import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from types import CodeType, FrameType
from typing import Any

import pytest

from agentcache.types import Event, EventKind, TierName
from agentcache.worker.kv_handover import PAGE_WEIGHT, Handover, weight

PAGE_TOKENS = 8
WEIGHT = PAGE_TOKENS + 2 * PAGE_WEIGHT


def page(number: int) -> Event:
    return Event(EventKind.STORED, TierName.DEVICE, (bytes([number % 256]),), None, (number,) * PAGE_TOKENS)


@pytest.fixture
def handover() -> Iterator[Handover[Event]]:
    made = Handover(3 * WEIGHT, weight)
    yield made
    made.close()


def rings(handover: Handover[Event]) -> bool:
    return bool(select.select([handover.bell], [], [], 0)[0])


def run_between(call: Callable[[], object], code: CodeType, at: int, meanwhile: Callable[[], object]) -> int:
    """Run `call`, and `meanwhile` before instruction `at` of `code`. Answers how many instructions there are."""
    seen = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal seen
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            seen += 1
            if seen == at:
                meanwhile()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return seen


def test_what_is_put_is_taken_in_order(handover: Handover[Event]) -> None:
    for number in range(3):
        handover.put(page(number))
    assert handover.take() == ([page(0), page(1), page(2)], False)
    assert handover.take() == ([], False)


def test_what_was_taken_makes_room(handover: Handover[Event]) -> None:
    for number in range(10):
        handover.put(page(number))
        assert handover.take() == ([page(number)], False)
    assert handover.dropped == 0


def test_one_that_is_missing_costs_those_around_it(handover: Handover[Event]) -> None:
    for number in range(4):
        handover.put(page(number))
    handover.put(Event(EventKind.CLEARED, TierName.DEVICE))
    assert handover.take() == ([], True)
    assert handover.dropped == 5
    handover.put(page(9))
    assert handover.take() == ([page(9)], False)


def test_the_bell_rings_until_somebody_looks(handover: Handover[Event]) -> None:
    assert not rings(handover)
    assert not handover.waiting
    handover.put(page(1))
    handover.put(page(2))
    assert rings(handover)
    assert handover.waiting
    handover.take()
    assert not rings(handover)
    assert not handover.waiting
    handover.put(page(3))
    assert rings(handover)


def test_ringing_never_fails(handover: Handover[Event]) -> None:
    for _ in range(100_000):
        handover.ring()
    handover.close()
    handover.ring()
    handover.put(page(1))


def test_two_threads(handover: Handover[Event]) -> None:
    """Each event once and in order up to a loss; after a loss only what came later."""
    last = 20_000
    writer = threading.Thread(target=lambda: deque(map(handover.put, map(page, range(last))), maxlen=0))
    writer.start()
    taken = lost = 0
    newest = -1
    while writer.is_alive() or rings(handover):
        events, missing = handover.take()
        numbers = [event.tokens[0] for event in events]
        lost += missing
        if numbers:
            assert numbers == [*range(numbers[0], numbers[-1] + 1)]
            assert numbers[0] > newest
            taken, newest = taken + len(numbers), numbers[-1]
    writer.join()
    assert taken + handover.dropped == last
    assert (lost > 0) == (handover.dropped > 0)


def five_events(within: str, at: int) -> tuple[int, int]:
    """Three are put that have room, one that has not, and one more: before instruction `at` of its put, or of a take,
    the other of the two runs.

    Answers how many were told or dropped in the end, and how many instructions what was interrupted has.
    """
    told: list[Event] = []
    with closing(Handover(3 * WEIGHT, weight)) as handover:

        def take() -> None:
            told.extend(handover.take()[0])

        def put() -> None:
            handover.put(page(9))

        for number in range(4):
            handover.put(page(number))
        if within == "take":
            steps = run_between(take, Handover.take.__code__, at, put)
        else:
            steps = run_between(put, Handover.put.__code__, at, take)
        take()
        return len(told) + handover.dropped, steps


@pytest.mark.parametrize("within", ["take", "put"])
def test_each_event_is_told_or_dropped_wherever_the_other_thread_interrupts(within: str) -> None:
    last = five_events(within, at=1)[1]
    assert last > 20
    counts = {at: five_events(within, at)[0] for at in range(1, last + 1)}
    assert {at: count for at, count in counts.items() if count != 5} == {}
