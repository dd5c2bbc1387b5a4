"""evict: how far a tail is trimmed, which window pages go together, and which tails are swept or left."""

from agentcache.tree.api import CoreConfig, Order
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentName,
    SessionId,
    TierName,
    Wait,
    WaitState,
    full_spec,
    swa_spec,
)
from tests.builders import SWA2, MakeCore, pages_of
from tests.check import check_all
from tests.contract.conftest import Drive
from tests.contract.reading import counts, ends
from tests.contract.test_core_write_back import only_job
from tests.driver import Driver

DEVICE, HOST = TierName.DEVICE, TierName.HOST
ALL = [4, 8, 12, 16]


# -- FULL tails


def test_a_demoted_tail_goes_to_the_next_boundary_that_votes(drive: Drive) -> None:
    """All of it in one job: no page of it is of use without the others."""
    driver, key = drive("M", page=4, host_tier=True, write_back=True), pages_of("abcdef", 4)
    driver.insert(key, [(MAMBA, 4), (MAMBA, 24)])
    assert driver.evict(FULL, 1).moving == 5
    assert counts(only_job(driver).pieces) == {FULL: 5, MAMBA: 1}


def test_trimming_ends_where_a_page_was_used_later(drive: Drive) -> None:
    """c and d are oldest, then x; b was used again with its prefix."""
    driver, long, other = drive(page=4), pages_of("abcd", 4), pages_of("x", 4)
    driver.insert(long)
    driver.insert(other)
    driver.match(pages_of("ab", 4))
    assert driver.evict(FULL, 3).freed == 3
    assert (driver.depth(long), driver.depth(other)) == (8, 0)


def test_aux_data_of_a_page_without_room_go_with_it(drive: Drive) -> None:
    """The host has room for window and state, not for FULL: alone they are of no use there."""
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("ab", 4)
    driver.insert(key)
    answer = driver.core.evict(FULL, DEVICE, 1, {SWA: 9, MAMBA: 9}, driver.tick())
    driver.apply(answer.effects)
    assert (answer.freed, answer.moving, driver.flights) == (1, 0, {})
    assert [ends(driver, key, name) for name in (FULL, SWA, MAMBA)] == [[4], [4], [4]]


# -- pieces of a window


def chunk_ends(drive: Drive) -> Driver:
    """Chunks of three pages, two of them, every window page as recent as the others; FULL is locked."""
    driver = drive("S", page=4, grid=3)
    driver.now = 100
    driver.insert(pages_of("abcdef", 4))
    return driver


def test_a_window_piece_ends_at_a_fork(drive: Drive) -> None:
    """ab is shared by two branches: c and x go alone, then both pages of ab together."""
    driver, left, right = chunk_ends(drive), pages_of("abcdef", 4), pages_of("abxyzw", 4)
    driver.now = 100
    driver.insert(right)
    for key in (left, right):
        driver.unlock(driver.lock(key), SWA)
    assert [driver.evict(SWA).freed for _ in range(5)] == [3, 3, 1, 1, 2]
    assert ends(driver, left, FULL) == ends(driver, right, FULL) == [4, 8, 12, 16, 20, 24]


def test_a_window_piece_spares_what_is_locked(drive: Drive) -> None:
    driver, key = chunk_ends(drive), pages_of("abcdef", 4)
    held = driver.lock(key)
    assert driver.evict(SWA).freed == 2
    assert ends(driver, key, SWA) == [4, 8, 12, 24]
    driver.unlock(held)


def test_windows_of_one_size_take_each_other_along(make_core: MakeCore) -> None:
    config = CoreConfig(4, (full_spec(), swa_spec(3), swa_spec(3, SWA2)))
    for component, other in ((SWA, SWA2), (SWA2, SWA)):
        driver, key = Driver(make_core(config)), pages_of("ab", 4)
        driver.watch = check_all
        driver.insert(key)
        assert driver.evict(component).freed == 1
        assert ends(driver, key, other) == [4]


