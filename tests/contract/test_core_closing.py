"""Many sessions close after half of their branches were evicted: no close meets what is gone, or what is others'."""

import pytest

from agentcache.keys import Key
from agentcache.tree.api import Order
from agentcache.types import FULL, ReleaseMode
from tests.builders import MakeCore, config_of, key_of
from tests.check import check_all
from tests.driver import Driver

PAGE = 4


def branch(*pages: int) -> Key:
    """One page a number."""
    return key_of([number * 10 + at for number in pages for at in range(PAGE)], PAGE)


def crowd(make_core: MakeCore, sessions: int) -> Driver:
    """Sessions s0, s1, … below one trunk, each with two branches of its own, in this order of use."""
    driver = Driver(make_core(config_of("SM", PAGE, order=Order.LRU)), slots=8 * sessions)
    for number in range(sessions):
        for at in range(2):
            driver.insert(key := branch(0, 1, 2 + number, at))
            driver.turn(f"s{number}", key, (1, 2 + at))
    return driver


@pytest.mark.parametrize("mode", [ReleaseMode.RELEASE, ReleaseMode.DROP])
def test_sessions_close_after_half_of_their_branches_were_evicted(
    make_core: MakeCore, mode: ReleaseMode
) -> None:
    """R174. Each close names what is still there, and no count, marker or reference is left of what went."""
    sessions = 30
    driver = crowd(make_core, sessions)
    driver.evict(FULL, 3 * sessions // 2 + 1)  # of the older sessions all pages of their own, of one some
    check_all(driver)
    for number in range(sessions):
        depths = [driver.depth(branch(0, 1, 2 + number, at)) // PAGE for at in range(2)]
        answer = driver.release(f"s{number}", mode)
        check_all(driver)
        assert answer.markers == 2
        full = next(held for held in answer.held if held.component == FULL)
        assert full.slots == sum(depths) - min(3, *depths)  # what is left of both branches
    stats = driver.core.stats()
    assert (stats.markers, {pool.referenced for pool in stats.pools}) == (0, {0})
    driver.evict(FULL, 4 * sessions)
    assert driver.core.stats().pages == 0
