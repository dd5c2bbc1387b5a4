"""Placement events: an index rebuilt from them alone equals the tree, in the hashes of `keys.page_hashes`."""

import pytest

from agentcache.keys import page_hashes
from agentcache.types import FULL, Event, EventKind, ReleaseMode, TierName
from tests.builders import AWAY, HOME, key_of, pages_of
from tests.contract.conftest import Drive
from tests.driver import Driver
from tests.oracle import residency

Index = dict[TierName, set[bytes]]


def replayed(events: list[Event]) -> Index:
    """What a router knows: parents first, nothing stored twice, nothing removed that was not there."""
    index: Index = {TierName.DEVICE: set(), TierName.HOST: set()}
    for event in events:
        held = index[event.tier]
        if event.kind is EventKind.CLEARED:
            held.clear()
        elif event.kind is EventKind.STORED:
            assert event.parent is None or event.parent in index[TierName.DEVICE] | index[TierName.HOST]
            assert not held & set(event.hashes)
            held |= set(event.hashes)
        else:
            assert event.hashes
            assert set(event.hashes) <= held
            assert event.tokens == ()
            held -= set(event.hashes)
    return index


def in_order(events: list[Event]) -> bool:
    """Of one call: what was stored, then at most one removal a tier, the device first."""
    removed = [event.tier for event in events if event.kind is EventKind.REMOVED]
    kinds = [event.kind for event in events]
    sorted_kinds = sorted(kinds, key=(EventKind.STORED, EventKind.REMOVED, EventKind.CLEARED).index)
    return kinds == sorted_kinds and removed in ([], [*TierName][:1], [*TierName][:2], [TierName.HOST])


def in_tree(driver: Driver) -> Index:
    spaces = {space.digest().hex(): space for space in (HOME, AWAY)}
    index: Index = {TierName.DEVICE: set(), TierName.HOST: set()}
    for (space, path), held in residency(driver.core.snapshot()).items():
        *_, last = page_hashes(key_of(path, 4, spaces[space]), 4)
        for tier in index:
            if (FULL, tier) in held:
                index[tier].add(last)
    return index


def test_stored_pages_are_named_by_chained_hashes(drive: Drive) -> None:
    driver, key = drive("SM", page=4, emit_events=True), pages_of("abc", 4)
    driver.insert(key)
    (event,) = driver.events
    assert (event.kind, event.tier, event.parent) == (EventKind.STORED, TierName.DEVICE, None)
    assert event.hashes == tuple(page_hashes(key, 4))
    assert event.tokens == tuple(key.tokens.tolist())


def test_a_branch_names_its_parent(drive: Drive) -> None:
    driver, key = drive("SM", page=4, emit_events=True), pages_of("abx", 4)
    driver.insert(pages_of("abc", 4))
    driver.events.clear()
    driver.insert(key)
    (event,) = driver.events
    hashes = tuple(page_hashes(key, 4))
    assert (event.parent, event.hashes) == (hashes[1], hashes[2:])
    assert event.tokens == tuple(key.tokens.tolist()[8:])


def test_nothing_new_is_no_event(drive: Drive) -> None:
    driver, key = drive("SM", page=4, emit_events=True), pages_of("abc", 4)
    driver.insert(key)
    driver.events.clear()
    driver.insert(key)
    driver.match(key)
    assert driver.events == []


def test_no_events_unless_configured(drive: Drive) -> None:
    driver = drive("SM", page=4)
    driver.insert(pages_of("abc", 4))
    driver.evict(FULL, 3)
    assert driver.events == []


def test_removed_pages_are_named(drive: Drive) -> None:
    driver, key = drive("SM", page=4, emit_events=True), pages_of("abc", 4)
    driver.insert(key)
    driver.events.clear()
    driver.evict(FULL, 2)
    removed = {digest for event in driver.events for digest in event.hashes}
    assert {event.kind for event in driver.events} == {EventKind.REMOVED}
    assert removed == set(tuple(page_hashes(key, 4))[1:])


@pytest.mark.parametrize("write_back", [False, True])
def test_an_index_from_events_equals_the_tree(drive: Drive, write_back: bool) -> None:
    driver = drive("SM", page=4, emit_events=True, host_tier=True, write_back=write_back, host_slots=6)

    told = 0

    def agree() -> None:
        """After each call that may tell something."""
        nonlocal told
        assert replayed(driver.events) == in_tree(driver)
        assert in_order(driver.events[told:])
        told = len(driver.events)

    for letters in ("abcd", "abxy", "pqr"):
        driver.insert(pages_of(letters, 4))
        driver.turn("s", pages_of(letters, 4), (1, 2))
        agree()
    driver.insert(pages_of("abc", 4, AWAY))
    agree()
    driver.backup(pages_of("abcd", 4))
    driver.commit(next(iter(driver.flights.values())).job, lambda _piece, end: end <= 12)
    agree()
    for _ in range(4):
        driver.evict(FULL, 2)
        agree()
        while driver.flights:
            driver.commit(next(iter(driver.flights.values())).job, lambda _piece, end: end != 8)
            agree()
    driver.evict(FULL, 1, TierName.HOST)
    agree()
    driver.release("s", ReleaseMode.DROP)
    agree()
    driver.clear(AWAY)
    agree()
    driver.clear()
    agree()
    assert replayed(driver.events) == {TierName.DEVICE: set(), TierName.HOST: set()}


def test_a_gap_in_what_was_stored_is_a_second_event(drive: Drive) -> None:
    """The page at 8 did not land: the one at 12 has a parent of its own to name."""
    driver, key = drive(page=4, emit_events=True, host_tier=True), pages_of("abcd", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    driver.events.clear()
    driver.commit(job, lambda _piece, end: end != 8)
    hashes = tuple(page_hashes(key, 4))
    assert [(event.hashes, event.parent) for event in driver.events] == [
        (hashes[:1], None),
        (hashes[2:], hashes[1]),
    ]
    assert driver.events[1].tokens == tuple(key.tokens.tolist()[8:])


def test_removals_of_one_call_are_one_event_a_tier(drive: Drive) -> None:
    """Branches that leave in turns, from device and host: whoever listens hears of each tier once."""
    driver = drive(page=4, emit_events=True, host_tier=True)
    keys = [pages_of(letters, 4, AWAY) for letters in ("abc", "abx", "pq")]
    for key in keys:
        driver.insert(key, tier=TierName.HOST)
        driver.insert(key)
    driver.insert(pages_of("abc", 4, HOME))
    driver.events.clear()
    driver.clear(AWAY)
    hashes = {digest for key in keys for digest in page_hashes(key, 4)}
    told = [(event.kind, event.tier, set(event.hashes)) for event in driver.events]
    assert told == [(EventKind.REMOVED, tier, hashes) for tier in (TierName.DEVICE, TierName.HOST)]
    assert all(len(event.hashes) == 6 for event in driver.events)


def test_clear_is_told_for_every_tier(drive: Drive) -> None:
    driver = drive("SM", page=4, emit_events=True, host_tier=True)
    driver.insert(pages_of("abc", 4), tier=TierName.HOST)
    driver.insert(pages_of("ab", 4))
    driver.clear()
    assert replayed(driver.events) == {TierName.DEVICE: set(), TierName.HOST: set()}


def test_namespaces_have_other_hashes(drive: Drive) -> None:
    driver = drive(page=4, emit_events=True)
    driver.insert(pages_of("ab", 4, HOME))
    driver.insert(pages_of("ab", 4, AWAY))
    first, second = driver.events
    assert not set(first.hashes) & set(second.hashes)
