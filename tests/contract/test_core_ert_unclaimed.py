"""The order `ert` for what has no session: read again so much later than its last use says."""

import pytest

from agentcache.tree.api import Order
from agentcache.types import MAMBA
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends
from tests.contract.waiting import at, idle, leaving, owned, publish, running


@pytest.mark.parametrize(("key_ns", "first"), [(399, "b"), (401, "a")])
def test_who_has_no_session_is_expected_later(drive: Drive, key_ns: int, first: str) -> None:
    """At 1000: a was used 100 ago, which counts as 600; b is expected as long ahead as its key lies behind."""
    driver = drive(page=4, order=Order.ERT, unclaimed_ns=500)
    owned(driver, "b", 800, s=idle(800, key_ns))
    publish(driver, "a", 900)
    assert leaving(at(driver, 1000), *"ab")[0] == first


def test_among_those_without_sessions_the_last_use_counts(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT, unclaimed_ns=500)
    for now, letter in enumerate("abc", start=1000):
        publish(driver, letter, now)
    driver.match(pages_of("a", 4))
    assert leaving(driver, *"abc") == "bca"


def test_what_a_closed_session_had_and_others_use_has_no_session(drive: Drive) -> None:
    """b is 200 behind, which is less than 50 and 500."""
    driver = drive(page=4, order=Order.ERT, unclaimed_ns=500)
    owned(driver, "b", 800, s=running(800))
    owned(driver, "a", 900, t=running(900))
    driver.release("t")
    at(driver, 950).match(pages_of("a", 4))
    assert leaving(at(driver, 1000), *"ab") == "ab"


def test_a_state_that_sessions_share_is_not_later_than_it_was_used(drive: Drive) -> None:
    """Both states behind "a" have no session; those of "x" lie where none is at all."""
    driver = drive("M", page=4, order=Order.ERT, unclaimed_ns=500)
    owned(driver, "ab", 500, s=running(500))
    owned(driver, "ac", 600, t=running(600))
    publish(driver, "xy", 900)
    at(driver, 1000).evict(MAMBA, 2)
    assert ends(driver, pages_of("xy", 4), MAMBA) == []
    assert ends(driver, pages_of("ab", 4), MAMBA) == [4, 8]
