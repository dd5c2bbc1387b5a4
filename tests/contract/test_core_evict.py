"""evict: leaf tails and pieces, cascade, dead tails, order `lru`, ties, what is never touched."""

import pytest

from agentcache.errors import Kind
from agentcache.types import FULL, MAMBA, SWA, ComponentName, TierName
from tests.builders import SWA2, all_kinds, pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends, refused
from tests.driver import Driver

ALL = [4, 8, 12, 16, 20, 24]


@pytest.mark.parametrize("want", [1, 2, 3])
def test_a_leaf_is_trimmed_from_its_end(drive: Drive, want: int) -> None:
    driver, key = drive(page=4), pages_of("abcd", 4)
    driver.insert(key)
    assert driver.evict(FULL, want).freed == want
    assert driver.depth(key) == 16 - 4 * want


def test_trimming_goes_on_to_the_next_boundary_that_votes(drive: Drive) -> None:
    driver, key = drive("M", page=4), pages_of("abcdef", 4)
    driver.insert(key, [(MAMBA, 4), (MAMBA, 12), (MAMBA, 24)])
    assert driver.evict(FULL, 1).freed == 3
    assert driver.depth(key) == 12
    assert driver.evict(FULL, 1).freed == 2
    assert driver.depth(key) == 4
    assert driver.evict(FULL, 1).freed == 1
    assert driver.core.snapshot().pages == ()


def test_trimming_goes_to_the_grid(drive: Drive) -> None:
    driver, key = drive(page=4, grid=3), pages_of("abcdef", 4)
    driver.insert(key)
    assert driver.evict(FULL, 1).freed == 3
    assert driver.depth(key) == 12


def test_full_takes_everything_of_the_trimmed_range(drive: Drive) -> None:
    driver, key = drive("SLM", page=4), pages_of("abcdef", 4)
    driver.insert(key)
    driver.evict(FULL, 2)
    for component in (FULL, SWA, SWA2, MAMBA):
        assert ends(driver, key, component) == ALL[:4]


def test_a_window_takes_smaller_windows_and_states_but_not_full(drive: Drive) -> None:
    driver, key = drive("SLM", page=4), pages_of("abcdef", 4)
    driver.insert(key)
    driver.match(key)  # the long window at 24 covers 16, 20, 24
    assert driver.evict(SWA2).freed == 1
    assert ends(driver, key, FULL) == ALL
    for component in (SWA2, SWA, MAMBA):
        assert ends(driver, key, component) == [4, 8, 16, 20, 24]


def test_a_small_window_spares_the_larger_one(drive: Drive) -> None:
    driver, key = drive("SLM", page=4), pages_of("abcdef", 4)
    driver.insert(key)
    driver.match(key)
    assert driver.evict(SWA).freed == 1
    assert ends(driver, key, SWA) == [4, 8, 12, 16, 24]
    assert ends(driver, key, MAMBA) == [4, 8, 12, 16, 24]
    assert ends(driver, key, SWA2) == ALL


def test_a_state_goes_alone(drive: Drive) -> None:
    driver, key = drive("SLM", page=4), pages_of("abcdef", 4)
    driver.insert(key)
    driver.match(key)
    assert driver.evict(MAMBA).freed == 1
    assert ends(driver, key, MAMBA) == [4, 8, 12, 16, 24]
    for component in (FULL, SWA, SWA2):
        assert ends(driver, key, component) == ALL


def test_a_window_interval_between_boundaries_goes_at_once(drive: Drive) -> None:
    """The match used the page at 24 alone; the one beside it goes first, then the next interval in one piece."""
    driver, key = drive("S", page=4, grid=2), pages_of("abcdef", 4)
    driver.insert(key)
    driver.match(key)
    assert driver.evict(SWA).freed == 1
    assert ends(driver, key, SWA) == [4, 8, 12, 16, 24]
    assert driver.evict(SWA).freed == 2
    assert ends(driver, key, SWA) == [4, 8, 24]


def test_a_dead_tail_goes_in_the_same_call(drive: Drive) -> None:
    """Nothing below 8 votes once the state at 24 is gone: FULL below 8 is of no use to anyone."""
    driver, key = drive("M", page=4), pages_of("abcdef", 4)
    driver.insert(key, [(MAMBA, 8), (MAMBA, 24)])
    driver.match(key, 8)
    assert driver.evict(MAMBA).freed == 1
    assert ends(driver, key, FULL) == [4, 8]


def test_with_no_boundary_left_the_whole_path_goes(drive: Drive) -> None:
    driver, key = drive("M", page=4), pages_of("abcd", 4)
    driver.insert(key, [(MAMBA, 16)])
    assert driver.evict(MAMBA).freed == 1
    assert driver.core.snapshot().pages == ()


def test_a_dead_tail_stays_while_it_is_locked(drive: Drive) -> None:
    driver, key = drive("M", page=4), pages_of("abcd", 4)
    driver.insert(key, [(MAMBA, 8), (MAMBA, 16)])
    held = driver.lock(key)
    driver.unlock(held, MAMBA)
    assert driver.evict(MAMBA, 2).freed == 2
    assert ends(driver, key, FULL) == ALL[:4]
    assert driver.depth(key) == 0
    driver.unlock(held)


def test_a_tail_of_a_fork_dies_alone(drive: Drive) -> None:
    driver = drive("M", page=4)
    left, right = pages_of("abcd", 4), pages_of("abxy", 4)
    driver.insert(left, [(MAMBA, 16)])
    driver.insert(right, [(MAMBA, 16)])
    assert driver.evict(MAMBA).freed == 1
    assert ends(driver, left, FULL) == [4, 8]
    assert driver.depth(right) == 16


