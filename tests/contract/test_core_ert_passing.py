"""The order `ert` for windows and states that sessions left on their way and do not reference."""

import pytest

from agentcache.tree.api import Order
from agentcache.types import MAMBA, SWA, ComponentName
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends
from tests.contract.waiting import at, idle, owned, publish, running
from tests.driver import Driver

pytestmark = pytest.mark.parametrize(("kinds", "component"), [("M", MAMBA), ("S", SWA)])


def parked(drive: Drive, kinds: str) -> Driver:
    """s has waited since 100 behind "a"; t is at work behind "bcd", and left pieces behind "b" and "bc"."""
    driver = drive(kinds, page=4, order=Order.ERT)
    owned(driver, "a", 100, s=idle(100, 50))
    owned(driver, "bcd", 900, t=running(900))
    return driver


def there(driver: Driver, component: ComponentName) -> tuple[list[int], list[int]]:
    """Where "a" and "bcd" have pieces."""
    found = [ends(driver, pages_of(letters, 4), component) for letters in ("a", "bcd")]
    return found[0], found[1]


def test_what_one_session_only_passed_goes_before_what_another_waits_for(
    drive: Drive, kinds: str, component: ComponentName
) -> None:
    driver = parked(drive, kinds)
    at(driver, 1000)
    for left in ([4, 12], [12]):
        driver.evict(component)
        assert there(driver, component) == ([4], left)
    driver.evict(component)
    assert there(driver, component) == ([], [12])


def test_what_was_matched_goes_by_its_last_use(drive: Drive, kinds: str, component: ComponentName) -> None:
    """A look matches nothing."""
    driver = parked(drive, kinds)
    at(driver, 950).match(pages_of("bc", 4))
    driver.peek(pages_of("b", 4))
    at(driver, 1000).evict(component)
    assert there(driver, component) == ([4], [8, 12])
    driver.evict(component)
    assert there(driver, component) == ([], [8, 12])


def test_what_two_sessions_passed_goes_by_its_last_use(
    drive: Drive, kinds: str, component: ComponentName
) -> None:
    """Of the pieces behind "b" and "bc", the second lies on the way of t alone."""
    driver = parked(drive, kinds)
    owned(driver, "be", 910, u=running(910))
    at(driver, 1000)
    driver.evict(component)
    assert there(driver, component) == ([4], [4, 12])
    driver.evict(component)
    assert there(driver, component) == ([], [4, 12])


def test_it_goes_first_when_its_session_is_closed(drive: Drive, kinds: str, component: ComponentName) -> None:
    driver = parked(drive, kinds)
    publish(driver, "x", 950)
    driver.release("t")
    at(driver, 1000)
    for left in ([4, 8], [4], []):
        driver.evict(component)
        assert there(driver, component) == ([4], left)


def test_who_matches_the_path_takes_that_back(drive: Drive, kinds: str, component: ComponentName) -> None:
    """The path has no session any more, and is read by someone without one."""
    driver = parked(drive, kinds)
    driver.release("t")
    at(driver, 990).match(pages_of("bcd", 4))
    driver.evict(component)
    assert there(driver, component) == ([], [4, 8, 12])


def test_without_sessions_all_goes_by_last_use(drive: Drive, kinds: str, component: ComponentName) -> None:
    driver = drive(kinds, page=4, order=Order.ERT)
    publish(driver, "a", 100)
    at(driver, 150).match(pages_of("a", 4))
    publish(driver, "bcd", 900)
    driver.evict(component)
    assert there(driver, component) == ([], [4, 8, 12])
