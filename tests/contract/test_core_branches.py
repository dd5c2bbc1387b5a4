"""reference: what happens to the branches that a session turns away from."""

from agentcache.types import FULL
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import frontiers, markers, references
from tests.contract.test_core_sessions import left, turn


def test_a_branch_taken_later_leaves_the_old_one(drive: Drive) -> None:
    """A title or summary call does not cost the main conversation its cache."""
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    turn(driver, "abxy", (3, 4))
    assert left(driver) == [(2, True), (4, False)]
    assert references(driver, pages_of("abcd", 4), FULL) == [1, 1, 1, 1]


def test_a_later_turn_on_the_new_branch_releases_the_left_one(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    turn(driver, "abxy", (3, 4))
    turn(driver, "abxyz", (5, 6))
    assert left(driver) == [(6, False)]
    assert references(driver, pages_of("abcd", 4), FULL) == [1, 1, 0, 0]


def test_a_turn_that_returns_revives_a_left_marker(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    turn(driver, "abxy", (3, 4))
    turn(driver, "abcde", (5, 6))
    assert left(driver) == [(4, True), (6, False)]
    turn(driver, "abcdef", (7, 8))
    assert left(driver) == [(8, False)]
    assert references(driver, pages_of("abxy", 4), FULL) == [1, 1, 0, 0]


def test_parallel_branches_leave_nothing(drive: Drive) -> None:
    """Admitted before the other finished: both are live, and extending one keeps the other."""
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 3))
    turn(driver, "abxy", (2, 4))
    assert left(driver) == [(3, False), (4, False)]
    turn(driver, "abxyz", (2, 5))
    assert left(driver) == [(3, False), (5, False)]


def test_left_branches_go_along_a_chain(drive: Drive) -> None:
    """Three topics, each left for the next: when the third goes on, neither of the first two is wanted back."""
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    turn(driver, "abxy", (3, 4))
    turn(driver, "pq", (5, 6))
    assert left(driver) == [(2, True), (4, True), (6, False)]
    turn(driver, "pqr", (7, 8))
    assert left(driver) == [(8, False)]


def test_a_branch_left_for_one_that_was_evicted_goes_too(drive: Drive) -> None:
    """xyz is evicted and published again: what was left for it is left for its successor."""
    driver = drive("", page=4)
    turn(driver, "abcd", (1, 2))
    turn(driver, "xyz", (3, 4))
    driver.match(pages_of("abcd", 4))
    driver.evict(FULL, 3)
    assert [(view.frontier, view.left) for view in markers(driver, "s")] == [(16, True)]
    turn(driver, "xyz", (5, 6))
    turn(driver, "xyzw", (7, 8))
    assert driver.depth(pages_of("abcd", 4)) == 16
    assert frontiers(driver, "s") == [16]
    assert references(driver, pages_of("abcd", 4), FULL) == [0] * 4


def test_a_branch_left_for_one_that_was_merged_goes_too(drive: Drive) -> None:
    """abcd and pq are left for ab; abcde revives abcd, which takes ab in."""
    driver = drive("", page=4)
    turn(driver, "abcd", (1, 3))
    turn(driver, "pq", (2, 4))
    turn(driver, "ab", (5, 6))
    turn(driver, "abcde", (7, 8))
    assert sorted(frontiers(driver, "s")) == [8, 20]
    turn(driver, "abcdef", (9, 10))
    assert frontiers(driver, "s") == [24]
