"""The naive LRU against what a person computes on paper."""

import random

import pytest

from agentcache.replay.lab.serving import Found, Why
from agentcache.replay.paged import Workload
from tests.unit.replay.lab.naive import NaiveLru
from tests.worlds import (
    AT_ONCE,
    Says,
    calls_of,
    checked,
    random_machine,
    random_script,
    random_workload,
    replayed,
    script,
    workload,
)


def found(paged: Workload, capacity: int, starts: list[int], gaps: list[list[int]]) -> list[tuple[int, int]]:
    """Session and pages found of every call, in the order of their ends."""
    calls = replayed(script(paged, starts, gaps), AT_ONCE, checked(NaiveLru(paged, capacity)))
    return [(one.call.session, one.found.device) for one in calls]


def test_the_least_recently_used_page_goes_the_deepest_first() -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 2, 3])], [Says([4, 5]), Says([4, 5])])
    # 0: 1 2 3 | 10: needs 2, one is free: 3 goes | 20: 5 is older than 1 and 2 | 30: 3, of 20, is not in use: it goes
    assert found(paged, 4, [0, 10], [[0, 20], [0, 20]]) == [(0, 0), (1, 0), (0, 2), (1, 1)]


def test_a_shared_page_is_as_young_as_its_last_use() -> None:
    paged = workload([Says([1, 2]), Says([1, 2])], [Says([1, 3]), Says([1, 3])], [Says([4])])
    # 0: 1 2 | 1: finds 1, 3 comes | 2: for 4 the page 2 goes, used at 0 | 3: finds 1 3 | 4: finds 1, 4 goes for 2
    assert found(paged, 3, [0, 1, 2], [[0, 4], [0, 2], [0]]) == [(0, 0), (1, 1), (2, 0), (1, 2), (0, 1)]


def test_of_two_paths_of_one_moment_the_older_goes_whole() -> None:
    paged = workload([Says([1, 2]), Says([1, 2])], [Says([3, 4]), Says([3, 4])], [Says([5, 6])])
    assert found(paged, 4, [0, 0, 5], [[0, 20], [0, 10], [0]])[2:] == [(2, 0), (1, 2), (0, 0)]


def test_an_answer_is_kept_and_used_when_it_ends() -> None:
    paged = workload([Says([1], answer=1), Says([1, 2])], [Says([3]), Says([3])])
    # 0: 1 and its answer 2 | 1: 3 | 2: finds both | 3: 3 is still there
    assert found(paged, 3, [0, 1], [[0, 2], [0, 2]]) == [(0, 0), (1, 0), (0, 2), (1, 1)]


def test_what_does_not_fit_is_kept_as_far_as_it_does() -> None:
    paged = workload([Says([1, 2, 3, 4], answer=1), Says([1, 2, 3, 4])])
    assert found(paged, 3, [0], [[0, 1]]) == [(0, 0), (0, 3)]


def test_of_an_answer_as_much_is_kept_as_fits() -> None:
    paged = workload([Says([1], answer=3), Says([1, 2, 3, 4])])
    assert found(paged, 2, [0], [[0, 1]]) == [(0, 0), (0, 2)]


def test_nothing_starts_that_does_not_fit_beside_what_runs() -> None:
    paged = workload([Says([1, 2])], [Says([3, 4])], [Says([1])])
    first, second, third = calls_of(paged)
    served = NaiveLru(paged, 3)
    assert served.start(first, 0, must=False) == Found(why=Why.NEVER_STORED, behind=Why.NEVER_STORED)
    assert served.start(second, 1, must=False) is None
    served.computed(first, 2)
    assert served.start(second, 3, must=False) is None, "what runs keeps its pages"
    assert served.start(third, 4, must=False) == Found(1)
    served.computed(third, 5)
    served.finish(first, 6)
    served.finish(third, 7)
    assert served.start(second, 8, must=False) is not None
    assert set(served.pages) == {1}, "the older of the two went"


def test_pages_that_another_call_published_meanwhile_need_no_room() -> None:
    paged = workload([Says([1, 2])], [Says([1, 2])], [Says([3, 4])])
    first, second, third = calls_of(paged)
    served = NaiveLru(paged, 4)
    served.start(first, 0, must=False)
    served.start(second, 0, must=False)
    assert served.start(third, 0, must=False) is None
    served.computed(first, 1)
    served.computed(second, 1)
    served.check()
    assert served.start(third, 2, must=False) is not None


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_what_is_there_fits_at_every_moment(first: int) -> None:
    for seed in range(first, first + 50):
        rng = random.Random(seed)
        paged = random_workload(rng)
        served = NaiveLru(paged, rng.randint(1, 12))
        replayed(random_script(rng, paged, 60), random_machine(rng), checked(served))
        assert not served._running
