"""insert with `full_from`: onto a path whose first part is in the tree already, on either tier."""

from typing import Any

import pytest

from agentcache.errors import Kind
from agentcache.keys import page_hashes
from agentcache.tree.api import Order, OrderBase
from agentcache.types import FULL, MAMBA, NO_SLOTS, SWA, Emit, EventKind, Insert, TierName
from tests.builders import interval, pages_of, slots_of, state
from tests.contract.conftest import Drive
from tests.contract.reading import counts, ends
from tests.contract.world import World
from tests.driver import Driver

DEVICE, HOST = TierName.DEVICE, TierName.HOST


def test_a_graft_lies_below_what_is_on_the_device(drive: Drive) -> None:
    """FULL is offered from there on, windows and states for the whole path."""
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    answer = driver.insert(key, tier=HOST, full_from=8)
    assert answer.frontier.length == 16
    assert counts(answer.taken) == {FULL: 2, SWA: 4, MAMBA: 4}
    assert (answer.kept, answer.effects) == ((), ())
    assert ends(driver, key, FULL) == [4, 8]
    assert ends(driver, key, FULL, HOST) == [12, 16]
    found = driver.match(key)
    assert (found.device.length, found.any_tier.length) == (8, 16)


def test_a_graft_lies_below_what_is_on_the_host(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(pages_of("abc", 4), tier=HOST)
    answer = driver.insert(key, tier=HOST, full_from=12)
    assert counts(answer.taken) == {FULL: 1, SWA: 1, MAMBA: 1}
    assert driver.peek(key).any_tier.length == 16


def test_a_graft_reaches_from_the_device_over_the_host(drive: Drive) -> None:
    driver, key = drive("S", page=4, host_tier=True), pages_of("abcdef", 4)
    driver.insert(pages_of("ab", 4))
    driver.insert(pages_of("abcd", 4), tier=HOST, full_from=8)
    assert driver.insert(key, tier=HOST, full_from=16).frontier.length == 24
    assert ends(driver, key, FULL, HOST) == [12, 16, 20, 24]


def test_a_direct_graft_lies_on_the_device(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    answer = driver.insert(key, tier=DEVICE, full_from=8)
    assert counts(answer.taken) == {FULL: 2, SWA: 2, MAMBA: 2}
    assert counts(answer.kept) == {}
    assert driver.depth(key) == 16


def test_only_windows_and_states_may_be_offered(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, [(SWA, 16), (MAMBA, 16)])
    answer = driver.insert(key, [(SWA, 8), (MAMBA, 8), (MAMBA, 16)], full_from=16)
    assert counts(answer.taken) == {SWA: 1, MAMBA: 1}
    assert answer.frontier.length == 16
    assert driver.depth(key, 12) == 8
    answer = driver.insert(key, [(SWA, 12), (MAMBA, 12)], tier=HOST, full_from=16)
    assert counts(answer.taken) == {SWA: 1, MAMBA: 1}
    assert driver.peek(key, 12).any_tier.length == 12
    assert ends(driver, key, FULL, HOST) == []


def test_a_graft_that_begins_within_a_run_leaves_the_pages_before_it(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key)
    assert counts(driver.insert(key, tier=HOST, full_from=8).taken) == {FULL: 2}
    assert ends(driver, key, FULL, HOST) == [12, 16]
    assert ends(driver, key, FULL) == [4, 8, 12, 16]


def test_duplicates_are_freed_from_where_full_begins(drive: Drive) -> None:
    driver, key = drive("S", page=4), pages_of("abcd", 4)
    driver.insert(key)
    answer = driver.insert(key, full_from=8)
    assert (counts(answer.taken), counts(answer.kept)) == ({}, {})
    freed = {effect.pool.component: len(effect.slots) for effect in answer.effects}  # type: ignore[union-attr]
    assert freed == {FULL: 2, SWA: 4}


def test_the_frontier_may_lie_before_the_graft(drive: Drive) -> None:
    """What is offered votes only where the tree has FULL already: that is taken, the rest is kept."""
    driver, key = drive("M", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    answer = driver.insert(key, [(MAMBA, 4)], tier=HOST, full_from=8)
    assert answer.frontier.length == 8
    assert counts(answer.taken) == {MAMBA: 1}
    assert counts(answer.kept) == {FULL: 2}


def test_a_graft_continues_a_lease(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(pages_of("abc", 4))
    held = driver.lock(pages_of("a", 4))
    answer = driver.insert(key, after=held, tier=HOST, full_from=12)
    assert answer.frontier.length == 16
    assert counts(answer.taken) == {FULL: 1, SWA: 3, MAMBA: 3}
    driver.unlock(held)


def test_full_from_the_lease_is_what_none_means(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    held = driver.lock(pages_of("ab", 4))
    assert counts(driver.insert(key, after=held, full_from=8).taken) == {FULL: 2, SWA: 2, MAMBA: 2}
    driver.unlock(held)
    assert counts(driver.insert(pages_of("xy", 4), full_from=0).taken) == {FULL: 2, SWA: 2, MAMBA: 2}


# -- without ground


def kept_whole(driver: Driver, letters: str, **more: Any) -> int:
    """Offer, and see that nothing changed and everything came back; answers the frontier."""
    key, before = pages_of(letters, 4), driver.core.snapshot()
    answer = driver.insert(key, **more)
    after = driver.core.snapshot()
    assert (after.pages, after.epoch) == (before.pages, before.epoch)
    assert (answer.taken, answer.effects) == ((), ())
    wanted = driver.offer_pieces(key, 0, driver.everything(len(key)))
    offered = {FULL: (len(key) - more["full_from"]) // 4}
    for piece in wanted:
        offered[piece.component] = offered.get(piece.component, 0) + 1
    assert counts(answer.kept) == {name: count for name, count in offered.items() if count}
    return answer.frontier.length


def test_without_its_first_part_nothing_is_taken(drive: Drive) -> None:
    driver = drive("SM", page=4, host_tier=True)
    assert kept_whole(driver, "abcd", tier=HOST, full_from=4) == 0
    assert kept_whole(driver, "abcd", tier=DEVICE, full_from=16) == 0
    driver.insert(pages_of("abx", 4))
    assert kept_whole(driver, "abcd", tier=HOST, full_from=12) == 8
    assert kept_whole(driver, "abcd", tier=DEVICE, full_from=16) == 8
    assert driver.insert(pages_of("abcd", 4), tier=HOST, full_from=8).frontier.length == 16


def test_without_ground_the_frontier_is_what_votes_as_it_is(drive: Drive) -> None:
    """The states that are offered do not count: they were not taken."""
    driver = drive("M", page=4, host_tier=True)
    driver.insert(pages_of("abcde", 4), [(MAMBA, 8), (MAMBA, 20)])
    assert kept_whole(driver, "abcdxyz", tier=HOST, full_from=20) == 8


def test_an_offer_for_the_device_needs_its_ground_there(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    driver.insert(pages_of("abc", 4), tier=HOST, full_from=8)
    assert kept_whole(driver, "abcd", tier=DEVICE, full_from=12) == 12
    assert driver.insert(key, tier=HOST, full_from=12).frontier.length == 16
    assert kept_whole(driver, "abcd", tier=DEVICE, full_from=16) == 16
    assert driver.insert(key, tier=DEVICE, full_from=8).frontier.length == 16
    assert ends(driver, key, FULL) == [4, 8, 12, 16]


def test_without_ground_below_a_lease_the_frontier_may_lie_above_it(drive: Drive) -> None:
    driver, key = drive("M", page=4), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    held = driver.lock(pages_of("ab", 4))
    driver.unlock(held, MAMBA)
    driver.match(pages_of("a", 4))
    driver.evict(MAMBA)
    answer = driver.insert(key, after=held, full_from=12)
    assert (answer.frontier.length, answer.taken, counts(answer.kept)) == (4, (), {FULL: 1, MAMBA: 2})
    driver.unlock(held)


def test_a_graft_counts_as_a_use_with_ground_and_without(drive: Drive) -> None:
    driver = drive(page=4, host_tier=True)
    for letters in ("ab", "pq", "xy"):
        driver.insert(pages_of(letters, 4))
    driver.insert(pages_of("ab", 4), full_from=8)
    driver.insert(pages_of("pqrs", 4), full_from=12)
    driver.evict(FULL, 2)
    assert [driver.depth(pages_of(letters, 4)) for letters in ("ab", "pq", "xy")] == [8, 8, 0]


def test_priority_rises_along_the_path_of_a_graft(drive: Drive) -> None:
    driver = drive(page=4, order=Order.SESSION, base=OrderBase.PRIORITY)
    driver.insert(pages_of("ab", 4))
    driver.insert(pages_of("ab", 4), full_from=8, priority=2)
    driver.insert(pages_of("pq", 4), priority=1)
    driver.evict(FULL, 2)
    assert [driver.depth(pages_of(letters, 4)) for letters in ("ab", "pq")] == [8, 0]


def test_a_graft_onto_pages_that_are_on_their_way_down_goes_or_stays_with_them(drive: Drive) -> None:
    """The ground is there as long as the job is out; whether or not it lands, nothing is left without FULL."""
    for lands in (True, False):
        driver, key = drive("S", page=4, host_tier=True, write_back=True), pages_of("abcd", 4)
        driver.insert(pages_of("ab", 4))
        driver.evict(FULL, 2)
        flight = next(iter(driver.flights.values()))
        answer = driver.insert(key, tier=HOST, full_from=8)
        assert answer.frontier.length == 16
        driver.commit(flight.job, lambda _piece, _end: lands)  # noqa: B023
        assert driver.peek(key).any_tier.length == 16
        driver.evict(FULL, 9)
        for job in [flight.job for flight in driver.flights.values()]:
            driver.commit(job, lambda _piece, _end: False)
        assert driver.core.snapshot().pages == () or driver.peek(key).any_tier.length == 16


def test_the_event_tells_the_grafted_pages_and_their_parent(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True, emit_events=True), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    effects = driver.insert(key, tier=HOST, full_from=8).effects
    told = [effect.event for effect in effects if isinstance(effect, Emit)]
    hashes = tuple(page_hashes(key, 4))
    assert [(event.kind, event.tier, event.hashes, event.parent) for event in told] == [
        (EventKind.STORED, HOST, hashes[2:], hashes[1])
    ]


TWO = slots_of([130, 131])
BAD: dict[str, tuple[Kind, Insert]] = {
    "before the lease": (Kind.BAD_INSERT, Insert(TWO, full_from=4)),
    "below 0": (Kind.BAD_INSERT, Insert(TWO, full_from=-4)),
    "beyond the key": (Kind.BAD_INSERT, Insert(NO_SLOTS, full_from=20)),
    "far beyond the key": (Kind.BAD_INSERT, Insert(NO_SLOTS, full_from=2**70)),
    "within a page": (Kind.UNALIGNED, Insert(TWO, full_from=10)),
    "too many slots": (Kind.BAD_INSERT, Insert(TWO, full_from=12)),
    "too few slots": (Kind.BAD_INSERT, Insert(NO_SLOTS, full_from=12)),
    "a window that reaches before the lease": (
        Kind.BAD_INSERT,
        Insert(slots_of([130]), (interval(4, 12, [130, 131]),), full_from=12),
    ),
    "a state at the lease": (Kind.BAD_INSERT, Insert(slots_of([130]), (state(8, 130),), full_from=12)),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_full_begins_at_a_page_of_the_key_after_the_lease(world: World, name: str) -> None:
    kind, offer = BAD[name]
    offer = Insert(offer.full, offer.pieces, world.held.lease, full_from=offer.full_from)
    world.refuses(kind, lambda: world.core.insert(world.key, offer, world.now()))
    world.finish()