def test_locked_data_is_never_touched(drive: Drive) -> None:
    driver, key = drive("SLM", page=4), pages_of("abcdef", 4)
    driver.insert(key)
    held = driver.lock(key)
    for component in (MAMBA, SWA, SWA2, FULL):
        driver.evict(component, 6)
    assert [ends(driver, key, name) for name in (FULL, SWA, SWA2, MAMBA)] == [ALL, [24], [16, 20, 24], [24]]
    driver.unlock(held)


def test_a_cascade_spares_what_is_locked(drive: Drive) -> None:
    """The long window is released early and evicted; the short window and the state under it stay."""
    driver, key = drive("SLM", page=4), pages_of("abcdef", 4)
    driver.insert(key)
    held = driver.lock(key)
    driver.unlock(held, SWA2)
    assert driver.evict(SWA2, 6).freed == 6
    assert [ends(driver, key, name) for name in (FULL, SWA, MAMBA)] == [ALL, [24], [24]]
    driver.unlock(held)


def test_least_recent_leaf_goes_first(drive: Drive) -> None:
    driver = drive(page=4)
    keys = [pages_of(letter, 4) for letter in "abc"]
    for key in keys:
        driver.insert(key)
    driver.match(keys[0])
    victims = []
    for _ in keys:
        driver.evict(FULL)
        victims.append([driver.depth(key) for key in keys])
    assert victims == [[4, 0, 4], [4, 0, 0], [0, 0, 0]]


def test_a_trunk_outlives_its_branches(drive: Drive) -> None:
    driver = drive(page=4)
    left, right = pages_of("abc", 4), pages_of("abx", 4)
    driver.insert(left)
    driver.insert(right)
    driver.evict(FULL, 2)
    assert driver.depth(left) == driver.depth(right) == 8


def test_one_call_takes_from_several_leaves(drive: Drive) -> None:
    driver = drive(page=4)
    for letters in ("abc", "xyz", "pq"):
        driver.insert(pages_of(letters, 4))
    assert driver.evict(FULL, 7).freed == 7
    assert driver.depth(pages_of("pq", 4)) == 4


def at_once(drive: Drive, kinds: str, *letters: str) -> Driver:
    """A driver whose keys were all inserted at the same nanosecond."""
    driver = drive(kinds, page=4)
    for key in letters:
        driver.now = 100
        driver.insert(pages_of(key, 4))
    return driver


def test_ties_go_deeper_first(drive: Drive) -> None:
    driver = at_once(drive, "", "x", "abc", "pq")
    driver.evict(FULL)
    assert [driver.depth(pages_of(key, 4)) for key in ("x", "abc", "pq")] == [4, 8, 8]


def test_ties_at_one_depth_go_to_the_older(drive: Drive) -> None:
    driver = at_once(drive, "", "ab", "xy")
    driver.evict(FULL)
    assert [driver.depth(pages_of(key, 4)) for key in ("ab", "xy")] == [4, 8]


def test_ties_of_states_go_deeper_first(drive: Drive) -> None:
    driver = at_once(drive, "M", "abc")
    driver.match(pages_of("abc", 4))
    driver.evict(MAMBA)
    assert ends(driver, pages_of("abc", 4), MAMBA) == [4, 12]


def test_want_beyond_what_there_is_says_so(drive: Drive) -> None:
    driver = drive("SM", page=4)
    driver.insert(pages_of("abc", 4))
    answer = driver.evict(FULL, 10)
    assert (answer.freed, answer.moving, answer.short) == (3, 0, 7)
    assert driver.evict(SWA, 2).short == 2


def test_want_nothing_takes_nothing(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 0)
    assert driver.depth(key) == 12


def test_device_pages_that_the_host_has_only_leave_the_device(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key)
    plan = driver.backup(key)
    assert plan.job is not None
    driver.commit(plan.job)
    assert driver.evict(FULL, 3).freed == 3
    found = driver.peek(key)
    assert (found.device.length, found.any_tier.length) == (0, 12)


def test_the_host_is_evicted_by_the_same_rules(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, tier=TierName.HOST)
    assert driver.evict(FULL, 1, TierName.HOST).freed == 1
    assert ends(driver, key, SWA, TierName.HOST) == ends(driver, key, MAMBA, TierName.HOST) == [4, 8, 12]
    assert driver.evict(MAMBA, 1, TierName.HOST).freed == 1
    assert driver.evict(FULL, 9, TierName.HOST).short >= 6
    assert driver.core.snapshot().pages == ()


@pytest.mark.parametrize("kinds", all_kinds())
def test_everything_can_go_one_by_one(drive: Drive, kinds: str) -> None:
    driver = drive(kinds, page=4)
    for letters in ("abcd", "abxy", "pqr"):
        driver.insert(pages_of(letters, 4))
    rounds = 0
    while driver.ledger(FULL).cached():
        for spec in driver.config.specs:
            driver.evict(spec.name)
        rounds += 1
        assert rounds < 20
    assert driver.core.snapshot().pages == ()


def test_no_such_component(drive: Drive) -> None:
    driver, key = drive("S", page=4), pages_of("ab", 4)
    driver.insert(key)
    before = driver.core.snapshot()
    evict = driver.core.evict
    for name in (MAMBA, ComponentName("CONV")):
        call = lambda name=name: evict(name, TierName.DEVICE, 1, {}, driver.tick())  # noqa: E731
        assert refused(call) is Kind.UNKNOWN_COMPONENT
    assert driver.core.snapshot() == before
