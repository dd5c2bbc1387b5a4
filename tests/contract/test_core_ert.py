"""Eviction order `ert`: longest expected time until it is read again first. Every time is computed by hand."""

import pytest

from agentcache.tree.api import Order
from agentcache.types import FULL, MAMBA, SWA
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends
from tests.contract.waiting import at, idle, leaving, owned, publish, queued, read, running

START = 1000


# -- without sessions, and with sessions that say nothing


def test_without_sessions_it_is_lru(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    for now, letter in enumerate("abc", start=START):
        publish(driver, letter, now)
    driver.match(pages_of("a", 4))
    assert leaving(driver, *"abc") == "bca"


def test_a_session_that_said_nothing_goes_by_its_last_use(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    for now, letter in enumerate("abc", start=START):
        publish(driver, letter, now * 2)
    driver.turn("s", pages_of("a", 4), (1, 2))
    assert leaving(driver, *"abc") == "abc"


def test_equally_long_the_deeper_page_goes_and_then_the_older_one(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    for now, (letters, session) in enumerate([("a", "s"), ("b", "t"), ("cd", "u")], start=1):
        owned(driver, letters, 100 * now, **{session: idle(500, 50)})
    assert leaving(at(driver, 1000), "a", "b", "cd") == "dab"


@pytest.mark.parametrize("order", [Order.LRU, Order.SESSION])
def test_the_other_orders_ignore_waits(drive: Drive, order: Order) -> None:
    driver = drive(page=4, order=order)
    owned(driver, "a", 100, s=queued(1))
    owned(driver, "b", 200, t=idle(200, 0, hint=10**9))
    owned(driver, "c", 300, u=running(1))
    assert leaving(at(driver, 1000), *"abc") == "abc"


# -- one session


def test_a_tool_loop_takes_its_own_old_states_and_no_others(drive: Drive) -> None:
    """R155. Room for eight states: after ten turns of B, A's state, B's newest and what both began with are there."""
    driver = drive("M", page=4, order=Order.ERT, slots=64)
    publish(driver, "p", 100)
    owned(driver, "pa", 200, a=idle(200, 100))
    turns = ["pb" + "cdefghijk"[:count] for count in range(10)]
    for number, letters in enumerate(turns):
        if len(driver.ledger(MAMBA).cached()) == 8:
            driver.evict(MAMBA, 1)
        key = pages_of(letters, 4)
        at(driver, 1000 + 100 * number).insert(key, [(MAMBA, len(key))])
        driver.turn("b", key, (2 * number + 1, 2 * number + 2))
        driver.expect("b", idle(driver.now, driver.now - 50))
    assert ends(driver, pages_of("pa", 4), MAMBA) == [4, 8]
    assert ends(driver, pages_of(turns[-1], 4), MAMBA) == [4, 24, 28, 32, 36, 40, 44]


def test_an_idle_session_goes_by_its_key(drive: Drive) -> None:
    """Used last, expected latest: the key is the time of use less the expected gap. Ranked with who has no session."""
    driver = drive(page=4, order=Order.ERT)
    publish(driver, "a", 100)
    publish(driver, "b", 200)
    publish(driver, "c", 300)
    owned(driver, "d", 400, s=idle(400, 250))
    owned(driver, "e", 500, t=idle(500, 50))
    assert leaving(at(driver, 1000), *"abcde") == "eabdc"


def test_a_running_session_goes_by_its_key(drive: Drive) -> None:
    """Used and begun last, and what its request does not hold is read after it and a gap at the earliest."""
    driver = drive(page=4, order=Order.ERT)
    publish(driver, "a", 100)
    publish(driver, "b", 300)
    owned(driver, "c", 400, s=running(400, 200))
    assert leaving(at(driver, 1000), *"abc") == "acb"


def test_before_most_of_a_hint_has_passed_the_rest_of_it_counts(drive: Drive) -> None:
    """At 1000, of a hint of 200 since 900, 100 are left. Who is 110 and 90 behind goes before and after it."""
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 500, s=idle(900, 0, hint=200))
    owned(driver, "b", 600, t=idle(900, 890))
    owned(driver, "c", 700, u=idle(900, 910))
    assert leaving(at(driver, 1000), *"abc") == "bac"


def test_after_four_fifths_of_a_hint_a_quarter_of_the_wait_counts(drive: Drive) -> None:
    """At 1100, of a hint of 100 since 1000, nothing is left; a quarter of 100 counts."""
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 500, s=idle(1000, 0, hint=100))
    owned(driver, "b", 600, t=idle(900, 1100 - 26))
    owned(driver, "c", 700, u=idle(900, 1100 - 23))
    assert leaving(at(driver, 1100), *"abc") == "bac"


@pytest.mark.parametrize(("now", "other"), [(1081, 83), (1082, 81)])
def test_a_hint_runs_out_between_two_moments(drive: Drive, now: int, other: int) -> None:
    """Of 102, four fifths are 81.6. At 1081, 21 are left: 84 / 4. At 1082, 82 / 4 of the wait, not 80 / 4."""
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "b", 500, t=idle(now - other, 0, hint=1))
    owned(driver, "a", 600, s=idle(1000, 0, hint=102))
    assert leaving(at(driver, now), *"ab")[0] == "a"


