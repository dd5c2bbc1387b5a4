"""What a link keeps while its store is away: each session once, and never more than it can list."""

from dataclasses import replace

import pytest

from agentcache.routed import KnownSession
from agentcache.types import SessionId
from agentcache.worker.link_standing import DOUBTED, Doubts

ONE = KnownSession(SessionId("t/a"), 3, 1, 0.0, 60.0, None, busy=False)


def sessions(first: int, count: int, lost: bool = False) -> tuple[KnownSession, ...]:
    return tuple(
        replace(ONE, session=SessionId(f"t/{number}"), lost=lost) for number in range(first, first + count)
    )


def test_a_session_is_in_doubt_once_as_it_was_last_known() -> None:
    doubts = Doubts()
    newer = replace(ONE, generation=4)
    doubts.add((ONE,))
    doubts.add((newer,))
    assert doubts.some == (newer,)
    before, after = Doubts(), Doubts()
    before.add((ONE, *sessions(0, 1)))
    after.add((newer,))
    after.put_back(before)
    assert set(after.some) == {newer, *sessions(0, 1)}


@pytest.mark.parametrize("lost", [False, True])
def test_of_too_many_no_list_is_kept_but_all_is_in_doubt(lost: bool) -> None:
    doubts = Doubts()
    for first in range(0, 20 * DOUBTED, DOUBTED):
        doubts.add(sessions(first, DOUBTED, lost))
        assert len(doubts.some) <= DOUBTED
    assert doubts.any
    assert (doubts.all_of_it, doubts.lost) == (True, lost)


def test_those_of_a_store_that_lost_its_data_are_told_apart_as_long_as_they_can_be_listed() -> None:
    doubts = Doubts()
    doubts.add(sessions(0, 2, lost=True))
    doubts.add(sessions(2, DOUBTED))
    assert doubts.some == sessions(0, 2, lost=True)
    assert (doubts.all_of_it, doubts.lost) == (True, False)
