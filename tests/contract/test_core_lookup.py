"""match and peek: the vote, the limit, namespaces, forks, the grid, recency."""

import numpy as np
import pytest

from agentcache.errors import CacheError, Kind
from agentcache.keys import Key
from agentcache.types import FULL, MAMBA, SWA, ComponentName, MissReason, TierName, Window
from tests.builders import AWAY, HOME, SWA2, key_of, pages_of
from tests.check import check_all
from tests.contract.conftest import Drive
from tests.driver import Driver


def test_empty_core_matches_nothing(drive: Drive) -> None:
    found = drive("SM", page=4).match(pages_of("ab", 4))
    assert (found.device.length, found.any_tier.length, found.full_tokens) == (0, 0, 0)
    assert found.miss is not None
    assert (found.miss.component, found.miss.position, found.miss.reason) == (FULL, 0, MissReason.NOT_CACHED)


def test_empty_key_matches_nothing_and_misses_nothing(drive: Drive) -> None:
    found = drive(page=4).match(pages_of("", 4))
    assert found.device.length == 0
    assert found.miss is None


@pytest.mark.parametrize("page", [1, 4, 64])
def test_whole_key_is_found_again(drive: Drive, page: int) -> None:
    driver, key = drive("SLM", page=page), pages_of("abcd", page)
    driver.insert(key)
    found = driver.match(key)
    assert found.device.length == found.any_tier.length == found.full_tokens == 4 * page
    assert found.miss is None


@pytest.mark.parametrize("page", [1, 4, 64])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_limit_cuts_to_the_chunk_below(drive: Drive, page: int, off: int) -> None:
    chunk = 2 * page
    driver, key = drive("M", page=page, grid=2), pages_of("abcdef", page)
    driver.insert(key)
    for k in (1, 2):
        assert driver.depth(key, k * chunk + off) == (k * chunk + off) // chunk * chunk


def test_prompt_minus_one_keeps_one_token_to_compute(drive: Drive) -> None:
    driver, key = drive("S", page=4), pages_of("abc", 4)
    driver.insert(key)
    found = driver.peek(key, len(key) - 1)
    assert found.device.length == 8
    assert found.full_tokens == 8
    assert found.miss is None


def test_namespaces_share_nothing(drive: Drive) -> None:
    driver = drive("SM", page=4)
    driver.insert(pages_of("abc", 4, HOME))
    assert driver.depth(pages_of("abc", 4, AWAY)) == 0
    driver.insert(pages_of("ab", 4, AWAY))
    assert driver.depth(pages_of("abc", 4, AWAY)) == 8
    assert driver.depth(pages_of("abc", 4, HOME)) == 12


def test_forks_share_the_trunk_only(drive: Drive) -> None:
    driver = drive("SM", page=4)
    driver.insert(pages_of("abcd", 4))
    driver.insert(pages_of("abxy", 4))
    assert driver.depth(pages_of("abcd", 4)) == 16
    assert driver.depth(pages_of("abxy", 4)) == 16
    assert driver.depth(pages_of("abxd", 4)) == 12
    assert driver.depth(pages_of("abz", 4)) == 8
    assert driver.core.stats().pools[0].cached == 6


def test_a_page_that_differs_in_its_last_token_is_another_page(drive: Drive) -> None:
    driver = drive(page=4)
    driver.insert(key_of([1, 2, 3, 4, 5, 6, 7, 8], 4))
    assert driver.depth(key_of([1, 2, 3, 4, 5, 6, 7, 9], 4)) == 4
    assert driver.depth(key_of([1, 2, 3, 9], 4)) == 0


def test_page_size_one_matches_token_by_token(drive: Drive) -> None:
    driver = drive("L", page=1)
    driver.insert(key_of(range(9), 1))
    assert driver.depth(key_of([0, 1, 2, 3, 7], 1)) == 4


def test_positions_off_the_grid_never_match(drive: Drive) -> None:
    driver, key = drive("S", page=4, grid=3), pages_of("abcdefg", 4)
    driver.insert(key)
    assert driver.depth(key) == 24
    assert driver.depth(key, 23) == 12
    assert driver.depth(key, 11) == 0


def test_refused_candidates_do_not_stop_the_walk(drive: Drive) -> None:
    driver, key = drive("M", page=4), pages_of("abcd", 4)
    driver.insert(key, [(MAMBA, 4), (MAMBA, 16)])
    assert [driver.depth(key, limit) for limit in (4, 8, 12, 16)] == [4, 4, 4, 16]


