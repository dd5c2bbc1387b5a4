"""What the mirror tells and keeps: readers of its events, of a snapshot, and of both in turns know the same."""

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest

from agentcache.keys import page_hashes
from agentcache.kv_events import (
    AllBlocksCleared,
    BlockEvent,
    BlockRemoved,
    BlockStored,
    Groups,
    component_card,
)
from agentcache.types import FULL, MAMBA, SWA, ComponentName, Event, EventKind, TierName
from agentcache.worker.kv_mirror import Mirror
from tests.builders import CORES, HOME, config_of, pages_of, specs_of
from tests.chosen import CORE
from tests.driver import Driver

PAGE = 4
GROUPS = Groups([component_card(spec) for spec in specs_of("SM", PAGE)], PAGE)
TIERS = (TierName.DEVICE, TierName.HOST)
Index = dict[tuple[ComponentName, TierName], set[bytes]]


def path(letters: str) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    key = pages_of(letters, PAGE)
    return tuple(page_hashes(key, PAGE)), tuple(key.tokens.tolist())


def stored(letters: str, above: int = 0, tier: TierName = TierName.DEVICE) -> Event:
    """Pages of full attention from the page `above` on."""
    hashes, tokens = path(letters)
    parent = hashes[above - 1] if above else None
    return Event(EventKind.STORED, tier, hashes[above:], parent, tokens[above * PAGE :])


def beside(component: ComponentName, hashes: Sequence[bytes], kind: EventKind = EventKind.STORED) -> Event:
    return Event(kind, TierName.DEVICE, tuple(hashes), component=component)


def read(index: Index, told: Iterable[BlockEvent]) -> Index:
    """A reader's index; full attention must come with its parents and tokens."""
    for block_event in told:
        for event in GROUPS.events(block_event):
            _read(index, event)
    return index


def _read(index: Index, event: Event) -> None:
    if event.kind is EventKind.CLEARED:
        index.clear()
    elif event.kind is EventKind.REMOVED:
        index[event.component, event.tier] -= set(event.hashes)
    else:
        ground = index[FULL, TierName.DEVICE] | index[FULL, TierName.HOST]
        assert event.parent is None or event.parent in ground
        assert len(event.tokens) == PAGE * len(event.hashes)
        index[event.component, event.tier] |= set(event.hashes)


def known(index: Index) -> Index:
    return {place: hashes for place, hashes in index.items() if hashes}


def test_windows_and_states_are_told_with_the_tokens_of_their_pages() -> None:
    """Readers cut `token_ids` by `block_size`: events of every group have tokens for each block."""
    mirror, (hashes, tokens) = Mirror(GROUPS), path("abcd")
    mirror.take(stored("abcd"))
    told = mirror.take(beside(SWA, (hashes[0], hashes[2], hashes[3])))
    assert [
        (t.block_hashes, t.parent_block_hash, t.token_ids) for t in told if isinstance(t, BlockStored)
    ] == [
        ([hashes[0]], None, [*tokens[:4]]),
        ([hashes[2], hashes[3]], hashes[1], [*tokens[8:]]),
    ]
    assert {t.group for t in told if isinstance(t, BlockStored)} == {1}


def test_a_branch_is_a_run_of_its_own() -> None:
    mirror = Mirror(GROUPS)
    mirror.take(stored("abc"))
    mirror.take(stored("abx", 2))
    told = mirror.take(beside(MAMBA, (path("abc")[0][2], path("abx")[0][2])))
    assert [len(t.block_hashes) for t in told if isinstance(t, BlockStored)] == [1, 1]


def test_a_snapshot_tells_runs_of_equal_places() -> None:
    mirror, (hashes, tokens) = Mirror(GROUPS), path("abcd")
    mirror.take(stored("abcd"))
    mirror.take(Event(EventKind.STORED, TierName.HOST, hashes[:2], None, tokens[:8]))
    mirror.take(beside(MAMBA, hashes[1:2]))
    first, *rest = mirror.snapshot()
    assert first == AllBlocksCleared()
    told = [(t.group, t.medium, t.block_hashes) for t in rest if isinstance(t, BlockStored)]
    assert told == [
        (0, "GPU", [hashes[0]]),
        (0, "CPU_PINNED", [hashes[0]]),
        (0, "GPU", [hashes[1]]),
        (0, "CPU_PINNED", [hashes[1]]),
        (2, "GPU", [hashes[1]]),
        (0, "GPU", [hashes[2], hashes[3]]),
    ]
    assert (len(rest), len(mirror)) == (6, 4)