def test_what_goes_with_a_demoted_window_is_demoted_where_it_fits(drive: Drive) -> None:
    driver, key = drive("SLM", page=4, host_tier=True, write_back=True), pages_of("ab", 4)
    driver.insert(key)
    answer = driver.evict(SWA2)
    assert (answer.freed, answer.moving) == (0, 1)
    assert counts(only_job(driver).pieces) == {SWA: 1, SWA2: 1}
    driver.commit(only_job(driver))
    assert [ends(driver, key, name) for name in (SWA, SWA2, MAMBA)] == [[4], [4], [4, 8]]
    assert [ends(driver, key, name, HOST) for name in (SWA, SWA2, MAMBA)] == [[8], [8], []]


def test_what_goes_with_a_window_that_found_no_room_is_dropped_with_it(drive: Drive) -> None:
    """Room for the smaller window and the state alone; room for what no component is called is no room."""
    driver, key = drive("SLM", page=4, host_tier=True, write_back=True), pages_of("ab", 4)
    driver.insert(key)
    room = {SWA: 9, MAMBA: 9, ComponentName("CONV"): 9}
    answer = driver.core.evict(SWA2, DEVICE, 1, room, driver.tick())
    driver.apply(answer.effects)
    assert (answer.freed, answer.moving) == (1, 0)
    assert not driver.flights
    assert [ends(driver, key, name) for name in (SWA, SWA2, MAMBA)] == [[4], [4], [4]]


def test_a_window_that_the_host_has_takes_no_state_with_it(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key)
    backup = driver.backup(key).job
    assert backup is not None
    driver.commit(backup)
    assert driver.evict(SWA).freed == 1
    assert [ends(driver, key, name) for name in (SWA, MAMBA)] == [[4], [4, 8]]
    assert driver.peek(key).any_tier.length == 8


# -- tails that nothing reaches


def test_a_lost_window_page_takes_the_tail_below_it_that_needed_it(drive: Drive) -> None:
    """The page at 16 goes, the one at 20 was used later: neither boundary votes, and there is nothing below."""
    driver, key = drive("L", page=4), pages_of("abcde", 4)
    driver.insert(pages_of("abcdexy", 4))
    driver.match(pages_of("abcdexy", 4))
    driver.evict(FULL, 2)
    assert ends(driver, key, SWA2) == [*ALL, 20]
    assert driver.evict(SWA2).freed == 1 + 1  # and the one at 20 with its page
    assert ends(driver, key, FULL) == ends(driver, key, SWA2) == [4, 8, 12]


def test_a_tail_that_its_session_can_reach_no_more_is_swept_though_referenced(drive: Drive) -> None:
    driver, key = drive("M", page=4, order=Order.SESSION), pages_of("abcd", 4)
    driver.insert(key, [(MAMBA, 16)])
    driver.turn("s", key, (1, 2))
    assert driver.evict(MAMBA).freed == 1
    assert driver.core.snapshot().pages == ()
    assert driver.core.snapshot().markers == ()


def test_a_tail_is_swept_on_the_evicted_tier_alone(drive: Drive) -> None:
    driver, key = drive("M", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, [(MAMBA, 8), (MAMBA, 16)])
    backup = driver.backup(key).job
    assert backup is not None
    driver.commit(backup, lambda piece, _end: piece.component == FULL)
    driver.match(pages_of("ab", 4))
    assert driver.evict(MAMBA).freed == 1
    assert ends(driver, key, FULL) == [4, 8]
    assert ends(driver, key, FULL, HOST) == ALL


def test_a_commit_sweeps_nothing(drive: Drive) -> None:
    """The state at 16 was sent off and did not land: what is below 8 waits for the next eviction."""
    driver, key = drive("M", page=4, host_tier=True, write_back=True), pages_of("abcd", 4)
    driver.insert(key, [(MAMBA, 8), (MAMBA, 16)])
    driver.match(pages_of("ab", 4))
    assert driver.evict(MAMBA).moving == 1
    driver.commit(only_job(driver), lambda _piece, _end: False)
    assert (driver.depth(key), ends(driver, key, FULL)) == (8, ALL)
    assert driver.evict(FULL).moving == 2
    driver.commit(only_job(driver))


def test_room_made_on_the_host_sweeps_nothing(drive: Drive) -> None:
    """The state of x takes the place of the one at 16, and FULL below 8 stays on the host."""
    driver, key = drive("M", page=4, host_tier=True, write_back=True), pages_of("abcd", 4)
    driver.insert(key, [(MAMBA, 8), (MAMBA, 16)], tier=HOST)
    driver.match(pages_of("ab", 4))
    driver.insert(pages_of("x", 4))
    answer = driver.core.evict(MAMBA, DEVICE, 1, {}, driver.tick())
    driver.apply(answer.effects)
    assert answer.moving == 1
    assert (ends(driver, key, MAMBA, HOST), ends(driver, key, FULL, HOST)) == ([8], ALL)
    driver.commit(only_job(driver))


