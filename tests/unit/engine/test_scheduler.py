"""Who begins next."""

import pytest

from agentcache.engine.api import GenerateRequest
from agentcache.engine.scheduler import PATIENCE, PrefillOrder, Waiting, WaitingQueue
from agentcache.errors import CacheError, Kind
from agentcache.sessions import Ticket
from agentcache.types import SessionState

TICKET = Ticket(1, None, 0, SessionState.NONE, False)


def queue_of(*names: str, order: PrefillOrder = PrefillOrder.FCFS) -> WaitingQueue:
    queue = WaitingQueue(limit=4, order=order)
    for name in names:
        queue.push(waiting(name))
    return queue


def everybody(_waiting: Waiting) -> bool:
    return True


def waiting(name: str) -> Waiting:
    return Waiting(GenerateRequest(name, (1,), 1), TICKET, 0)


def prefix(request: GenerateRequest) -> int:
    """Names say how long their cached prefix is: a0, b64 …"""
    return int(request.request_id[1:])


def popped(queue: WaitingQueue) -> str:
    taken = queue.pop(prefix, everybody)
    assert taken
    return taken.request.request_id


def test_nobody_begins_before_its_prefix_has_arrived() -> None:
    queue = queue_of("a0", "b64", "c32")
    assert queue.pop(prefix, lambda _waiting: False) is None
    taken = queue.pop(prefix, lambda one: one.request.request_id != "a0")
    assert taken
    assert taken.request.request_id == "b64"
    assert queue.ids() == ("a0", "c32")


def test_fcfs_is_the_order_of_arrival() -> None:
    queue = queue_of("a0", "b64", "c32")
    assert [popped(queue) for _ in range(3)] == ["a0", "b64", "c32"]


def test_longest_prefix_goes_first_and_ties_go_by_arrival() -> None:
    queue = queue_of("a0", "b32", "c64", "d32", order=PrefillOrder.LONGEST_PREFIX)
    assert [popped(queue) for _ in range(4)] == ["c64", "b32", "d32", "a0"]


def test_longest_prefix_does_not_starve_the_oldest() -> None:
    queue = queue_of("a0", order=PrefillOrder.LONGEST_PREFIX)
    order = []
    for number in range(PATIENCE + 1):
        queue.push(waiting(f"x{number + 1}"))
        order.append(popped(queue))
    assert order.index("a0") == PATIENCE


def test_a_request_in_the_middle_can_be_taken_out() -> None:
    queue = queue_of("a0", "b1", "c2")
    assert "b1" in queue
    assert queue.take("b1").request.request_id == "b1"
    assert queue.ids() == ("a0", "c2")
    assert len(queue) == 2


def test_taking_out_the_oldest_resets_the_patience_with_it() -> None:
    queue = queue_of("a0", "b1", order=PrefillOrder.LONGEST_PREFIX)
    for number in range(PATIENCE):
        queue.push(waiting(f"x{number + 2}"))
        queue.pop(prefix, everybody)
    queue.take("a0")
    queue.push(waiting("y9"))
    assert popped(queue) == "y9"


def test_a_full_queue_says_so_and_free_seats_do_not_count() -> None:
    queue = queue_of("a0", "b1", "c2", "d3")
    queue.check_room(seats=1)
    with pytest.raises(CacheError) as full:
        queue.check_room(seats=0)
    assert full.value.kind is Kind.QUEUE_FULL
