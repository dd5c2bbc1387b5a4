"""insert: who owns each slot, revival, the frontier, offers after a lease, grafts, and offers that are refused."""

from collections import Counter

import numpy as np
import pytest

from agentcache.errors import Kind
from agentcache.keys import Key
from agentcache.types import (
    FULL,
    MAMBA,
    NO_SLOTS,
    SWA,
    ComponentName,
    Insert,
    Inserted,
    Lease,
    TierName,
)
from tests.builders import HOME, SWA2, interval, pages_of, piece, slots_of, state
from tests.contract.conftest import Drive
from tests.contract.reading import counts, ends, refused


def freed(answer: Inserted) -> dict[ComponentName, int]:
    found: Counter[ComponentName] = Counter()
    for effect in answer.effects:
        found[effect.pool.component] += len(effect.slots)  # type: ignore[union-attr]
    return dict(found)


def test_first_offer_is_taken_whole(drive: Drive) -> None:
    driver = drive("SM", page=4, grid=2)
    answer = driver.insert(pages_of("abcd", 4))
    assert answer.frontier.length == 16
    assert counts(answer.taken) == {FULL: 4, SWA: 4, MAMBA: 2}
    assert answer.kept == ()
    assert freed(answer) == {}


def test_second_offer_is_a_duplicate(drive: Drive) -> None:
    driver, key = drive("SM", page=4, grid=2), pages_of("abcd", 4)
    driver.insert(key)
    answer = driver.insert(key)
    assert answer.frontier.length == 16
    assert counts(answer.taken) == {}
    assert freed(answer) == {FULL: 4, SWA: 4, MAMBA: 2}


def test_only_the_new_branch_is_taken(drive: Drive) -> None:
    driver = drive("SM", page=4)
    driver.insert(pages_of("abcd", 4))
    answer = driver.insert(pages_of("abxy", 4))
    assert counts(answer.taken) == {FULL: 2, SWA: 2, MAMBA: 2}
    assert freed(answer) == {FULL: 2, SWA: 2, MAMBA: 2}