def test_miss_names_the_component_that_refused(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    windows = [(SWA, end) for end in (4, 8, 16)]
    driver.insert(key, [*windows, (MAMBA, 4), (MAMBA, 12), (MAMBA, 16)])
    no_state, gap = driver.peek(key, 8).miss, driver.peek(key, 12).miss
    assert no_state is not None
    assert (no_state.component, no_state.position, no_state.reason) == (MAMBA, 8, MissReason.NO_CHECKPOINT)
    assert gap is not None
    assert (gap.component, gap.position, gap.reason) == (SWA, 12, MissReason.WINDOW_GAP)
    assert driver.peek(key).miss is None


Why = tuple[ComponentName, int, MissReason]


def why(driver: Driver, key: Key) -> Why:
    miss = driver.peek(key).miss
    assert miss is not None
    return miss.component, miss.position, miss.reason


def test_miss_names_the_first_of_several_that_refuse(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(key)
    held = driver.lock(key)
    driver.evict(MAMBA, 9)
    assert why(driver, pages_of("abc", 4)) == (MAMBA, 12, MissReason.NO_CHECKPOINT)
    driver.evict(SWA, 9)
    assert why(driver, pages_of("abc", 4)) == (SWA, 12, MissReason.WINDOW_GAP)
    driver.unlock(held)


def test_miss_names_what_is_nowhere_before_what_is_on_the_host(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, tier=TierName.HOST)
    driver.insert(key)
    held = driver.lock(key)
    driver.evict(SWA, 9)
    assert why(driver, pages_of("abc", 4)) == (SWA, 12, MissReason.ON_HOST)
    driver.evict(MAMBA, 9)
    driver.evict(MAMBA, 9, TierName.HOST)
    assert why(driver, pages_of("abc", 4)) == (MAMBA, 12, MissReason.NO_CHECKPOINT)
    driver.unlock(held)


def test_miss_on_host(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key, tier=TierName.HOST)
    found = driver.peek(key)
    assert (found.device.length, found.any_tier.length, found.full_tokens) == (0, 8, 8)
    assert found.miss is not None
    assert (found.miss.component, found.miss.reason) == (FULL, MissReason.ON_HOST)


def test_regions_may_lie_on_two_tiers(drive: Drive) -> None:
    """FULL and the window on the device, the state on the host only: `any_tier` is deeper than `device`."""
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key, tier=TierName.HOST)
    driver.insert(key, [(SWA, 4), (SWA, 8), (SWA, 12), (MAMBA, 4)])
    found = driver.peek(key)
    assert (found.device.length, found.any_tier.length) == (4, 12)
    assert found.miss is not None
    assert (found.miss.component, found.miss.position, found.miss.reason) == (MAMBA, 12, MissReason.ON_HOST)


def test_match_uses_and_peek_does_not(drive: Drive) -> None:
    driver = drive(page=4)
    first, second = pages_of("a", 4), pages_of("b", 4)
    driver.insert(first)
    driver.insert(second)
    driver.peek(first)
    driver.evict(FULL)
    assert (driver.depth(first), driver.depth(second)) == (0, 4)
    driver.insert(first)
    driver.match(second)
    driver.evict(FULL)
    assert (driver.depth(first), driver.depth(second)) == (0, 4)


def test_match_uses_the_matched_region_only(drive: Drive) -> None:
    """A match of a short prefix leaves its sibling branches as old as they were."""
    driver = drive("M", page=4)
    old, new, trunk = pages_of("abc", 4), pages_of("abd", 4), pages_of("ab", 4)
    driver.insert(old)
    driver.insert(new)
    driver.match(trunk)
    driver.evict(FULL)
    assert driver.depth(old) == 8
    assert driver.depth(new) == 12


def test_match_does_not_refresh_states_above_the_boundary(drive: Drive) -> None:
    """Only the state at the boundary is used; those before it keep their age and leave first."""
    driver = drive("M", page=4)
    used, idle = pages_of("abc", 4), pages_of("xyz", 4)
    driver.insert(used)
    driver.insert(idle)
    driver.match(used)
    for _ in range(2):
        driver.evict(MAMBA)
    assert [driver.depth(used, limit) for limit in (4, 8, 12)] == [0, 0, 12]
    assert [driver.depth(idle, limit) for limit in (4, 8, 12)] == [4, 8, 12]


def test_match_changes_nothing_but_recency(drive: Drive) -> None:
    driver = drive("SM", page=4)
    driver.insert(pages_of("abcd", 4))
    before = driver.core.snapshot()
    driver.match(pages_of("abx", 4))
    driver.match(pages_of("abcd", 4), 7)
    assert driver.core.snapshot() == before


def test_two_windows_vote_each_for_itself(drive: Drive) -> None:
    driver, key = drive("SL", page=4), pages_of("abcde", 4)
    short = driver.config.specs[1].rule
    assert isinstance(short, Window)
    driver.insert(key, [*((SWA, end) for end in (4, 8, 12, 16, 20)), (SWA2, 12), (SWA2, 16), (SWA2, 20)])
    assert [driver.depth(key, limit) for limit in (8, 12, 16, 20)] == [0, 0, 0, 20]


def test_key_that_is_not_whole_pages_is_refused(drive: Drive) -> None:
    driver = drive(page=4)
    driver.insert(pages_of("ab", 4))
    before = driver.core.snapshot()
    ragged = Key(np.arange(6, dtype=np.int32), HOME)
    with pytest.raises(CacheError) as matched:
        driver.core.match(ragged, 6, 9)
    with pytest.raises(CacheError) as peeked:
        driver.core.peek(ragged, 6)
    assert matched.value.kind is peeked.value.kind is Kind.UNALIGNED
    assert driver.core.snapshot() == before
    check_all(driver)
