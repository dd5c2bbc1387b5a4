"""snapshot, stats and clear."""

from agentcache.errors import Kind
from agentcache.types import FULL, MAMBA, SWA, ComponentName, Insert, PoolName, TierName
from tests.builders import AWAY, HOME, MakeCore, config_of, interval, pages_of, slots_of, state
from tests.contract.conftest import Drive
from tests.contract.reading import markers, refused


def test_snapshot_does_not_depend_on_how_the_tree_grew(make_core: MakeCore) -> None:
    """The same places with the same slots, whichever branch came first and in however many pieces."""

    slots = {letter: at for at, letter in enumerate("abcdxy")}
    spare = iter(range(100, 200))

    def offer(letters: str, seen: set[str]) -> Insert:
        """The slot of a page is fixed by its letter; pages already offered come with a spare one."""
        full = [next(spare) if letter in seen else slots[letter] for letter in letters]
        seen.update(letters)
        end, last = 4 * len(letters), full[-1]
        return Insert(slots_of(full), (interval(end - 4, end, [last]), state(end, last)))

    shots = []
    for order in (("ab", "abcd", "abxy"), ("ab", "abxy", "abcd"), ("ab", "abc", "abxy", "abcd")):
        core, seen = make_core(config_of("SM", 4)), set[str]()
        for letters in order:
            core.insert(pages_of(letters, 4), offer(letters, seen), 7)
        shots.append(core.snapshot().pages)
    assert shots[0] == shots[1]
    assert [page.path for page in shots[0]] == [page.path for page in shots[2]]
    assert len(shots[0]) == 6


def test_a_slot_that_the_tree_owns_is_not_offered_again(drive: Drive) -> None:
    driver, key = drive(page=4), pages_of("ab", 4)
    driver.insert(key)
    owned = driver.core.snapshot().pages[0].slots[0][2]
    before = driver.core.snapshot()
    offer = Insert(slots_of([owned]))
    assert refused(lambda: driver.core.insert(pages_of("x", 4), offer, driver.tick())) is Kind.BAD_INSERT
    assert driver.core.snapshot() == before


