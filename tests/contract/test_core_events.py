"""Placement events: an index rebuilt from them alone equals the tree, in the hashes of `keys.page_hashes`.

`check_all`, which looks after every step, compares what `Driver.listener` heard with the snapshot: every component on
every tier. These tests are about what a call tells, and drive what may go wrong.
"""

import pytest

from agentcache.keys import Key, page_hashes
from agentcache.types import FULL, MAMBA, SWA, Emit, EventKind, ReleaseMode, TierName
from tests.builders import AWAY, HOME, SWA2, all_kinds, pages_of
from tests.contract.conftest import Drive
from tests.driver import Driver
from tests.listening import Listener, shelves
from tests.oracle import residency

DEVICE, HOST = TierName.DEVICE, TierName.HOST
STORED, REMOVED, CLEARED = EventKind


def hashes_of(key: Key, *ends: int) -> tuple[bytes, ...]:
    """The hashes of the pages of 4 that end there; all if nothing is said."""
    hashes = tuple(page_hashes(key, 4))
    return tuple(hashes[end // 4 - 1] for end in ends) if ends else hashes


def fresh(driver: Driver) -> Driver:
    """What was told so far is forgotten."""
    driver.events.clear()
    return driver


# -- what is stored


def test_stored_pages_are_named_by_chained_hashes(drive: Drive) -> None:
    driver, key = drive(page=4, emit_events=True), pages_of("abc", 4)
    driver.insert(key)
    (event,) = driver.events
    assert (event.kind, event.component, event.tier, event.parent) == (STORED, FULL, DEVICE, None)
    assert event.hashes == hashes_of(key)
    assert event.tokens == tuple(key.tokens.tolist())


def test_every_component_is_told_after_full_and_in_spec_order(drive: Drive) -> None:
    """A state has the hash of the page that ends at it; only FULL has a parent and tokens."""
    driver, key = drive("SLM", page=4, grid=2, emit_events=True), pages_of("abcd", 4)
    wanted = [
        (SWA, 4),
        (SWA, 8),
        (SWA2, 4),
        (SWA2, 8),
        (SWA, 16),
        (SWA2, 16),
        (SWA2, 12),
        (MAMBA, 8),
        (MAMBA, 16),
    ]
    driver.insert(key, wanted)
    told = {event.component: event for event in driver.events}
    assert [*told] == [FULL, SWA, SWA2, MAMBA]
    assert len(driver.events) == 4
    assert told[SWA].hashes == hashes_of(key, 4, 8, 16)
    assert told[SWA2].hashes == hashes_of(key)
    assert told[MAMBA].hashes == hashes_of(key, 8, 16)
    assert all((told[name].parent, told[name].tokens) == (None, ()) for name in (SWA, SWA2, MAMBA))


def test_a_state_is_named_by_the_page_that_ends_at_it(drive: Drive) -> None:
    """Stored and removed, however many pages lie before it."""
    driver, key = drive("M", page=4, grid=3, emit_events=True), pages_of("abcdef", 4)
    driver.insert(key)
    full, states = driver.events
    assert (full.hashes, states.hashes) == (hashes_of(key), hashes_of(key, 12, 24))
    driver.lock(key)
    fresh(driver).evict(MAMBA, 1)
    assert [(event.component, event.hashes) for event in driver.events] == [(MAMBA, hashes_of(key, 12))]


def test_a_branch_names_its_parent(drive: Drive) -> None:
    driver, key = drive("SM", page=4, emit_events=True), pages_of("abx", 4)
    driver.insert(pages_of("abc", 4))
    fresh(driver).insert(key)
    full, window, state = driver.events
    hashes = hashes_of(key)
    assert (full.parent, full.hashes) == (hashes[1], hashes[2:])
    assert full.tokens == tuple(key.tokens.tolist()[8:])
    assert window.hashes == state.hashes == hashes[2:]


def test_a_window_that_comes_back_is_told_without_its_full(drive: Drive) -> None:
    """A tombstone is revived: FULL was there all the time."""
    driver, key = drive("SM", page=4, emit_events=True), pages_of("abc", 4)
    driver.insert(key)
    driver.lock(key)
    fresh(driver).evict(SWA, 1)
    (window, state) = driver.events[::-1]
    assert shelves(driver.events) == [(REMOVED, MAMBA, DEVICE), (REMOVED, SWA, DEVICE)]
    assert window.hashes == state.hashes
    assert set(window.hashes) < set(hashes_of(key, 4, 8))
    fresh(driver).insert(key)
    assert shelves(driver.events) == [(STORED, SWA, DEVICE), (STORED, MAMBA, DEVICE)]
    assert all(event.hashes == window.hashes for event in driver.events)


def test_nothing_new_is_no_event(drive: Drive) -> None:
    driver, key = drive("SM", page=4, emit_events=True, host_tier=True), pages_of("abc", 4)
    driver.insert(key)
    fresh(driver).insert(key)
    driver.match(key)
    driver.turn("s", key, (1, 2))
    driver.unlock(driver.lock(key))
    driver.backup(key)
    assert driver.events == []


def test_a_cut_in_a_path_is_nobodys_business(drive: Drive) -> None:
    """Branches, locks and markers cut nodes; what lay there is neither told again nor lost."""
    driver = drive("SLM", page=4, emit_events=True)
    driver.insert(pages_of("abcdef", 4))
    fresh(driver).turn("s", pages_of("abcd", 4), (1, 2), alternate=8)
    driver.unlock(driver.lock(pages_of("abc", 4)))
    assert driver.events == []
    driver.insert(pages_of("abx", 4))
    assert {digest for event in driver.events for digest in event.hashes} == {
        *hashes_of(pages_of("abx", 4), 12)
    }
    driver.release("s")
    for component in (MAMBA, SWA, SWA2, FULL):
        driver.evict(component, 3)


def test_no_events_unless_configured(drive: Drive) -> None:
    driver = drive("SM", page=4)
    driver.insert(pages_of("abc", 4))
    driver.evict(MAMBA, 1)
    driver.evict(FULL, 3)
    driver.clear()
    assert driver.events == []


def test_namespaces_have_other_hashes(drive: Drive) -> None:
    driver = drive(page=4, emit_events=True)
    driver.insert(pages_of("ab", 4, HOME))
    driver.insert(pages_of("ab", 4, AWAY))
    first, second = driver.events
    assert not set(first.hashes) & set(second.hashes)


# -- what is removed


def test_removed_pages_are_named_and_full_goes_last(drive: Drive) -> None:
    driver, key = drive("SM", page=4, emit_events=True), pages_of("abc", 4)
    driver.insert(key)
    fresh(driver).evict(FULL, 2)
    assert shelves(driver.events) == [(REMOVED, name, DEVICE) for name in (MAMBA, SWA, FULL)]
    assert all(set(event.hashes) == set(hashes_of(key, 8, 12)) for event in driver.events)


def test_a_router_hears_that_a_window_went_though_its_full_is_there(drive: Drive) -> None:
    """FULL of a prefix alone is worth nothing, and whoever places requests must know."""
    driver, key = drive("S", page=4, emit_events=True), pages_of("abcdefgh", 4)
    driver.insert(key)
    fresh(driver).evict(SWA, 8)
    (event,) = driver.events[:1]
    assert (event.kind, event.component, set(event.hashes)) == (REMOVED, SWA, set(hashes_of(key)))
    assert (FULL, DEVICE) not in driver.listener.index, "a tail that nothing can reach goes in the same call"


def test_a_lost_state_is_told_alone(drive: Drive) -> None:
    driver, key = drive("SM", page=4, emit_events=True), pages_of("abc", 4)
    driver.insert(key)
    driver.lock(key)
    fresh(driver).evict(MAMBA, 2)
    assert shelves(driver.events) == [(REMOVED, MAMBA, DEVICE)]
    assert set(driver.events[0].hashes) == set(hashes_of(key, 4, 8))


def test_removals_of_one_call_are_one_event_a_component_and_tier(drive: Drive) -> None:
    """Branches that leave in turns, from device and host: whoever listens hears of each once."""
    driver = drive("SM", page=4, emit_events=True, host_tier=True)
    keys = [pages_of(letters, 4, AWAY) for letters in ("abc", "abx", "pq")]
    for key in keys:
        driver.insert(key, tier=HOST)
        driver.insert(key)
    driver.insert(pages_of("abc", 4, HOME))
    fresh(driver).clear(AWAY)
    assert shelves(driver.events) == [
        (REMOVED, name, tier) for name in (MAMBA, SWA, FULL) for tier in (DEVICE, HOST)
    ]
    hashes = {digest for key in keys for digest in page_hashes(key, 4)}
    assert all(set(event.hashes) == hashes and len(event.hashes) == 6 for event in driver.events)


def test_clear_is_told_once_for_every_tier(drive: Drive) -> None:
    driver = drive("SM", page=4, emit_events=True, host_tier=True)
    driver.insert(pages_of("abc", 4), tier=HOST)
    driver.insert(pages_of("ab", 4))
    fresh(driver).clear()
    assert shelves(driver.events) == [(CLEARED, FULL, DEVICE), (CLEARED, FULL, HOST)]
    assert driver.listener.index == {}


# -- what moves


def test_a_gap_in_what_was_stored_is_a_second_event(drive: Drive) -> None:
    """The page at 8 did not land: the one at 12 has a parent of its own to name."""
    driver, key = drive("S", page=4, emit_events=True, host_tier=True), pages_of("abcd", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    fresh(driver).commit(job, lambda _piece, end: end != 8)
    hashes = hashes_of(key)
    assert [(event.component, event.hashes, event.parent) for event in driver.events] == [
        (FULL, hashes[:1], None),
        (FULL, hashes[2:], hashes[1]),
        (SWA, hashes[3:], None),
    ]
    assert driver.events[1].tokens == tuple(key.tokens.tolist()[8:])


def test_what_goes_down_is_there_before_it_is_gone_above(drive: Drive) -> None:
    """Whoever reads between two events never finds a page that only moved to be nowhere."""
    driver = drive("SM", page=4, emit_events=True, host_tier=True, write_back=True)
    key = pages_of("abc", 4)
    driver.insert(key)
    fresh(driver).evict(FULL, 1)
    assert driver.events == []
    (flight,) = driver.flights.values()
    driver.commit(flight.job)
    assert shelves(driver.events) == [
        *[(STORED, name, HOST) for name in (FULL, SWA, MAMBA)],
        *[(REMOVED, name, DEVICE) for name in (MAMBA, SWA, FULL)],
    ]
    assert all(event.hashes == hashes_of(key, 12) for event in driver.events)


def test_of_a_move_that_lands_in_part_the_rest_is_removed(drive: Drive) -> None:
    """The window page did not land on the host: it is on no tier any more, its FULL is."""
    driver = drive("SM", page=4, emit_events=True, host_tier=True, write_back=True)
    driver.insert(pages_of("abc", 4))
    driver.evict(FULL, 1)
    (flight,) = driver.flights.values()
    fresh(driver).commit(flight.job, lambda piece, _end: piece.component != SWA)
    assert shelves(driver.events) == [
        *[(STORED, name, HOST) for name in (FULL, MAMBA)],
        *[(REMOVED, name, DEVICE) for name in (MAMBA, SWA, FULL)],
    ]


def test_a_load_is_told_component_by_component(drive: Drive) -> None:
    driver, key = drive("SM", page=4, emit_events=True, host_tier=True), pages_of("abc", 4)
    driver.insert(key, tier=HOST)
    planned = driver.load(key)
    assert planned.job is not None
    fresh(driver).commit(planned.job)
    assert [
        (*shelf, event.hashes) for shelf, event in zip(shelves(driver.events), driver.events, strict=True)
    ] == [
        (STORED, FULL, DEVICE, hashes_of(key)),
        (STORED, SWA, DEVICE, hashes_of(key, 12)),
        (STORED, MAMBA, DEVICE, hashes_of(key, 12)),
    ]


def test_a_graft_tells_what_it_brought(drive: Drive) -> None:
    """FULL was on the device; from outside come the window and the state of a boundary, to the host."""
    driver, key = drive("SM", page=4, emit_events=True, host_tier=True), pages_of("abc", 4)
    driver.insert(key, [(SWA, 4), (MAMBA, 4), (SWA, 8), (MAMBA, 8), (SWA, 12), (MAMBA, 12)])
    driver.evict(MAMBA, 3)
    driver.insert(key, [(SWA, 12), (MAMBA, 12)], tier=HOST)
    fresh(driver).insert(key, [(SWA, 8), (MAMBA, 8)], tier=HOST, full_from=12)
    assert shelves(driver.events) == [(STORED, SWA, HOST), (STORED, MAMBA, HOST)]
    assert all(event.hashes == hashes_of(key, 8) for event in driver.events)


# -- all of it


@pytest.mark.parametrize("write_back", [False, True])
@pytest.mark.parametrize("kinds", all_kinds())
def test_an_index_from_events_equals_the_tree(drive: Drive, kinds: str, write_back: bool) -> None:
    """Each step is compared by `check_all`; a second listener hears all of it again at the end."""
    driver = drive(kinds, page=4, emit_events=True, host_tier=True, write_back=write_back, host_slots=6)
    names = [spec.name for spec in driver.config.specs]
    for letters in ("abcd", "abxy", "pqr"):
        driver.insert(pages_of(letters, 4))
        driver.turn("s", pages_of(letters, 4), (1, 2))
    driver.insert(pages_of("abc", 4, AWAY))
    driver.backup(pages_of("abcd", 4))
    driver.commit(next(iter(driver.flights.values())).job, lambda _piece, end: end <= 12)
    held = driver.lock(pages_of("ab", 4))
    for step in range(8):
        driver.evict(names[-step % len(names)], 2)
        while driver.flights:
            driver.commit(next(iter(driver.flights.values())).job, lambda _piece, end: end != 8)
    driver.unlock(held)
    for name in names:
        driver.evict(name, 1, HOST)
    driver.insert(pages_of("abcd", 4))
    driver.release("s", ReleaseMode.DROP)
    driver.clear(AWAY)
    driver.insert(pages_of("abz", 4))
    assert {event.component for event in driver.events if event.kind is STORED} == set(names)
    assert {event.component for event in driver.events if event.kind is REMOVED} == set(names)
    driver.clear()
    assert driver.listener.index == {}


@pytest.mark.parametrize("missed", range(6))
def test_who_misses_one_event_has_another_index(drive: Drive, missed: int) -> None:
    """The judge is judged: none of these can be left out."""
    driver = drive("SM", page=4, emit_events=True)
    driver.insert(pages_of("abc", 4))
    driver.evict(FULL, 1)
    assert len(driver.events) == 6
    heard = [Emit(event) for at, event in enumerate(driver.events) if at != missed]

    def follow() -> None:
        deaf = Listener(driver.config)
        for effect in heard:
            deaf.hear((effect,))
        deaf.agree(residency(driver.core.snapshot()))

    with pytest.raises(AssertionError):
        follow()
