"""lock, relock and unlock: what a lease covers, early release, stale boundaries, refusals that change nothing."""

import pytest

from agentcache.errors import Kind
from agentcache.types import FULL, MAMBA, SWA, ComponentName, Lease, Region, TierName
from tests.builders import SWA2, pages_of
from tests.check import check_all
from tests.contract.conftest import Drive
from tests.contract.reading import refused


def test_lock_names_each_region(drive: Drive) -> None:
    driver, key = drive("SLM", page=4), pages_of("abcdef", 4)
    driver.insert(key)
    held = driver.lock(key)
    rules = {spec.name: spec.rule.region(24, 4) for spec in driver.config.specs}
    assert rules == {FULL: Region(0, 24), SWA: Region(20, 24), SWA2: Region(12, 24), MAMBA: Region(24, 24)}
    assert {name: len(ends) for name, ends in held.covered.items()} == {FULL: 6, SWA: 1, SWA2: 3, MAMBA: 1}
    driver.unlock(held)


def test_lock_of_the_empty_boundary_covers_nothing(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("ab", 4)
    driver.insert(key)
    held = driver.lock(pages_of("xy", 4))
    assert held.length == 0
    driver.evict(FULL, 2)
    driver.unlock(held)


def test_a_locked_region_outlasts_any_pressure(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(key)
    held = driver.lock(key)
    assert driver.evict(FULL, 4).short == 4
    driver.evict(SWA, 4)
    driver.evict(MAMBA, 4)
    assert driver.depth(key) == 16
    driver.unlock(held)
    assert driver.evict(FULL, 4).freed == 4


def test_what_is_outside_the_region_can_go(drive: Drive) -> None:
    """A window lease pins its window only, a state lease its state only."""
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(key)
    held = driver.lock(key)
    assert driver.evict(SWA, 4).freed == 3
    assert driver.evict(MAMBA, 4).freed == 0  # gone with the windows
    driver.unlock(held)


def test_the_tail_below_a_lease_can_go(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(key)
    held = driver.lock(pages_of("ab", 4))
    assert driver.evict(FULL, 4).freed == 2
    assert driver.depth(key) == 8
    driver.unlock(held)


def test_two_leases_count_twice(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("ab", 4)
    driver.insert(key)
    first, second = driver.lock(key), driver.lock(key)
    driver.unlock(first)
    assert driver.evict(FULL, 2).short == 2
    driver.unlock(second)
    assert driver.evict(FULL, 2).short == 0


def test_a_fork_under_a_lease_keeps_both_halves_locked(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(key)
    held = driver.lock(key)
    driver.insert(pages_of("abxy", 4))
    assert driver.evict(FULL, 9).freed == 2
    assert driver.depth(key) == 16
    driver.unlock(held)


def test_a_window_is_released_early(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(key)
    held = driver.lock(key)
    driver.unlock(held, SWA)
    assert driver.evict(SWA, 4).freed == 4
    assert driver.evict(FULL, 4).short == 4
    driver.unlock(held)


def test_an_early_release_is_idempotent(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("ab", 4)
    driver.insert(key)
    held, other = driver.lock(key), driver.lock(key)
    driver.unlock(held, SWA)
    driver.core.unlock(held.lease, SWA, driver.tick())
    check_all(driver)
    assert driver.evict(SWA, 2).freed == 1
    driver.unlock(other)
    driver.unlock(held)


def test_full_is_not_released_alone(drive: Drive) -> None:
    driver, key = drive("S", page=4), pages_of("ab", 4)
    driver.insert(key)
    held = driver.lock(key)
    unlock, lease = driver.core.unlock, held.lease
    assert refused(lambda: unlock(lease, FULL, driver.tick())) is Kind.UNKNOWN_COMPONENT
    assert refused(lambda: unlock(lease, ComponentName("CONV"), driver.tick())) is Kind.UNKNOWN_COMPONENT
    assert driver.evict(FULL, 2).short == 2
    driver.unlock(held)


def test_a_lease_is_released_once(drive: Drive) -> None:
    driver, key = drive("S", page=4), pages_of("ab", 4)
    driver.insert(key)
    other, held = driver.lock(key), driver.lock(key)
    driver.unlock(held)
    before = driver.core.snapshot()
    assert refused(lambda: driver.core.unlock(held.lease, None, driver.tick())) is Kind.LEASE_REUSED
    assert refused(lambda: driver.core.unlock(held.lease, SWA, driver.tick())) is Kind.LEASE_REUSED
    assert refused(lambda: driver.core.unlock(Lease(4711), None, driver.tick())) is Kind.LEASE_REUSED
    at = driver.peek(key).device
    assert refused(lambda: driver.core.relock(held.lease, at, driver.tick())) is Kind.LEASE_REUSED
    assert driver.core.snapshot() == before
    driver.unlock(other)


def test_relock_moves_the_protection(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(key)
    held = driver.lock(pages_of("ab", 4))
    moved = driver.relock(held, key, driver.peek(key).device)
    assert driver.evict(FULL, 4).short == 4
    back = driver.relock(moved, key, driver.peek(key, 4).device)
    assert driver.evict(FULL, 4).freed == 3
    driver.unlock(back)


def test_relock_that_is_refused_keeps_the_lease(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(pages_of("ab", 4))
    driver.insert(key, tier=TierName.HOST)
    held = driver.lock(pages_of("ab", 4))
    deep = driver.peek(key).any_tier
    assert refused(lambda: driver.core.relock(held.lease, deep, driver.tick())) is Kind.NOT_RESIDENT
    assert driver.evict(FULL, 4).short == 4
    driver.unlock(held)


def test_a_boundary_on_the_host_is_not_lockable(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key, tier=TierName.HOST)
    before = driver.core.snapshot()
    deep = driver.peek(key).any_tier
    assert refused(lambda: driver.core.lock(deep, driver.tick())) is Kind.NOT_RESIDENT
    assert driver.core.snapshot() == before


@pytest.mark.parametrize("victim", ["a", "b"])
def test_a_boundary_is_stale_after_an_eviction_that_dropped_data(drive: Drive, victim: str) -> None:
    """Whether or not its own data survived: lock before you evict."""
    driver = drive(page=4)
    first, second = pages_of("a", 4), pages_of("b", 4)
    driver.insert(first)
    driver.insert(second)
    driver.match(second if victim == "a" else first)
    old = driver.peek(first).device
    driver.evict(FULL)
    before = driver.core.snapshot()
    assert refused(lambda: driver.core.lock(old, driver.tick())) is Kind.STALE_BOUNDARY
    assert driver.core.snapshot() == before


def test_a_boundary_survives_an_eviction_that_dropped_nothing(drive: Drive) -> None:
    driver, key = drive(page=4), pages_of("ab", 4)
    driver.insert(key)
    held = driver.lock(key)
    boundary = driver.peek(key).device
    assert driver.evict(FULL).freed == 0
    driver.unlock(driver.lock(key, boundary))
    driver.unlock(held)


def test_a_boundary_survives_inserts_and_forks(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(key)
    deep, middle = driver.peek(key).device, driver.peek(key, 8).device
    driver.insert(pages_of("abxy", 4))
    driver.insert(pages_of("axyz", 4))
    driver.unlock(driver.lock(key, deep))
    driver.unlock(driver.lock(key, middle))


def test_relock_to_a_stale_boundary_keeps_the_lease(drive: Drive) -> None:
    driver, key = drive(page=4), pages_of("abcd", 4)
    driver.insert(key)
    held = driver.lock(pages_of("ab", 4))
    old = driver.peek(key).device
    driver.evict(FULL)
    assert refused(lambda: driver.core.relock(held.lease, old, driver.tick())) is Kind.STALE_BOUNDARY
    assert driver.evict(FULL, 4).freed == 1
    driver.unlock(held)


def test_clear_makes_boundaries_stale(drive: Drive) -> None:
    driver, key = drive(page=4), pages_of("ab", 4)
    driver.insert(key)
    old = driver.peek(key).device
    driver.clear()
    assert refused(lambda: driver.core.lock(old, driver.tick())) is Kind.STALE_BOUNDARY