def test_offer_is_cut_at_the_deepest_boundary_that_votes(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    answer = driver.insert(key, [(SWA, 4), (SWA, 8), (MAMBA, 8), (SWA, 12), (MAMBA, 16)])
    assert answer.frontier.length == 8
    assert counts(answer.taken) == {FULL: 2, SWA: 2, MAMBA: 1}
    assert counts(answer.kept) == {FULL: 2, SWA: 1, MAMBA: 1}
    assert driver.depth(key) == 8


def test_pieces_come_in_spec_order_and_then_by_position(drive: Drive) -> None:
    """Whatever the order of the offer."""
    driver, key = drive("SLM", page=4, host_tier=True), pages_of("abcd", 4)
    pieces = (state(16, 9), state(4, 8), interval(8, 16, [8, 9], SWA2), interval(0, 4, [7], SWA2))
    answer = driver.core.insert(key, Insert(slots_of([1, 2, 3, 4]), pieces), driver.tick())
    kept = [(part.component, part.start, part.end) for part in answer.kept]
    assert kept == [(FULL, 0, 16), (SWA2, 0, 4), (SWA2, 8, 16), (MAMBA, 4, 4), (MAMBA, 16, 16)]
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    assert [part.component for part in job.pieces] == [FULL, SWA, SWA2, MAMBA]
    driver.commit(job)


def test_nothing_votes_so_everything_is_kept(drive: Drive) -> None:
    driver, key = drive("M", page=4), pages_of("abcd", 4)
    answer = driver.insert(key, [])
    assert answer.frontier.length == 0
    assert counts(answer.kept) == {FULL: 4}
    assert driver.core.snapshot().pages == ()


def test_kept_pieces_are_taken_when_offered_with_what_was_missing(drive: Drive) -> None:
    driver = drive("M", page=4)
    driver.insert(pages_of("abc", 4), [(MAMBA, 4)])
    answer = driver.insert(pages_of("abcd", 4), [(MAMBA, 4), (MAMBA, 16)])
    assert answer.frontier.length == 16
    assert counts(answer.taken) == {FULL: 3, MAMBA: 1}
    assert freed(answer) == {FULL: 1, MAMBA: 1}


def test_frontier_may_lie_in_what_was_there(drive: Drive) -> None:
    driver = drive("M", page=4)
    driver.insert(pages_of("ab", 4))
    answer = driver.insert(pages_of("abcd", 4), [])
    assert answer.frontier.length == 8
    assert counts(answer.kept) == {FULL: 2}
    assert freed(answer) == {FULL: 2}


def test_tombstoned_window_is_revived_under_locked_full(drive: Drive) -> None:
    """FULL that a request reads keeps its slots; only the missing window pages are taken."""
    driver, key = drive("S", page=4), pages_of("abcd", 4)
    driver.insert(key)
    held = driver.lock(key)
    before = [page.slots[0] for page in driver.core.snapshot().pages]
    for _ in range(3):
        driver.evict(SWA)
    assert ends(driver, key, SWA) == [16]
    answer = driver.insert(key)
    assert counts(answer.taken) == {SWA: 3}
    assert freed(answer) == {FULL: 4, SWA: 1}
    assert ends(driver, key, SWA) == [4, 8, 12, 16]
    assert [page.slots[0] for page in driver.core.snapshot().pages] == before
    assert driver.depth(key, 8) == 8
    driver.unlock(held)


def test_missing_state_is_filled_in(drive: Drive) -> None:
    driver, key = drive("M", page=4), pages_of("abc", 4)
    driver.insert(key, [(MAMBA, 12)])
    answer = driver.insert(key, [(MAMBA, 4), (MAMBA, 12)])
    assert counts(answer.taken) == {MAMBA: 1}
    assert driver.depth(key, 8) == 4


def test_after_a_lease_only_the_rest_is_offered(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    held = driver.lock(pages_of("ab", 4))
    answer = driver.insert(key, after=held)
    assert answer.frontier.length == 16
    assert counts(answer.taken) == {FULL: 2, SWA: 2, MAMBA: 2}
    assert freed(answer) == {}
    driver.relock(held, key, answer.frontier)
    assert driver.evict(FULL, 4).short == 4


def test_after_a_lease_a_twin_was_faster(drive: Drive) -> None:
    """Two requests computed the same pages: the second one's are duplicates."""
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    slow = driver.lock(pages_of("ab", 4))
    driver.insert(key)
    answer = driver.insert(key, after=slow)
    assert answer.frontier.length == 16
    assert counts(answer.taken) == {}
    assert freed(answer) == {FULL: 2, SWA: 2, MAMBA: 2}
    driver.unlock(slow)


def test_after_a_lease_the_window_may_reach_back(drive: Drive) -> None:
    """The window of the new boundary lies partly before the lease: the vote reads it from the tree."""
    driver, key = drive("L", page=4), pages_of("abcd", 4)
    driver.insert(pages_of("abc", 4))
    held = driver.lock(pages_of("abc", 4))
    assert driver.insert(key, after=held).frontier.length == 16
    driver.unlock(held)


def test_after_a_lease_the_frontier_may_lie_at_it_or_above(drive: Drive) -> None:
    """Nothing that is offered votes: the frontier is the lease's end, and without a state there the one before."""
    driver, key = drive("M", page=4), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    held = driver.lock(pages_of("ab", 4))
    answer = driver.insert(key, [], after=held)
    assert (answer.frontier.length, counts(answer.kept)) == (8, {FULL: 2})
    driver.unlock(held, MAMBA)
    driver.match(pages_of("a", 4))
    driver.evict(MAMBA)
    answer = driver.insert(key, [], after=held)
    assert (answer.frontier.length, counts(answer.kept)) == (4, {FULL: 2})
    driver.unlock(held)


def test_after_an_empty_lease_is_the_whole_key(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("ab", 4)
    held = driver.lock(key)
    assert held.length == 0
    assert counts(driver.insert(key, after=held).taken) == {FULL: 2, SWA: 2, MAMBA: 2}
    driver.unlock(held)


def test_graft_lies_on_the_host(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    answer = driver.insert(key, tier=TierName.HOST)
    assert answer.frontier.length == 12
    assert counts(answer.taken) == {FULL: 3, SWA: 3, MAMBA: 3}
    found = driver.match(key)
    assert (found.device.length, found.any_tier.length) == (0, 12)


def test_graft_below_what_is_on_the_device(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    driver.insert(key, tier=TierName.HOST)
    found = driver.match(key)
    assert (found.device.length, found.any_tier.length) == (8, 16)


def test_host_pages_are_revived_on_the_device_from_an_offer(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key, tier=TierName.HOST)
    answer = driver.insert(key)
    assert counts(answer.taken) == {FULL: 3, SWA: 3, MAMBA: 3}
    assert driver.depth(key) == 12
    assert ends(driver, key, FULL, TierName.HOST) == [4, 8, 12]


def test_direct_graft_lies_on_the_device(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abc", 4)
    driver.insert(key, tier=TierName.DEVICE)
    assert driver.depth(key) == 12


BAD_OFFERS: dict[str, tuple[Kind, Insert]] = {
    "too few slots": (Kind.BAD_INSERT, Insert(slots_of([9]))),
    "too many slots": (Kind.BAD_INSERT, Insert(slots_of([9, 10, 11]))),
    "window beyond the key": (Kind.BAD_INSERT, Insert(slots_of([9, 10]), (interval(8, 12, [9]),))),
    "window off the page": (Kind.UNALIGNED, Insert(slots_of([9, 10]), (interval(2, 6, [9]),))),
    "window with too few slots": (Kind.BAD_INSERT, Insert(slots_of([9, 10]), (interval(0, 8, [9]),))),
    "state off the grid": (Kind.UNALIGNED, Insert(slots_of([9, 10]), (state(6, 9),))),
    "state beyond the key": (Kind.BAD_INSERT, Insert(slots_of([9, 10]), (state(12, 9),))),
    "state with two slots": (Kind.BAD_INSERT, Insert(slots_of([9, 10]), (piece(MAMBA, 8, 8, [9, 10]),))),
    "state without a slot": (Kind.BAD_INSERT, Insert(slots_of([9, 10]), (piece(MAMBA, 8, 8, []),))),
    "state as an interval": (Kind.BAD_INSERT, Insert(slots_of([9, 10]), (piece(MAMBA, 4, 8, [9]),))),
    "no such component": (
        Kind.UNKNOWN_COMPONENT,
        Insert(slots_of([9, 10]), (piece(ComponentName("CONV"), 8, 8, [9]),)),
    ),
    "host without a host tier": (Kind.BAD_INSERT, Insert(slots_of([9, 10]), tier=TierName.HOST)),
    "lease of another core": (Kind.LEASE_REUSED, Insert(NO_SLOTS, after=Lease(4711))),
}


@pytest.mark.parametrize("name", sorted(BAD_OFFERS))
def test_a_bad_offer_changes_nothing(drive: Drive, name: str) -> None:
    kind, offer = BAD_OFFERS[name]
    driver = drive("SM", page=4)
    driver.insert(pages_of("ax", 4))
    before = driver.core.snapshot()
    assert refused(lambda: driver.core.insert(pages_of("ab", 4), offer, driver.tick())) is kind
    assert driver.core.snapshot() == before


def test_a_state_between_two_points_of_its_grid_is_refused(drive: Drive) -> None:
    """On a page and on the tree's grid, but states exist every second page only."""
    driver, key = drive("M", page=4, states=2), pages_of("abcd", 4)
    driver.insert(key)
    before = driver.core.snapshot()
    offer = Insert(slots_of([19, 20, 21, 22]), (state(12, 9),))
    assert refused(lambda: driver.core.insert(key, offer, driver.tick())) is Kind.UNALIGNED
    assert driver.core.snapshot() == before


def test_a_ragged_key_is_refused(drive: Drive) -> None:
    driver = drive(page=4)
    key = Key(np.arange(6, dtype=np.int32), HOME)
    assert refused(lambda: driver.core.insert(key, Insert(slots_of([1])), 1)) is Kind.UNALIGNED
    assert driver.core.snapshot().pages == ()


def test_a_lease_that_was_released_is_refused(drive: Drive) -> None:
    driver, key = drive(page=4), pages_of("abc", 4)
    driver.insert(key)
    held = driver.lock(key)
    driver.unlock(held)
    before = driver.core.snapshot()
    offer = Insert(NO_SLOTS, after=held.lease)
    assert refused(lambda: driver.core.insert(key, offer, driver.tick())) is Kind.LEASE_REUSED
    assert driver.core.snapshot() == before


def test_a_piece_before_the_lease_is_refused(drive: Drive) -> None:
    driver, key = drive("S", page=4), pages_of("abc", 4)
    driver.insert(pages_of("ab", 4))
    held = driver.lock(pages_of("ab", 4))
    before = driver.core.snapshot()
    offer = Insert(slots_of([9]), (interval(4, 12, [9, 10]),), held.lease)
    assert refused(lambda: driver.core.insert(key, offer, driver.tick())) is Kind.BAD_INSERT
    assert driver.core.snapshot() == before
    driver.unlock(held)


def test_a_key_shorter_than_its_lease_is_refused(drive: Drive) -> None:
    driver, key = drive(page=4), pages_of("abc", 4)
    driver.insert(key)
    held = driver.lock(key)
    offer = Insert(NO_SLOTS, after=held.lease)
    assert refused(lambda: driver.core.insert(pages_of("ab", 4), offer, driver.tick())) is Kind.BAD_INSERT
    driver.unlock(held)
