"""The law of one owner: free + cached + leased + in flight = size, as sets of slots, in every pool."""

from collections.abc import Mapping

import numpy as np

from agentcache.controller import HybridCacheController
from agentcache.pools.api import Pool
from agentcache.sessions import SessionRegistry
from agentcache.turns import Ledger
from agentcache.types import NO_SLOTS, PoolName, Slots, TierName
from agentcache.views import Snapshot


def audit(
    snapshot: Snapshot,
    pools: Mapping[PoolName, Pool],
    ledger: Ledger,
    controller: HybridCacheController,
    sessions: SessionRegistry,
) -> None:
    """Compare what the pools call used with what its owners say. AssertionError names the first broken law."""
    cached = _cached(snapshot)
    assert set(cached) <= set(pools), f"the tree holds slots of unknown pools: {set(cached) - set(pools)}"
    for name, pool in pools.items():
        owners = {
            "cached": cached.get(name, NO_SLOTS),
            "leased": ledger.leased(name.component) if name.tier is TierName.DEVICE else NO_SLOTS,
            "in flight": controller.in_flight(name),
        }
        _check_owners(name, pool, owners)
    assert snapshot.leases >= len(ledger), f"{len(ledger)} turns hold {snapshot.leases} leases"
    for marker in snapshot.markers:
        allowed = sessions.may_hold(marker.session, marker.generation)
        assert allowed, f"a reference of a session that is not open: {marker}"


def _check_owners(name: PoolName, pool: Pool, owners: Mapping[str, Slots]) -> None:
    owned = np.sort(np.concatenate(list(owners.values())))
    where = f"{name.component}/{name.tier} " + ", ".join(f"{who}={s.tolist()}" for who, s in owners.items())
    assert np.unique(owned).size == owned.size, f"a slot has two owners: {where}"
    assert np.array_equal(owned, pool.used()), (
        f"used slots {pool.used().tolist()} without this owner: {where}"
    )
    assert owned.size + pool.free_slots == pool.size, f"free slots are miscounted: {where}"


def _cached(snapshot: Snapshot) -> dict[PoolName, Slots]:
    found: dict[PoolName, list[int]] = {}
    for page in snapshot.pages:
        for component, tier, slot in page.slots:
            found.setdefault(PoolName(component, tier), []).append(slot)
    return {name: np.array(slots, dtype=np.int32) for name, slots in found.items()}