def test_a_page_is_forgotten_when_it_is_nowhere() -> None:
    mirror, (hashes, _) = Mirror(GROUPS), path("ab")
    mirror.take(stored("ab"))
    mirror.take(beside(SWA, hashes))
    told = mirror.take(beside(SWA, hashes[1:], EventKind.REMOVED))
    assert told == [BlockRemoved([hashes[1]], "GPU", 1)]
    mirror.take(beside(FULL, hashes[1:], EventKind.REMOVED))
    assert len(mirror) == 1


def test_what_is_removed_twice_or_was_never_there_is_gone() -> None:
    """Report R167: each hash of a removal counts by itself."""
    mirror, (hashes, _) = Mirror(GROUPS), path("ab")
    mirror.take(stored("ab"))
    for _ in range(2):
        mirror.take(beside(FULL, (hashes[1], b"never there", hashes[0]), EventKind.REMOVED))
    assert [*mirror.snapshot()] == [AllBlocksCleared()]


def test_a_clear_is_told_once_for_all_tiers() -> None:
    """Report R078: nothing is left on any tier."""
    mirror = Mirror(GROUPS)
    assert mirror.clear() == [AllBlocksCleared()]
    assert mirror.clear() == []
    mirror.take(stored("ab"))
    mirror.take(stored("ab", tier=TierName.HOST))
    clears = [mirror.take(Event(EventKind.CLEARED, tier)) for tier in (TierName.DEVICE, TierName.HOST)]
    assert clears == [[AllBlocksCleared()], []]
    assert [*mirror.snapshot()] == [AllBlocksCleared()]


@pytest.mark.parametrize("seed", range(20))
def test_whoever_comes_late_knows_as_much_as_who_was_there(seed: int) -> None:
    source, mirror = random.Random(seed), Mirror(GROUPS)
    early: Index = defaultdict(set)
    truth: Index = defaultdict(set)
    for _ in range(200):
        event = _something(source, truth)
        _follow(truth, event)
        read(early, mirror.take(event))
        assert known(early) == known(truth)
        assert known(read(defaultdict(set), mirror.snapshot())) == known(truth)


def _something(source: random.Random, truth: Index) -> Event:
    """A path that grows, aux data on it, or a removal from its end: what a tree might tell."""
    letters = "".join(source.choice("ab") for _ in range(source.randint(1, 4)))
    hashes, tokens = path(letters)
    tier = source.choice((TierName.DEVICE, TierName.HOST))
    held = truth[FULL, tier]
    here = next((at for at, one in enumerate(hashes) if one not in held), len(hashes))
    if here < len(hashes):
        parent = hashes[here - 1] if here else None
        return Event(EventKind.STORED, tier, hashes[here:], parent, tokens[here * PAGE :])
    place = source.choice((SWA, MAMBA))
    if hashes[-1] not in truth[place, tier]:
        return Event(EventKind.STORED, tier, hashes[-1:], component=place)
    if source.random() < 0.1:
        return Event(EventKind.CLEARED, tier)
    return Event(EventKind.REMOVED, tier, hashes[-1:], component=place)


def _follow(truth: Index, event: Event) -> None:
    held = truth[event.component, event.tier]
    if event.kind is EventKind.CLEARED:
        truth.clear()
    elif event.kind is EventKind.STORED:
        held |= set(event.hashes)
    else:
        held -= set(event.hashes)


@pytest.mark.parametrize("write_back", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_snapshot_of_a_real_tree_at_any_time(seed: int, write_back: bool) -> None:
    """Parents come before children whatever was evicted, moved between tiers and stored again."""
    source = random.Random(seed)
    config = config_of("SM", PAGE, emit_events=True, host_tier=True, write_back=write_back)
    driver, mirror = Driver(CORES[CORE](config), slots=12, host_slots=8), Mirror(GROUPS)
    early: Index = defaultdict(set)
    for _ in range(120):
        driver.events.clear()
        _work(driver, source)
        for event in driver.events:
            read(early, mirror.take(event))
        assert known(early) == driver.listener.index
        assert known(read(defaultdict(set), mirror.snapshot())) == driver.listener.index


def _work(driver: Driver, source: random.Random) -> None:
    """Something that a cache does."""
    key = pages_of("".join(source.choice("abc") for _ in range(source.randint(1, 6))), PAGE)
    if driver.flights and source.random() < 0.5:
        landed = source.randint(0, 6) * PAGE
        driver.commit(next(iter(driver.flights.values())).job, lambda _piece, end: end <= landed)
    elif source.random() < 0.15:
        driver.backup(key)
    elif source.random() < 0.05 and not driver.flights:
        driver.clear(source.choice((HOME, None)))
    else:
        driver.evict(source.choice((FULL, SWA, MAMBA)), source.randint(1, 4), source.choice(TIERS))
        if len(driver.ledger(FULL).free) >= 6:
            driver.insert(key)
