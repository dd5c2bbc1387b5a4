"""Eviction order `ert` where several sessions, tiers or pages meet, and what a core remembers of waits."""

import pytest

from agentcache.keys import Key
from agentcache.tree.api import Order
from agentcache.types import FULL, MAMBA, SWA, TierName
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends
from tests.contract.waiting import at, idle, leaving, owned, publish, queued, running
from tests.driver import Driver

HOST = TierName.HOST


# -- several sessions


def test_of_several_sessions_the_latest_key_counts_and_hints_do_not(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 500, s=idle(900, 100), t=idle(900, 300, hint=10**6), u=idle(900, 200))
    publish(driver, "b", 600)
    owned(driver, "c", 700, v=idle(900, 250))
    owned(driver, "d", 800, w=idle(900, 350))
    assert leaving(at(driver, 1000), *"abcd") == "cadb"


def test_several_sessions_that_noted_nothing_go_by_the_last_use(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    publish(driver, "a", 100)
    owned(driver, "b", 200, s=running(900), t=running(900))
    publish(driver, "c", 300)
    assert leaving(at(driver, 1000), *"abc") == "abc"


def test_a_note_stays_while_its_session_runs(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    key = owned(driver, "a", 500, s=idle(900, 400))
    driver.expect("s", running(950))
    driver.turn("t", key, (1, 2))
    driver.expect("t", running(950))
    owned(driver, "b", 600, u=idle(900, 350))
    owned(driver, "c", 700, v=idle(900, 450))
    assert leaving(at(driver, 1000), *"abc") == "bac"


def test_a_single_session_notes_anew_even_an_earlier_key(drive: Drive) -> None:
    """400, then 300 of the same session alone; of two, 350 is later than 300."""
    driver = drive(page=4, order=Order.ERT)
    key = owned(driver, "a", 500, s=idle(900, 400))
    driver.expect("s", idle(900, 300))
    driver.turn("t", key, (1, 2))
    driver.expect("t", idle(900, 350))
    owned(driver, "b", 600, u=idle(900, 340))
    owned(driver, "c", 700, v=idle(900, 360))
    assert leaving(at(driver, 1000), *"abc") == "bac"


def test_a_note_goes_with_the_last_session(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    key = owned(driver, "a", 100, s=idle(900, 900))
    driver.release("s")
    publish(driver, "b", 200)
    for session in "tu":
        driver.turn(session, key, (1, 2))
    assert leaving(at(driver, 1000), *"ab") == "ab"


def test_of_several_queued_sessions_the_earliest_counts(drive: Drive) -> None:
    """First come counts before any expected start; of two starts the nearer; of two in the queue the one in front."""
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 100, s=queued(9, 1001), t=queued(5))
    owned(driver, "b", 200, u=queued(1, 3000), v=queued(2, 1020), w=idle(900, 1))
    owned(driver, "c", 300, x=queued(7), y=queued(4))
    owned(driver, "d", 400, z=idle(900, 970))
    owned(driver, "e", 500, r=queued(6))
    assert leaving(at(driver, 1000), *"abcde") == "dbeac"


def test_an_aux_piece_is_waited_for_by_every_queued_session(drive: Drive) -> None:
    """The state at 4 is where one session ends and the other, which is queued, might turn back to."""
    driver = drive("M", page=4, order=Order.ERT)
    driver.turn("s", publish(driver, "a", 100), (1, 2))
    key = publish(driver, "ab", 200)
    driver.turn("t", key, (1, 2), alternate=4)
    driver.expect("t", queued(1))
    other = publish(driver, "x", 9000)
    at(driver, 10_000).evict(MAMBA)
    assert ends(driver, other, MAMBA) == []
    assert ends(driver, key, MAMBA) == [4, 8]


def on_both_and_below(driver: Driver, now: int) -> Key:
    """A path of three pages, of which the device has the first two and only the host the third."""
    key = publish(driver, "abc", now)
    driver.backup(key)
    (flight,) = driver.flights.values()
    driver.commit(flight.job)
    driver.evict(FULL)
    assert ends(driver, key, FULL) == [4, 8]
    return key


@pytest.mark.parametrize(("ends_here", "order"), [("s", "xb"), ("t", "bx")])
def test_a_shared_full_page_is_waited_for_where_a_queued_session_ends(
    drive: Drive, ends_here: str, order: str
) -> None:
    """Session s ends at b, t at c, which is on the host only. If t is queued, b goes by its last use."""
    driver = drive(page=4, order=Order.ERT, host_tier=True)
    longer = on_both_and_below(driver, 100)
    driver.turn("s", pages_of("ab", 4), (1, 2))
    driver.turn("t", longer, (1, 2))
    publish(driver, "x", 500)
    driver.expect(ends_here, queued(1))
    assert leaving(at(driver, 1000), "x", "ab") == order


def test_where_a_session_ends_moves_with_it(drive: Drive) -> None:
    """The queued session ended at b, and ranked so; then at c, which is on the host only."""
    driver = drive(page=4, order=Order.ERT, host_tier=True)
    longer = on_both_and_below(driver, 100)
    for session in "st":
        driver.turn(session, pages_of("ab", 4), (1, 2))
    driver.expect("t", queued(1))
    publish(driver, "x", 500)
    driver.core.stats()
    driver.turn("t", longer, (3, 4))
    assert leaving(at(driver, 1000), "x", "ab") == "bx"


# -- what a core remembers


def test_a_session_without_markers_is_not_remembered(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    driver.expect("s", queued(1))
    owned(driver, "b", 100)
    driver.turn("s", pages_of("b", 4), (1, 2))
    publish(driver, "a", 200)
    assert leaving(at(driver, 1000), *"ab") == "ba"


@pytest.mark.parametrize("how", ["release", "evict", "clear"])
def test_a_wait_is_forgotten_with_the_last_marker(drive: Drive, how: str) -> None:
    driver = drive(page=4, order=Order.ERT)
    key = owned(driver, "b", 100, s=queued(1))
    if how == "release":
        driver.release("s")
    elif how == "evict":
        driver.evict(FULL)
    else:
        driver.clear()
    publish(driver, "b", 200)
    driver.turn("s", key, (1, 2))
    publish(driver, "a", 300)
    assert leaving(at(driver, 1000), *"ab") == "ba"


def test_a_wait_outlives_markers_that_are_not_the_last(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "b", 100, s=queued(1))
    driver.turn("s", publish(driver, "c", 200), (3, 4), superseded=True)
    publish(driver, "a", 300)
    assert leaving(at(driver, 1000), *"abc") == "bac"


# -- what depends on equal keys, and on the other tier


def test_a_tail_is_trimmed_through_equal_keys_only(drive: Drive) -> None:
    """The pages c and d go, b is another session's and later; x is next."""
    driver = drive(page=4, order=Order.ERT)
    long = publish(driver, "abcd", 100)
    driver.turn("s", pages_of("ab", 4), (1, 2))
    driver.expect("s", idle(900, 850))
    other = publish(driver, "x", 500)
    assert at(driver, 1000).evict(FULL, 3).freed == 3
    assert (driver.depth(long), driver.depth(other)) == (8, 0)


@pytest.mark.parametrize(("key_ns", "left"), [(100, [12, 16]), (50, [4, 12, 16])])
def test_pages_of_a_window_go_together_when_their_keys_are_equal(
    drive: Drive, key_ns: int, left: list[int]
) -> None:
    """Two pages of one chunk on two sessions' way, both used at 100, the second of them referenced."""
    driver = drive("S", page=4, grid=2, order=Order.ERT)
    owned(driver, "ab", 100, s=idle(900, key_ns), t=idle(900, key_ns))
    key = publish(driver, "abcd", 300)
    at(driver, 1000).evict(SWA)
    assert ends(driver, key, SWA) == left


def test_the_same_order_on_the_host(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT, host_tier=True)
    for now, letter in enumerate("abcd", start=1):
        at(driver, 100 * now).insert(pages_of(letter, 4), tier=HOST)
    for session, letter, wait in [
        ("s", "a", queued(1)),
        ("t", "b", idle(900, 0, hint=1000)),
        ("u", "d", idle(900, 250)),
    ]:
        driver.turn(session, pages_of(letter, 4), (1, 2))
        driver.expect(session, wait)
    assert leaving(at(driver, 1000), *"abcd", tier=HOST) == "bdca"


@pytest.mark.parametrize(("hint", "moving"), [(150, 1), (60, 0), (25, 0)])
def test_room_on_the_host_goes_to_who_is_read_sooner_now(drive: Drive, hint: int, moving: int) -> None:
    """At 1000 the host's page has `hint` - 20 left, or a quarter of 20; the device's is 100 behind."""
    driver = drive(page=4, order=Order.ERT, host_tier=True, write_back=True, host_slots=1)
    there, here = pages_of("b", 4), pages_of("a", 4)
    at(driver, 100).insert(there, tier=HOST)
    driver.turn("s", there, (1, 2))
    driver.expect("s", idle(980, 0, hint))
    at(driver, 200).insert(here)
    driver.turn("t", here, (1, 2))
    driver.expect("t", idle(900, 900))
    answer = at(driver, 1000).evict(FULL)
    assert (answer.moving, answer.freed) == (moving, 1 - moving)
    assert driver.peek(there).any_tier.length == (0 if moving else 4)