# -- room on the host


def crowded(drive: Drive, kinds: str = "") -> Driver:
    """A host with one slot a pool, which x has; a and b are newer, on the device."""
    driver = drive(kinds, page=4, host_tier=True, write_back=True, host_slots=1)
    driver.insert(pages_of("x", 4), tier=HOST)
    driver.insert(pages_of("ab", 4))
    return driver


def test_a_lower_ranked_page_of_the_host_makes_room(drive: Drive) -> None:
    driver = crowded(drive)
    answer = driver.evict(FULL, 1)
    assert (answer.freed, answer.moving) == (0, 1)
    assert [type(effect).__name__ for effect in answer.effects] == ["Free", "Move"]
    driver.commit(only_job(driver))
    assert driver.peek(pages_of("x", 4)).any_tier.length == 0
    assert driver.peek(pages_of("ab", 4)).any_tier.length == 8


def test_a_higher_ranked_page_of_the_host_stays_there(drive: Drive) -> None:
    driver = crowded(drive)
    driver.match(pages_of("x", 4))
    answer = driver.evict(FULL, 1)
    assert (answer.freed, answer.moving) == (1, 0)
    assert driver.peek(pages_of("x", 4)).any_tier.length == 4
    assert driver.depth(pages_of("ab", 4)) == 4


def test_a_page_takes_the_place_of_what_is_below_it_whatever_its_rank(drive: Drive) -> None:
    """A request for b is queued, so b would stay longest of all; but without a there is no way to it."""
    driver, key = (
        drive(page=4, order=Order.ERT, host_tier=True, write_back=True, host_slots=1),
        pages_of("ab", 4),
    )
    driver.insert(key)
    driver.turn("s", key, (1, 2))
    driver.turn("t", pages_of("a", 4), (1, 2))
    driver.evict(FULL, 1)
    driver.commit(only_job(driver))
    driver.core.expect(SessionId("s"), Wait(WaitState.PENDING, seq=1), driver.tick())
    answer = driver.evict(FULL, 1)
    assert (answer.freed, answer.moving) == (0, 1)
    driver.commit(only_job(driver))
    assert (ends(driver, key, FULL), ends(driver, key, FULL, HOST)) == ([], [4])


def test_room_is_made_for_what_comes_along_too(drive: Drive) -> None:
    """x leaves with its window and its state: b can bring both of its own."""
    driver = crowded(drive, "SM")
    assert driver.evict(FULL, 1).moving == 1
    assert counts(only_job(driver).pieces) == {FULL: 1, SWA: 1, MAMBA: 1}
    driver.commit(only_job(driver))
    assert driver.peek(pages_of("ab", 4)).any_tier.length == 8


def test_a_page_waits_while_the_one_below_is_on_its_way(drive: Drive) -> None:
    """c and d want down and the host has one place: d takes it; once it is there, c takes it from d."""
    driver, key = drive(page=4, host_tier=True, write_back=True, host_slots=1), pages_of("abcd", 4)
    driver.insert(key)
    answer = driver.evict(FULL, 2)
    assert (answer.freed, answer.moving, answer.short) == (0, 1, 1)
    driver.commit(only_job(driver))
    assert ends(driver, key, FULL, HOST) == [16]
    answer = driver.evict(FULL, 1)
    assert (answer.freed, answer.moving) == (0, 1)
    driver.commit(only_job(driver))
    assert (ends(driver, key, FULL), ends(driver, key, FULL, HOST)) == ([4, 8], [12])


def test_any_amount_of_room_is_room(drive: Drive) -> None:
    """The largest number and one place more, which x leaves, are no less."""
    driver = crowded(drive, "SM")
    room = {FULL: 0, SWA: 2**63 - 1, MAMBA: 2**70}
    driver.apply(driver.core.evict(FULL, DEVICE, 1, room, driver.tick()).effects)
    assert counts(only_job(driver).pieces) == {FULL: 1, SWA: 1, MAMBA: 1}