def test_snapshot_shows_every_page_in_order(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("ab", 4)
    driver.insert(key)
    held = driver.lock(key)
    driver.turn("s", key, (1, 2))
    shot = driver.core.snapshot()
    tokens = tuple(key.tokens.tolist())
    assert [page.path for page in shot.pages] == [tokens[:4], tokens]
    deep = shot.pages[1]
    assert [(name, tier) for name, tier, _ in deep.slots] == [
        (n, TierName.DEVICE) for n in (FULL, SWA, MAMBA)
    ]
    assert dict(deep.locks) == dict(deep.references) == {FULL: 1, SWA: 1, MAMBA: 1}
    assert (shot.leases, shot.jobs) == (1, 0)
    driver.unlock(held)


def test_snapshot_is_sorted(drive: Drive) -> None:
    """Pages by namespace and path, markers by session and then by when they finished, whatever came first."""
    driver = drive("M", page=4)
    for at, (letters, space, session) in enumerate((("xb", HOME, "t"), ("a", AWAY, "s"), ("xa", HOME, "t"))):
        driver.insert(pages_of(letters, 4, space))
        driver.turn(session, pages_of(letters, 4, space), (1, 9 - at))
    shot = driver.core.snapshot()
    places = [(page.namespace, page.path) for page in shot.pages]
    assert places == sorted(places)
    assert len(places) == 4
    assert [(view.session, view.finish_seq) for view in shot.markers] == [("s", 8), ("t", 7), ("t", 9)]


def test_stats_name_every_pool_in_order(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key, tier=TierName.HOST)
    driver.turn("s", key, (1, 2))
    job = driver.load(key).job
    assert job is not None
    counts = driver.core.stats().pools
    assert [count.pool for count in counts] == [
        PoolName(spec.name, tier) for spec in driver.config.specs for tier in (TierName.DEVICE, TierName.HOST)
    ]
    on_host = [(count.cached, count.protected, count.referenced) for count in counts[1::2]]
    assert on_host == [(2, 2, 2), (2, 1, 1), (2, 1, 1)]
    assert all((count.cached, count.protected, count.referenced) == (0, 0, 0) for count in counts[::2])
    driver.commit(job)


def test_snapshot_of_an_empty_core(drive: Drive) -> None:
    shot = drive("SM").core.snapshot()
    assert (shot.pages, shot.markers, shot.leases, shot.jobs) == ((), (), 0, 0)


def test_stats_count_owned_protected_and_referenced(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    driver.insert(key)
    driver.turn("s", key, (1, 2))
    held = driver.lock(pages_of("ab", 4))
    stats = driver.core.stats()
    full = next(
        count for count in stats.pools if count.pool.component == FULL and count.pool.tier is TierName.DEVICE
    )
    states = next(
        count for count in stats.pools if count.pool.component == MAMBA and count.pool.tier is TierName.DEVICE
    )
    assert (full.cached, full.protected, full.referenced) == (4, 2, 4)
    assert (states.cached, states.protected, states.referenced) == (4, 1, 1)
    assert (stats.pages, stats.leases, stats.jobs, stats.sessions, stats.markers) == (4, 1, 0, 1, 1)
    driver.unlock(held)


def test_clear_drops_everything(drive: Drive) -> None:
    driver = drive("SM", page=4, host_tier=True)
    driver.insert(pages_of("abc", 4), tier=TierName.HOST)
    driver.insert(pages_of("abc", 4))
    driver.insert(pages_of("x", 4, AWAY))
    driver.turn("s", pages_of("abc", 4), (1, 2))
    driver.clear()
    assert driver.core.snapshot().pages == ()
    assert markers(driver, "s") == []
    assert all(len(ledger.free) == ledger.size for ledger in driver.ledgers())


def test_clear_of_one_namespace_leaves_the_others(drive: Drive) -> None:
    driver, here, there = drive("SM", page=4), pages_of("abc", 4, HOME), pages_of("abc", 4, AWAY)
    for key, session in ((here, "s"), (there, "t")):
        driver.insert(key)
        driver.turn(session, key, (1, 2))
    driver.clear(AWAY)
    assert (driver.depth(here), driver.depth(there)) == (12, 0)
    assert len(markers(driver, "s")) == 1
    assert markers(driver, "t") == []


def test_clear_says_what_it_dropped(drive: Drive) -> None:
    driver, there = drive("SM", page=4), pages_of("xy", 4, AWAY)
    driver.insert(pages_of("abc", 4))
    driver.insert(there)
    driver.turn("s", there, (1, 2))
    gone = driver.clear(AWAY)
    assert gone.markers == 1
    assert {held.component: held.slots for held in gone.held} == {FULL: 2, SWA: 2, MAMBA: 2}
    assert driver.clear(AWAY).held == ()


def test_clear_is_refused_while_a_lease_is_out(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abc", 4)
    driver.insert(key)
    held = driver.lock(key)
    before = driver.core.snapshot()
    assert refused(lambda: driver.core.clear(None, driver.tick())) is Kind.IN_USE
    assert driver.core.snapshot() == before
    driver.unlock(held)
    driver.clear()


def test_clear_is_refused_while_a_job_is_out(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    assert refused(lambda: driver.core.clear(None, driver.tick())) is Kind.IN_USE
    driver.commit(job)
    driver.clear()


def test_config_is_what_it_was_built_from(make_core: MakeCore) -> None:
    config = config_of("SLM", 4, 2)
    assert make_core(config).config == config


def test_components_may_have_any_name(make_core: MakeCore) -> None:
    config = config_of("M", 4)
    assert [spec.name for spec in make_core(config).config.specs] == [FULL, ComponentName("MAMBA")]
