"""The order `ert` where a call does several things: what passes from hand to hand, time that runs back, two tiers."""

from agentcache.tree.api import Order
from agentcache.types import FULL, MAMBA, TierName
from tests.builders import SWA2, pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends
from tests.contract.waiting import at, idle, leaving, owned, publish, read


def test_what_passes_from_one_session_to_another_keeps_its_note(drive: Drive) -> None:
    """One eviction moves s off the window page at 12 and t onto it: it was never without a session."""
    driver = drive("LM", page=4, order=Order.ERT)
    key = publish(driver, "abcdef", 100)
    read(driver, "abcdef")
    driver.turn("s", pages_of("abc", 4), (1, 2))
    driver.expect("s", idle(900, 10))
    driver.turn("t", key, (1, 2))
    driver.expect("t", idle(900, 20))
    at(driver, 1000).evict(MAMBA, 2)
    assert ends(driver, key, MAMBA) == [4, 8, 16, 20]
    driver.turn("u", pages_of("abcd", 4), (1, 2))
    driver.evict(SWA2)
    assert ends(driver, key, SWA2) == [4, 8]  # 10, at 12, and what cannot be reached without it


def test_an_earlier_time_than_before_counts_as_that_time(drive: Drive) -> None:
    """At 2000 one is 1000 / 4 overdue and the other 260 behind; so they are when asked as of 1010."""
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 500, s=idle(1000, 0, hint=100))
    owned(driver, "b", 600, t=idle(1000, 1740))
    publish(driver, "c", 700)
    at(driver, 2000).evict(FULL)
    driver.now = 1009
    assert leaving(driver, *"ab") == "ba"


def test_what_was_released_stays_so_on_the_host(drive: Drive) -> None:
    """a was released, then demoted after b: on the host it goes first all the same."""
    driver = drive(page=4, order=Order.ERT, host_tier=True, write_back=True)
    publish(driver, "b", 100)
    owned(driver, "a", 500, s=idle(500, 400))
    driver.release("s", through=1)
    at(driver, 1000).evict(FULL, 2)
    for flight in list(driver.flights.values()):
        driver.commit(flight.job)
    assert leaving(driver, "b", "a", tier=TierName.HOST) == "ab"