def test_a_hint_that_ran_out_unasked_is_overdue(drive: Drive) -> None:
    """Nobody evicts while it runs out, and nothing touches the piece afterwards."""
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 500, s=idle(1000, 0, hint=100))
    owned(driver, "b", 600, t=idle(1000, 0, hint=3000))
    at(driver, 1050).evict(FULL, 0)
    publish(driver, "c", 9000)
    assert leaving(at(driver, 9900), *"abc") == "abc"  # 8900 / 4 twice, and 900


def test_a_hint_of_nothing_is_overdue_at_once(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 500, s=idle(1000, 0, hint=0))
    owned(driver, "b", 600, t=idle(1000, 1080))
    assert leaving(at(driver, 1100), *"ab") == "ab"  # 100 / 4 against 20


def test_the_last_word_counts(drive: Drive) -> None:
    """A hint that was taken back does not run out."""
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 500, s=idle(1000, 0, hint=100))
    driver.expect("s", idle(1000, 1090))
    owned(driver, "b", 600, t=idle(900, 1080))
    assert leaving(at(driver, 1100), *"ab") == "ba"


def test_queued_first_come_goes_last_of_all_and_the_latest_of_them_first(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 500, s=queued(1))
    owned(driver, "b", 600, t=queued(3))
    owned(driver, "c", 700, u=queued(2))
    publish(driver, "d", 800)
    owned(driver, "e", 900, v=idle(5000, 5000))
    assert leaving(at(driver, 1000), *"abcde") == "debca"


def test_queued_with_an_expected_start_goes_by_it(drive: Drive) -> None:
    """At 1000, a start at 1100 is 100 away, one at 1010 ten; who is 50 behind is between. The start may pass."""
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 500, s=queued(1, 1100))
    owned(driver, "b", 600, t=queued(2, 1010))
    owned(driver, "c", 700, u=idle(900, 950))
    owned(driver, "d", 800, v=queued(3, 900))
    assert leaving(at(driver, 1000), *"abcd") == "acbd"


# -- released


def test_what_its_last_session_released_goes_before_all_oldest_use_first(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    publish(driver, "a", 100)
    owned(driver, "b", 200, s=idle(200, 0))
    owned(driver, "c", 400, t=queued(1))
    owned(driver, "d", 500, u=idle(500, 400))
    driver.match(pages_of("c", 4))
    driver.release("u")
    driver.release("t")
    assert leaving(at(driver, 1000), *"abcd") == "dcba"


def test_a_release_by_one_of_two_sessions_is_none(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    publish(driver, "a", 100)
    owned(driver, "b", 200, s=idle(200, 150), t=idle(200, 150))
    driver.release("t")
    assert leaving(at(driver, 1000), *"ab") == "ab"


def test_a_superseded_suffix_is_released_and_its_trunk_is_not(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    publish(driver, "x", 100)
    owned(driver, "ab", 200, s=idle(200, 190))
    key = publish(driver, "ac", 300)
    driver.turn("s", key, (3, 4), superseded=True)
    assert leaving(at(driver, 1000), "x", "ab", "ac") == "bxc"


def test_what_an_eviction_moves_a_marker_off_is_released(drive: Drive) -> None:
    """The state at 16 goes, the marker moves to 12, and the window at 16 has no session any more."""
    driver, key = drive("SM", page=4, order=Order.ERT), pages_of("abcd", 4)
    driver.insert(key)
    read(driver, "abcd")
    driver.turn("s", key, (1, 2))
    driver.insert(pages_of("abcdx", 4))
    driver.expect("s", idle(0, -10))
    assert driver.evict(MAMBA).freed == 1
    assert ends(driver, key, MAMBA) == [4, 8, 12]
    driver.evict(SWA)
    assert ends(driver, key, SWA) == [4, 8, 12]


@pytest.mark.parametrize("how", ["match", "insert", "reference"])
def test_a_use_takes_the_release_back(drive: Drive, how: str) -> None:
    driver = drive(page=4, order=Order.ERT)
    key = owned(driver, "b", 50, s=queued(1))
    publish(driver, "a", 100)
    driver.release("s")
    at(driver, 200)
    if how == "match":
        driver.match(key)
    elif how == "insert":
        driver.insert(key)
    else:
        driver.turn("t", key, (1, 2))
        driver.expect("t", idle(300, 150))
    assert leaving(at(driver, 1000), *"ab") == "ab"


def test_a_look_and_a_lock_take_no_release_back(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    publish(driver, "a", 50)
    key = owned(driver, "b", 100, s=queued(1))
    driver.release("s")
    driver.peek(key)
    driver.unlock(driver.lock(key))
    assert leaving(at(driver, 1000), *"ab") == "ba"


def test_data_that_came_back_are_not_released(drive: Drive) -> None:
    """The state at 4 left the tree as a released one; offered again below a deeper frontier, it is new."""
    driver = drive("M", page=4, order=Order.ERT)
    key = publish(driver, "ab", 100)
    driver.turn("s", pages_of("a", 4), (1, 2))
    driver.release("s")
    driver.evict(MAMBA)
    assert ends(driver, key, MAMBA) == [8]
    driver.insert(key)
    driver.evict(MAMBA)
    assert ends(driver, key, MAMBA) == [4]  # equally old: the deeper one goes
