"""Demotion under write_back: room, no room, what happens while the copy is in flight, and what does not land."""

import pytest

from agentcache.keys import Key
from agentcache.types import FULL, MAMBA, SWA, ComponentName, Free, Job, Move, Piece, TierName
from tests.builders import SWA2, pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import counts, ends
from tests.driver import Driver

HOST, DEVICE = TierName.HOST, TierName.DEVICE


def only_job(driver: Driver) -> Job:
    (flight,) = driver.flights.values()
    return flight.job


def named(pieces: tuple[Piece, ...]) -> list[tuple[ComponentName, int, int, list[int]]]:
    return [(part.component, part.start, part.end, part.slots.tolist()) for part in pieces]


def test_eviction_demotes_where_there_is_room(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    answer = driver.evict(FULL, 1)
    assert (answer.freed, answer.moving, answer.short) == (0, 1, 0)
    job = only_job(driver)
    assert job.leaving
    assert counts(job.pieces) == {FULL: 1, SWA: 1, MAMBA: 1}
    assert driver.depth(key) == 12  # still matchable while it moves
    driver.commit(job)
    found = driver.peek(key)
    assert (found.device.length, found.any_tier.length) == (8, 12)
    assert ends(driver, key, FULL, HOST) == [12]


def test_what_is_moving_is_not_evicted_again(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 2)
    answer = driver.evict(FULL, 3)
    assert answer.moving + answer.freed <= 1
    while driver.flights:
        driver.commit(next(iter(driver.flights.values())).job)
    assert driver.peek(key).any_tier.length == 12


def test_without_room_data_is_dropped(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True, host_slots=0), pages_of("abc", 4)
    driver.insert(key)
    answer = driver.evict(FULL, 2)
    assert (answer.freed, answer.moving) == (2, 0)
    assert driver.peek(key).any_tier.length == 4


def test_room_for_a_part(drive: Drive) -> None:
    driver = drive(page=4, host_tier=True, write_back=True, host_slots=1)
    for letter in "abc":
        driver.insert(pages_of(letter, 4))
    answer = driver.evict(FULL, 3)
    assert (answer.freed, answer.moving) == (2, 1)
    driver.commit(only_job(driver))
    assert sum(driver.peek(pages_of(letter, 4)).any_tier.length for letter in "abc") == 4


def test_a_copy_on_the_host_needs_no_move(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    driver.commit(job)
    answer = driver.evict(FULL, 1)
    assert answer.freed == 1
    for move in [effect.job for effect in answer.effects if isinstance(effect, Move)]:
        driver.commit(move)
    assert driver.peek(key).any_tier.length == 12


def test_what_did_not_land_is_dropped(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    answer = driver.commit(only_job(driver), lambda _piece, _end: False)
    assert counts(answer.dropped).get(FULL) == 1
    assert driver.peek(key).any_tier.length == 8


def test_what_goes_with_a_page_above_it_is_named_as_dropped(drive: Drive) -> None:
    """b did not land: c and d go with it, though their copies arrived, and so does all that lay on the three."""
    driver, key = drive("SLM", page=4, host_tier=True, write_back=True), pages_of("abcd", 4)
    driver.insert(key)
    driver.evict(FULL, 3)
    job = only_job(driver)
    assert counts(job.pieces) == {FULL: 3, SWA: 3, SWA2: 3, MAMBA: 3}
    answer = driver.commit(job, lambda piece, end: piece.component != FULL or end != 8)
    assert answer.landed == ()
    assert named(answer.dropped) == named(job.pieces)
    assert driver.peek(key).any_tier.length == 4


def test_what_the_host_has_meanwhile_is_not_dropped(drive: Drive) -> None:
    """c is sent off, then a backup of the same page lands first: c leaves the device and is on the host."""
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    job = only_job(driver)
    backup = driver.backup(key).job
    assert backup is not None
    driver.commit(backup)
    answer = driver.commit(job, lambda _piece, _end: False)
    assert (answer.landed, answer.dropped) == ((), ())
    assert [ends(driver, key, name) for name in (FULL, SWA, MAMBA)] == [[4, 8], [4, 8], [4, 8]]
    assert [ends(driver, key, name, HOST) for name in (FULL, SWA, MAMBA)] == [[4, 8, 12], [12], [12]]


def test_a_state_that_did_not_land_is_dropped_alone(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    driver.commit(only_job(driver), lambda piece, _end: piece.component != MAMBA)
    found = driver.peek(key)
    assert (found.device.length, found.any_tier.length) == (8, 8)


@pytest.mark.parametrize("landed", [True, False])
def test_a_piece_used_meanwhile_stays_on_the_device(drive: Drive, landed: bool) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    driver.match(key)
    driver.commit(only_job(driver), lambda _piece, _end: landed)
    assert driver.depth(key) == 12
    assert ends(driver, key, FULL, HOST) == ([12] if landed else [])


@pytest.mark.parametrize("landed", [True, False])
def test_a_piece_locked_meanwhile_stays_on_the_device(drive: Drive, landed: bool) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    held = driver.lock(key)
    driver.commit(only_job(driver), lambda _piece, _end: landed)
    assert driver.depth(key) == 12
    assert ends(driver, key, FULL, HOST) == ([12] if landed else [])
    driver.unlock(held)


def test_a_piece_offered_again_meanwhile_was_used(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    driver.insert(key)
    driver.commit(only_job(driver), lambda _piece, _end: False)
    assert driver.depth(key) == 12


def test_looking_registering_and_matching_above_are_no_use(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    driver.peek(key)
    driver.match(key, 11)
    driver.turn("s", key, (1, 2))
    driver.commit(only_job(driver), lambda _piece, _end: False)
    assert driver.depth(key) == 8
    assert [view.frontier for view in driver.core.snapshot().markers] == [8]


def test_a_piece_locked_and_released_meanwhile_was_used(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    driver.unlock(driver.lock(key))
    driver.commit(only_job(driver), lambda _piece, _end: False)
    assert driver.depth(key) == 12


def test_a_lease_above_does_not_keep_what_did_not_land(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    held = driver.lock(pages_of("ab", 4))
    driver.evict(FULL, 1)
    driver.commit(only_job(driver), lambda _piece, _end: False)
    assert driver.depth(key) == 8
    driver.unlock(held)


def test_a_demoted_window_takes_no_state_with_it(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.match(key)
    assert driver.evict(SWA).moving == 1
    driver.commit(only_job(driver))
    assert ends(driver, key, SWA, HOST) == [8]
    assert ends(driver, key, MAMBA) == [4, 8, 12]
    found = driver.peek(key, 8)
    assert (found.device.length, found.any_tier.length) == (4, 8)


def test_the_device_can_be_emptied_onto_the_host(drive: Drive) -> None:
    """Leaf by leaf, with host-only pages below device leaves."""
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abcd", 4)
    driver.insert(key)
    for _ in range(4):
        driver.evict(FULL, 1)
        while driver.flights:
            driver.commit(only_job(driver))
    found = driver.peek(key)
    assert (found.device.length, found.any_tier.length) == (0, 16)
    assert ends(driver, key, FULL, HOST) == [4, 8, 12, 16]


def test_a_full_host_drops_the_subtree_below_rather_than_leave_a_gap(drive: Drive) -> None:
    """d is on the host and the host is full; c cannot follow, and no host leaf ranks lower: c goes with d."""
    driver, key = drive(page=4, host_tier=True, write_back=True, host_slots=1), pages_of("abcd", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    driver.commit(only_job(driver))
    driver.match(key)
    driver.evict(FULL, 1)
    while driver.flights:
        driver.commit(only_job(driver))
    assert driver.peek(key).any_tier.length in (8, 12)
    assert driver.depth(key) == 8


def test_older_host_leaves_make_room_first(drive: Drive) -> None:
    driver = drive(page=4, host_tier=True, write_back=True, host_slots=1)
    old, key = pages_of("x", 4), pages_of("ab", 4)
    driver.insert(old)
    driver.insert(key)
    driver.evict(FULL, 1)
    driver.commit(only_job(driver))
    assert driver.peek(old).any_tier.length == 4
    answer = driver.evict(FULL, 1)
    kinds = [type(effect) for effect in answer.effects]
    if Move in kinds:  # the freed host slot is named before the move that uses it
        assert kinds.index(Free) < kinds.index(Move)
        driver.commit(only_job(driver))
        assert driver.peek(old).any_tier.length == 0
    assert driver.depth(key) == 4


def test_a_locked_subtree_is_no_candidate(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True, write_back=True), pages_of("abcd", 4)
    driver.insert(key)
    held = driver.lock(key)
    answer = driver.evict(FULL, 4)
    assert (answer.freed, answer.moving) == (0, 0)
    driver.unlock(held)


def test_the_page_hash_of_a_mark_survives_two_tiers(drive: Drive) -> None:
    """Down and up again: the bytes of each page are still its own (marks are read at every step)."""
    driver, key = drive("SM", page=4, host_tier=True, write_back=True, slots=8), pages_of("abcd", 4)
    other = pages_of("pqrs", 4)
    driver.insert(key)
    driver.evict(FULL, 4)
    while driver.flights:
        driver.commit(only_job(driver))
    driver.insert(other)
    driver.evict(FULL, 4)
    while driver.flights:
        driver.commit(only_job(driver))
    planned = driver.load(key)
    assert planned.job is not None
    assert planned.lease is not None
    driver.commit(planned.job)
    held = driver.relock(driver.leases[planned.lease], key, driver.peek(key).device)
    assert held.length == 16
    driver.unlock(held)


def test_aux_data_on_its_way_keep_the_host_page_that_they_land_on(drive: Drive) -> None:
    """b has its FULL on the host already, its window is sent off; a must not push that page out, nor drop it."""
    driver, key = drive("S", page=4, host_tier=True, write_back=True, host_slots=2), pages_of("ab", 4)
    driver.insert(key)
    backup = driver.backup(key).job
    assert backup is not None
    driver.commit(backup, keep=lambda piece, end: piece.component == FULL and end == 8)
    driver.insert(pages_of("x", 4), tier=HOST)  # the host has no room for FULL now
    assert driver.ledger(FULL, HOST).free == []
    driver.match(pages_of("x", 4))
    driver.evict(FULL, 2)
    for flight in list(driver.flights.values()):
        driver.commit(flight.job)
    assert ends(driver, key, FULL, HOST) == [8]
    assert ends(driver, key, SWA, HOST) == [8]
    assert driver.peek(key).any_tier.length == 8


def state_sent_off(drive: Drive) -> tuple[Driver, Key, Job]:
    """Two pages with FULL on the host; the second has left the device, and its state is on the way."""
    driver, key = drive("M", page=4, host_tier=True, write_back=True), pages_of("ab", 4)
    driver.insert(key)
    backup = driver.backup(key).job
    assert backup is not None
    driver.commit(backup, keep=lambda piece, _end: piece.component == FULL)
    driver.evict(FULL, 1)
    job = only_job(driver)
    assert counts(job.pieces) == {MAMBA: 1}
    return driver, key, job


def test_aux_data_used_in_flight_do_not_stay_on_the_device_without_their_page(drive: Drive) -> None:
    """The page has a host copy and left the device; its state was sent off, is used by a graft, and does not land."""
    driver, key, job = state_sent_off(drive)
    driver.insert(key, tier=HOST)
    driver.commit(job, keep=lambda _piece, _end: False)
    assert (ends(driver, key, MAMBA, DEVICE), ends(driver, key, MAMBA, HOST)) == ([4], [4, 8])


def test_a_host_page_whose_aux_data_are_on_their_way_is_no_candidate(drive: Drive) -> None:
    """Its FULL is on the host alone and its state, sent off, still lies on the device: the page waits for it."""
    driver, key, job = state_sent_off(drive)
    assert driver.evict(FULL, 1, HOST).short == 1
    driver.commit(job)
    assert ends(driver, key, MAMBA, HOST) == [8]
