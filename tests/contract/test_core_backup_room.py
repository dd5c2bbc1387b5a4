"""plan_backup with `room`: what fits on the host, who makes way for it there, and who does not."""

import pytest

from agentcache.errors import Kind
from agentcache.keys import page_hashes
from agentcache.tree.api import Order
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentName,
    Emit,
    EventKind,
    Free,
    Move,
    Planned,
    TierName,
    Wait,
    WaitState,
)
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import counts, ends, refused
from tests.driver import Driver

DEVICE, HOST, EXTERNAL = TierName.DEVICE, TierName.HOST, TierName.EXTERNAL


def on_host(driver: Driver, letters: str, component: ComponentName = FULL) -> str:
    """The pages of a path that the host has."""
    key = pages_of(letters, 4)
    return "".join(letters[end // 4 - 1] for end in ends(driver, key, component, HOST))


def named(planned: Planned) -> list[tuple[ComponentName, int, int]]:
    return [(part.component, part.start, part.end) for part in planned.job.pieces] if planned.job else []


def finish(driver: Driver) -> None:
    for job in [flight.job for flight in driver.flights.values()]:
        driver.commit(job)


def back_up(driver: Driver, letters: str) -> Planned:
    """Publish a path and copy what fits of it."""
    driver.insert(pages_of(letters, 4))
    planned = driver.back_up_what_fits(pages_of(letters, 4))
    finish(driver)
    return planned


def test_with_room_enough_it_is_the_plan_without_room(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key)
    before = driver.core.snapshot()
    planned = driver.back_up_what_fits(key)
    assert named(planned) == [(FULL, 0, 16), (SWA, 12, 16), (MAMBA, 16, 16)]
    assert planned.effects == (Move(planned.job),) if planned.job else False
    assert driver.core.snapshot().epoch == before.epoch
    driver.lock(key, driver.peek(key).device)
    finish(driver)
    assert driver.back_up_what_fits(key).job is None


def test_what_does_not_fit_is_left_out_from_the_deep_end(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key)
    planned = driver.back_up_what_fits(key, {FULL: 3, SWA: 0, MAMBA: 1})
    assert named(planned) == [(FULL, 0, 12), (MAMBA, 16, 16)]
    finish(driver)
    assert named(driver.back_up_what_fits(key, {FULL: 9, SWA: 9})) == [(FULL, 12, 16), (SWA, 12, 16)]
    finish(driver)
    assert driver.peek(key).any_tier.length == 16


def test_without_room_and_nobody_to_make_way_there_is_no_job(drive: Drive) -> None:
    driver, key = drive("S", page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key)
    before = driver.core.snapshot()
    for room in ({}, {FULL: 0, SWA: 0}, {FULL: -3, SWA: -(2**70), ComponentName("OTHER"): 9}):
        planned = driver.back_up_what_fits(key, room)
        assert (planned.job, planned.effects) == (None, ())
    assert driver.core.snapshot() == before


def test_room_beyond_64_bits_is_enough(drive: Drive) -> None:
    driver, key = drive("S", page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key)
    assert counts(driver.back_up_what_fits(key, {FULL: 2**70, SWA: 2**63}).job.pieces) == {FULL: 2, SWA: 1}  # type: ignore[union-attr]


@pytest.mark.parametrize("write_back", [False, True])
def test_on_a_full_host_the_oldest_makes_way_from_its_end(drive: Drive, write_back: bool) -> None:
    driver = drive(page=4, host_tier=True, host_slots=4, write_back=write_back)
    back_up(driver, "ab")
    back_up(driver, "pq")
    before = driver.core.snapshot()
    planned = back_up(driver, "xyz")
    assert named(planned) == [(FULL, 0, 12)]
    assert [on_host(driver, letters) for letters in ("ab", "pq", "xyz")] == ["", "p", "xyz"]
    frees = [effect for effect in planned.effects if isinstance(effect, Free)]
    assert [(free.pool.tier, len(free.slots)) for free in frees] == [(HOST, 3)]
    assert [type(effect) for effect in planned.effects] == [Free, Move]
    assert driver.core.snapshot().epoch == before.epoch + 1


def test_data_that_made_way_make_boundaries_stale(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True, host_slots=2), pages_of("xy", 4)
    back_up(driver, "ab")
    driver.insert(key)
    at = driver.peek(key).device
    driver.back_up_what_fits(key)
    assert refused(lambda: driver.core.lock(at, driver.tick())) is Kind.STALE_BOUNDARY
    driver.lock(key)


def test_removals_are_told_and_precede_nothing_but_themselves(drive: Drive) -> None:
    driver = drive(page=4, host_tier=True, host_slots=2, emit_events=True)
    back_up(driver, "ab")
    planned = back_up(driver, "xy")
    told = [effect.event for effect in planned.effects if isinstance(effect, Emit)]
    assert [(event.kind, event.tier) for event in told] == [(EventKind.REMOVED, HOST)]
    assert set(told[0].hashes) == set(page_hashes(pages_of("ab", 4), 4))


def test_a_page_that_is_on_the_host_alone_goes_with_its_node(drive: Drive) -> None:
    driver = drive("S", page=4, host_tier=True, host_slots=2)
    driver.insert(pages_of("ab", 4), tier=HOST)
    assert named(back_up(driver, "xy")) == [(FULL, 0, 8), (SWA, 4, 8)]
    assert driver.peek(pages_of("ab", 4)).full_tokens == 0


def test_who_ranks_below_the_worst_on_the_host_is_refused(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True, host_slots=2), pages_of("xy", 4)
    driver.insert(key)
    back_up(driver, "ab")
    before = driver.core.snapshot()
    assert driver.back_up_what_fits(key).job is None
    assert driver.core.snapshot() == before
    driver.match(key)
    assert named(driver.back_up_what_fits(key)) == [(FULL, 0, 8)]


def test_references_count_as_in_every_order(drive: Drive) -> None:
    """What an open session wants back does not make way for what nobody references."""
    driver, key = drive(page=4, host_tier=True, host_slots=2, order=Order.SESSION), pages_of("xy", 4)
    back_up(driver, "ab")
    driver.turn("s", pages_of("ab", 4), (1, 2))
    driver.insert(key)
    assert driver.back_up_what_fits(key).job is None
    driver.turn("t", key, (3, 4))
    assert named(driver.back_up_what_fits(key)) == [(FULL, 0, 8)]


def test_a_page_with_host_data_below_it_is_not_refused(drive: Drive) -> None:
    """It ranks lowest, but without a copy of it what lies below on the host would lose its path some day."""
    driver, long = drive(page=4, host_tier=True, host_slots=3), pages_of("abcd", 4)
    driver.insert(pages_of("abc", 4))
    driver.insert(long, tier=HOST, full_from=12)
    store = driver.core.plan_backup(driver.peek(long).any_tier, HOST, EXTERNAL, driver.tick())
    driver.plan(store, long, driver.peek(long).any_tier)
    driver.insert(pages_of("xy", 4), tier=HOST)
    planned = driver.back_up_what_fits(pages_of("abc", 4))
    assert named(planned) == [(FULL, 8, 12)]
    assert (on_host(driver, "abcd"), on_host(driver, "xy")) == ("d", "x")
    finish(driver)
    assert on_host(driver, "abcd") == "cd"


def test_the_regions_own_copies_do_not_make_way(drive: Drive) -> None:
    driver, key = drive("M", page=4, host_tier=True, host_slots=3), pages_of("abcde", 4)
    driver.insert(pages_of("ab", 4))
    driver.back_up_what_fits(pages_of("ab", 4))
    finish(driver)
    driver.insert(key)
    assert named(driver.back_up_what_fits(key)) == [(FULL, 8, 12), (MAMBA, 20, 20)]
    finish(driver)
    assert on_host(driver, "abcde") == "abc"
    assert on_host(driver, "abcde", MAMBA) == "be"
    assert driver.back_up_what_fits(key).job is None
    assert on_host(driver, "abcde") == "abc"


def test_the_regions_own_copies_stay_though_they_rank_lowest(drive: Drive) -> None:
    """The deepest page of the path is on the host alone; the pages above it find no room."""
    driver, key = drive(page=4, host_tier=True, host_slots=1), pages_of("abcd", 4)
    driver.insert(pages_of("abc", 4))
    driver.insert(key, tier=HOST, full_from=12)
    at = driver.peek(key).any_tier
    planned = driver.core.plan_backup(at, DEVICE, HOST, driver.tick(), driver.room())
    assert (at.length, planned.job, planned.effects) == (16, None, ())
    assert on_host(driver, "abcd") == "d"


def test_what_lies_below_the_boundary_may_make_way(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True, host_slots=2), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    driver.insert(key, tier=HOST, full_from=8)
    driver.match(pages_of("ab", 4))
    assert named(driver.back_up_what_fits(pages_of("ab", 4))) == [(FULL, 0, 8)]
    finish(driver)
    assert on_host(driver, "abcd") == "ab"


def test_what_a_job_reads_does_not_make_way(drive: Drive) -> None:
    driver, old = drive(page=4, host_tier=True, host_slots=4), pages_of("ab", 4)
    back_up(driver, "ab")
    back_up(driver, "pq")
    store = driver.core.plan_backup(driver.peek(old).any_tier, HOST, EXTERNAL, driver.tick())
    driver.plan(store, old, driver.peek(old).any_tier)
    driver.insert(pages_of("xyz", 4))
    assert named(driver.back_up_what_fits(pages_of("xyz", 4))) == [(FULL, 0, 8)]
    assert [on_host(driver, letters) for letters in ("ab", "pq")] == ["ab", ""]


def test_full_is_asked_first_and_what_went_with_it_is_room_for_the_rest(drive: Drive) -> None:
    driver = drive("SM", page=4, host_tier=True, host_slots=2)
    driver.insert(pages_of("ab", 4), tier=HOST)
    planned = back_up(driver, "x")
    assert named(planned) == [(FULL, 0, 4), (SWA, 0, 4), (MAMBA, 4, 4)]
    assert on_host(driver, "ab") == on_host(driver, "ab", SWA) == on_host(driver, "ab", MAMBA) == "a"


def test_a_window_that_makes_way_takes_the_state_along(drive: Drive) -> None:
    """As everywhere on the host; FULL of that page stays."""
    driver = drive("SM", page=4, host_tier=True, host_slots=3)
    driver.insert(pages_of("ab", 4), tier=HOST)
    planned = driver.back_up_what_fits(pages_of("ab", 4))
    assert planned.job is None
    driver.insert(pages_of("x", 4))
    planned = driver.back_up_what_fits(pages_of("x", 4), {FULL: 1, SWA: 0, MAMBA: 0})
    assert named(planned) == [(FULL, 0, 4), (SWA, 0, 4), (MAMBA, 4, 4)]
    assert on_host(driver, "ab") == "ab"
    assert on_host(driver, "ab", SWA) == on_host(driver, "ab", MAMBA) == "a"


def test_a_window_outside_the_region_may_make_way_on_the_same_path(drive: Drive) -> None:
    """The host has windows of earlier boundaries of this very path: only the region's own are spared."""
    driver, key = drive("S", page=4, host_tier=True, host_slots=4), pages_of("abcd", 4)
    driver.insert(key)
    driver.insert(pages_of("abc", 4), tier=HOST)
    driver.match(key)
    planned = driver.back_up_what_fits(key, {FULL: 1})
    assert named(planned) == [(FULL, 12, 16), (SWA, 12, 16)]
    finish(driver)
    assert on_host(driver, "abcd") == "abcd"
    assert on_host(driver, "abcd", SWA) == "abd"


def test_a_marker_moves_up_when_its_pages_made_way(drive: Drive) -> None:
    driver = drive(page=4, host_tier=True, host_slots=3)
    driver.insert(pages_of("ab", 4), tier=HOST)
    driver.turn("s", pages_of("ab", 4), (1, 2))
    driver.insert(pages_of("xy", 4))
    driver.back_up_what_fits(pages_of("xy", 4))
    assert [view.frontier for view in driver.core.snapshot().markers] == [4]


def test_to_the_outside_room_does_not_count(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key)
    at = driver.peek(key).device
    planned = driver.core.plan_backup(at, DEVICE, EXTERNAL, driver.tick(), {})
    assert named(driver.plan(planned, key, at)) == [(FULL, 0, 16), (SWA, 12, 16), (MAMBA, 16, 16)]


def test_a_hint_that_ran_out_counts_when_way_is_made(drive: Drive) -> None:
    """Time moves on in a plan with room as in an eviction: what is overdue is expected at any moment."""
    driver, key = drive(page=4, host_tier=True, host_slots=2, order=Order.ERT), pages_of("xy", 4)
    back_up(driver, "ab")
    driver.turn("s", pages_of("ab", 4), (1, 2))
    driver.expect("s", Wait(WaitState.IDLE, driver.now, driver.now, 1000))
    driver.insert(key)
    driver.now += 900
    assert driver.back_up_what_fits(key).job is None
    driver.match(key)
    assert named(driver.back_up_what_fits(key)) == [(FULL, 0, 8)]


def test_a_stale_boundary_and_a_route_up_are_refused_with_room_too(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key)
    at, plan = driver.peek(key).device, driver.core.plan_backup
    assert refused(lambda: plan(at, HOST, DEVICE, driver.tick(), {})) is Kind.BAD_INSERT
    driver.evict(FULL)
    assert refused(lambda: plan(at, DEVICE, HOST, driver.tick(), {FULL: 9})) is Kind.STALE_BOUNDARY
