"""What must hold after every step, whatever the core: its own invariants, the law of slots, marks, locks, events."""

from collections import Counter

from agentcache.types import FULL, ComponentName, TierName
from tests.driver import Driver
from tests.flight import HeldLease
from tests.oracle import Residency, residency

Covered = Counter[tuple[str, tuple[int, ...], ComponentName]]


def check_all(driver: Driver) -> Residency:
    """Every check below, once; returns the residency for further questions."""
    driver.core.check()
    places = residency(driver.core.snapshot())
    check_slots(driver, places)
    check_shape(driver, places)
    check_locks(driver)
    check_counts(driver, places)
    check_outline(driver, places)
    driver.listener.agree(places)
    return places


def check_slots(driver: Driver, places: Residency) -> None:
    """`free + cached + leased + in flight = size` as exact disjoint sets, and each slot holds what the tree says."""
    named: dict[tuple[ComponentName, TierName], set[int]] = {}
    for (space, path), held in places.items():
        for (component, tier), slot in held.items():
            ledger = driver.ledger(component, tier)
            mark = ledger.marks.get(slot)
            assert mark is not None, f"{ledger.name}: the tree names slot {slot}, which nobody wrote"
            ledger.verify(slot, type(mark)(space, path, component))
            slots = named.setdefault((component, tier), set())
            assert slot not in slots, f"{ledger.name}: slot {slot} at two places"
            slots.add(slot)
    for ledger in driver.ledgers():
        cached = named.get((ledger.name.component, ledger.name.tier), set())
        assert cached == ledger.cached(), (
            f"{ledger.name}: leaked {sorted(ledger.cached() - cached)}, "
            f"used while free or foreign {sorted(cached - ledger.cached())}"
        )


def check_shape(driver: Driver, places: Residency) -> None:
    """FULL has no gap on the device nor on any tier; nothing lies where FULL of that page is not."""
    page = driver.config.page_tokens
    for (space, path), held in places.items():
        tiers = {tier for (component, tier) in held if component == FULL}
        assert tiers, f"data without FULL at {len(path)}: {held}"
        above = {(FULL, TierName.DEVICE), (FULL, TierName.HOST)}
        if len(path) > page:
            above = set(places.get((space, path[:-page]), {}))
            assert above & {(FULL, TierName.DEVICE), (FULL, TierName.HOST)}, f"gap above {len(path)}"
        if TierName.DEVICE in tiers:
            assert (FULL, TierName.DEVICE) in above, f"device FULL at {len(path)} under a page that is not"
        reading = driver.being_read()
        for (component, tier), slot in held.items():
            at_home = tier is not TierName.DEVICE or TierName.DEVICE in tiers or (component, slot) in reading
            assert at_home, f"{component} on the device at {len(path)} where FULL is not"


def covered_by(lease: HeldLease) -> Covered:
    """What one lease protects, by position."""
    space, tokens = lease.key.namespace.digest().hex(), tuple(lease.key.tokens.tolist())
    return Counter((space, tokens[:end], name) for name, ends in lease.covered.items() for end in ends)


def check_locks(driver: Driver) -> None:
    """Locks are exactly the union of the leases that are out, and every locked copy is still on the device."""
    snapshot, expected, present = driver.core.snapshot(), Covered(), Covered()
    for lease in driver.leases.values():
        expected += covered_by(lease)
        present += Covered() if lease.for_load else covered_by(lease)
    shown: Covered = Covered()
    for page in snapshot.pages:
        on_device = {name for name, tier, _ in page.slots if tier is TierName.DEVICE}
        for component, count in page.locks:
            shown[page.namespace, page.path, component] += count
            there = component in on_device or not present[page.namespace, page.path, component]
            assert there, f"a locked {component} at {len(page.path)} left the device"
    assert +shown == expected, f"locks differ: shown {+shown - expected}, missing {expected - shown}"
    assert snapshot.leases == len(driver.leases)
    assert snapshot.jobs == len(driver.flights)


def check_outline(driver: Driver, places: Residency) -> None:
    """The branches are all pages, once, each under its parent; a shorter outline is the beginning of a longer one."""
    outline = driver.core.outline(len(places) + 1)
    assert not outline.more
    resident: Counter[tuple[ComponentName, TierName]] = Counter()
    for branch in outline.branches:
        resident.update({(name, tier): count for name, tier, count in branch.resident})
        above = outline.branches[branch.parent] if branch.parent >= 0 else None
        assert branch.start == (above.end if above else 0)
        assert above is None or (above.namespace, True) == (branch.namespace, above.used_ns >= branch.used_ns)
    lengths = sum(branch.end - branch.start for branch in outline.branches)
    assert lengths == len(places) * driver.config.page_tokens
    assert resident == Counter(kind for held in places.values() for kind in held)
    assert sum(branch.markers for branch in outline.branches) == driver.core.stats().markers
    some = len(outline.branches) // 2
    shorter = driver.core.outline(some)
    assert (shorter.branches, shorter.more) == (outline.branches[:some], some < len(outline.branches))


def check_counts(driver: Driver, places: Residency) -> None:
    """`stats` agrees with the snapshot."""
    owned: Counter[tuple[ComponentName, TierName]] = Counter()
    for held in places.values():
        owned.update(held.keys())
    stats = driver.core.stats()
    assert stats.pages == len(places)
    counted = {(count.pool.component, count.pool.tier): count.cached for count in stats.pools if count.cached}
    assert counted == dict(owned)
    assert stats.leases == len(driver.leases)
    assert stats.jobs == len(driver.flights)
