"""Evicting for a session that is still away: only what is expected later than it makes room. Times by hand."""

import pytest

from agentcache.errors import Kind
from agentcache.tree.api import Order
from agentcache.types import FULL, MAMBA, TierName, Wait
from tests.builders import MakeCore, config_of, pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends
from tests.contract.waiting import at, idle, owned, publish, queued, running
from tests.driver import Driver
from tests.parity.player import play
from tests.parity.recorder import RecordingCore
from tests.unit.cache.world import refused

MANY = 10


def left(driver: Driver, branches: str, tier: TierName = TierName.DEVICE) -> str:
    """Which of these branches, of a page each, are there."""
    return "".join(name for name in branches if ends(driver, pages_of(name, 4), FULL, tier))


def spread(driver: Driver) -> Driver:
    """At 1000 a is nobody's and 900 behind, and more; b, c, d are 600, 400, 100 behind, e 10; f is queued."""
    publish(driver, "a", 100)
    owned(driver, "b", 200, s=idle(500, 400))
    owned(driver, "c", 300, t=idle(700, 600))
    owned(driver, "d", 400, u=idle(950, 900))
    owned(driver, "e", 500, v=running(990))
    owned(driver, "f", 600, w=queued(1))
    return at(driver, 1000)


@pytest.mark.parametrize(
    ("before", "stay"),
    [
        (idle(900, 0, hint=900), "bcdef"),  # 800 ahead
        (idle(800, 400), "bcdef"),
        (idle(800, 401), "cdef"),
        (idle(800, 899), "def"),
        (idle(800, 901), "ef"),
        (idle(600, 0, hint=400), "def"),  # nothing is left of it: a quarter of 400
        (idle(604, 0, hint=396), "ef"),
        (running(995), "f"),
        (queued(1), "f"),
        (queued(0), ""),
    ],
)
def test_what_is_expected_as_early_or_earlier_stays(drive: Drive, before: Wait, stay: str) -> None:
    driver = spread(drive(page=4, order=Order.ERT))
    driver.evict(FULL, MANY, before=before)
    assert left(driver, "abcdef") == stay


def test_a_trace_of_it_is_answered_as_recorded(make_core: MakeCore) -> None:
    lines: list[str] = []
    core = RecordingCore(make_core(config_of("", 4, 1, order=Order.ERT)), lines.append)
    driver = spread(Driver(core))
    driver.evict(FULL, MANY, before=idle(800, 401, hint=7))
    driver.evict(FULL, 1, before=queued(1, eta=5))
    driver.evict(FULL, MANY, before=queued(0))
    assert left(driver, "abcdef") == ""
    assert play(lines, make_core) > 10


def test_no_more_goes_than_is_asked_for(drive: Drive) -> None:
    driver = spread(drive(page=4, order=Order.ERT))
    assert driver.evict(FULL, 1, before=queued(0)).freed == 1
    assert left(driver, "abcdef") == "bcdef"


def test_what_it_has_for_itself_never_makes_room_for_it(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    mine = idle(500, 400, hint=700)
    owned(driver, "ab", 100, s=mine)
    answer = at(driver, 1000).evict(FULL, MANY, before=mine)
    assert (answer.freed, answer.short) == (0, MANY)


def test_what_was_let_go_of_makes_room_for_anybody(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT)
    owned(driver, "a", 100, s=idle(500, 400))
    driver.release("s")
    assert at(driver, 1000).evict(FULL, MANY, before=idle(500, 0)).freed == 1


def test_states_go_by_the_same_rule(drive: Drive) -> None:
    driver = drive("M", page=4, order=Order.ERT)
    for letter, session, now in (("a", "s", 400), ("b", "t", 700)):
        path = pages_of(letter, 4)
        at(driver, now).insert(path, [(MAMBA, len(path))])
        driver.turn(session, path, (1, 2))
        driver.expect(session, idle(now, now))
    assert at(driver, 1000).evict(MAMBA, MANY, before=idle(900, 500)).freed == 1


@pytest.mark.parametrize(("order", "stay"), [(Order.LRU, "bc"), (Order.SESSION, "b")])
def test_an_order_without_waits_spares_what_sessions_reference(drive: Drive, order: Order, stay: str) -> None:
    """Of the least recently used, what comes after it stays, too."""
    driver = drive(page=4, order=order)
    publish(driver, "a", 100)
    owned(driver, "b", 200, s=idle(500, 0))
    publish(driver, "c", 300)
    driver.evict(FULL, MANY, before=idle(900, 900))
    assert left(driver, "abc") == stay


def test_the_host_makes_room_by_the_same_rule(drive: Drive) -> None:
    driver = drive(page=4, order=Order.ERT, host_tier=True)
    for letter, now, session in (("a", 100, "s"), ("b", 200, "t")):
        job = driver.backup(owned(driver, letter, now, **{session: idle(now, now)})).job
        assert job
        driver.commit(job)
    driver.evict(FULL, MANY, TierName.HOST, idle(300, 150))
    assert left(driver, "ab", TierName.HOST) == "b"


def test_a_time_beyond_all_numbers_is_refused(drive: Drive) -> None:
    with refused(Kind.BAD_REQUEST):
        drive(page=4).core.evict(FULL, TierName.DEVICE, 1, {}, 1, idle(2**70, 0))
