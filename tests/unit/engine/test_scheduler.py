"""Who begins next, and when the others are expected to."""

import random

import pytest

from agentcache.engine.scheduler import PATIENCE, Asked, PrefillOrder, WaitingQueue
from agentcache.errors import CacheError, Kind
from agentcache.waits import Throughput

FCFS, LONGEST, LEAST = PrefillOrder.FCFS, PrefillOrder.LONGEST_PREFIX, PrefillOrder.LEAST_UNCACHED
SECOND = 10**9


def queue_of(*names: str, order: PrefillOrder = FCFS) -> WaitingQueue[str]:
    """Items are their names; a thousand tokens take a second."""
    queue: WaitingQueue[str] = WaitingQueue(4, order, Throughput(1000.0))
    for name in names:
        queue.push(name, name)
    return queue


def everybody(_name: str) -> bool:
    return True


def look(name: str) -> Asked:
    """Names say how much of their prompt of 100 tokens is cached, or of how many: a0, b64, c10/1000 …"""
    cached, _, prompt = name[1:].partition("/")
    return Asked(int(prompt or 100), int(cached))


def popped(queue: WaitingQueue[str]) -> str:
    taken = queue.pop(look, everybody)
    assert taken
    return taken


def starts(queue: WaitingQueue[str], now_s: float = 0.0) -> list[tuple[str, float]]:
    """Who is told to begin when, in seconds from now."""
    now = int(now_s * SECOND)
    return [(name, round((start - now) / SECOND, 6)) for name, start in queue.starts(now)]


def test_nobody_begins_before_its_prefix_has_arrived() -> None:
    queue = queue_of("a0", "b64", "c32")
    assert queue.pop(look, lambda _name: False) is None
    assert queue.pop(look, lambda name: name != "a0") == "b64"
    assert queue.names() == ("a0", "c32")


def test_fcfs_is_the_order_of_arrival() -> None:
    queue = queue_of("a0", "b64", "c32")
    assert [popped(queue) for _ in range(3)] == ["a0", "b64", "c32"]


def test_longest_prefix_goes_first_and_ties_go_by_arrival() -> None:
    queue = queue_of("a0", "b32", "c64", "d32", order=LONGEST)
    assert [popped(queue) for _ in range(4)] == ["c64", "b32", "d32", "a0"]


def test_least_uncached_goes_first_whatever_the_length_of_its_prefix() -> None:
    queue = queue_of("a0/40", "b900/1000", "c60/99", "d0/39", order=LEAST)
    assert [popped(queue) for _ in range(4)] == ["c60/99", "d0/39", "a0/40", "b900/1000"]


@pytest.mark.parametrize("order", [LONGEST, LEAST])
def test_the_oldest_does_not_starve(order: PrefillOrder) -> None:
    queue = queue_of("a0", order=order)
    seen = []
    for number in range(PATIENCE + 1):
        queue.push(f"x{number + 1}", f"x{number + 1}")
        seen.append(popped(queue))
    assert seen.index("a0") == PATIENCE


def test_a_request_in_the_middle_can_be_taken_out() -> None:
    queue = queue_of("a0", "b1", "c2")
    assert "b1" in queue
    assert queue.take("b1") == "b1"
    assert queue.names() == ("a0", "c2")
    assert len(queue) == 2


def test_taking_out_the_oldest_resets_the_patience_with_it() -> None:
    queue = queue_of("a0", "b1", order=LONGEST)
    for number in range(PATIENCE):
        queue.push(f"x{number + 2}", f"x{number + 2}")
        popped(queue)
    queue.take("a0")
    queue.push("y9", "y9")
    assert popped(queue) == "y9"


def test_a_full_queue_says_so_and_free_seats_do_not_count() -> None:
    queue = queue_of("a0", "b1", "c2", "d3")
    queue.check_room(seats=1)
    with pytest.raises(CacheError) as full:
        queue.check_room(seats=0)
    assert full.value.kind is Kind.QUEUE_FULL


# expected starts


def test_each_begins_after_the_uncached_tokens_of_those_before_it() -> None:
    """Of 100 tokens each, at 1,000 a second: the one that begins takes 20 ms, the next 40, then 70."""
    queue = queue_of("a0", "b30", "c60", "d80", order=LONGEST)
    assert popped(queue) == "d80"
    assert starts(queue) == [("c60", 0.02), ("b30", 0.06), ("a0", 0.13)]


def test_in_order_of_arrival_nothing_is_foretold_and_nothing_looked_at() -> None:
    queue = queue_of("a0", "b30")

    def refused(_name: str) -> Asked:
        raise AssertionError("looked at")

    assert queue.pop(refused, everybody) == "a0"
    assert starts(queue) == []


def test_each_that_waits_is_looked_at_once_for_one_that_begins() -> None:
    queue, looked = queue_of("a0", "b30", "c60", order=LEAST), list[str]()

    def noted(name: str) -> Asked:
        looked.append(name)
        return look(name)

    queue.pop(noted, everybody)
    starts(queue)
    assert looked == ["a0", "b30", "c60"]


def test_a_start_is_told_again_only_once_it_has_moved_by_a_quarter_of_the_time_until_then() -> None:
    """b takes 4 s of the rest, and is expected in 8, then (after 4 s) in 4, 5, 5.1."""
    queue = queue_of("a0/8000", "b0/9000", order=LEAST)
    popped(queue)
    assert starts(queue) == [("b0/9000", 8.0)]
    for name, told in [("c0/4000", []), ("d0/5000", []), ("e0/5400", [("b0/9000", 5.4)])]:
        queue.push(name, name)
        assert popped(queue) == name
        assert starts(queue, now_s=4.0) == told


def test_one_that_waits_for_its_prefix_is_foretold_as_well() -> None:
    queue = queue_of("a0", "b30", "c60", order=LONGEST)
    assert queue.pop(look, lambda name: name == "a0") == "a0"
    assert starts(queue) == [("c60", 0.1), ("b30", 0.14)]


@pytest.mark.parametrize("order", [LONGEST, LEAST])
def test_those_that_wait_begin_in_the_order_that_was_foretold(order: PrefillOrder) -> None:
    """Longer queues than patience lasts: the oldest are foretold where they will be, not last."""
    source = random.Random(7)
    queue: WaitingQueue[str] = WaitingQueue(100, order)
    for number in range(60):
        name = f"x{source.randrange(90 if number > 20 else 5)}/{source.randrange(100, 110)}#{number}"
        queue.push(name, name)

    def seen(name: str) -> Asked:
        return look(name.partition("#")[0])

    queue.pop(seen, everybody)
    foretold = [name for name, _ in sorted(queue.starts(0), key=lambda one: one[1])]
    assert foretold == [queue.pop(seen, everybody) for _ in range(59)]
    assert foretold.index(min(foretold, key=lambda name: int(name.partition("#")[2]))) <= PATIENCE
