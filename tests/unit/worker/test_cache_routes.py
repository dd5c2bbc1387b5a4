"""What `/v1/cache` says, and which store a request asks for."""

import pytest

from agentcache.config import TierSettings
from agentcache.errors import CacheError, Kind
from agentcache.stats import CacheStats, PoolUse, ReturnCounts, SessionCounts, TurnCounts
from agentcache.tree.api import CoreConfig, Order, WritePolicy
from agentcache.types import FULL, MAMBA, ComponentName, PoolName, TierName, full_spec, mamba_spec
from agentcache.views import ExternalStatus
from agentcache.web.fields import Fields
from agentcache.worker.cache_routes import cache_json, external_json, wanted_store

CONFIG = CoreConfig(
    page_tokens=4,
    specs=(full_spec(slot_bytes=100), mamba_spec(32, slot_bytes=7000)),
    grid_tokens=32,
    order=Order.ERT,
    write_policy=WritePolicy.WRITE_BACK,
    host_tier=True,
)
ABSENT = ExternalStatus("none", "absent")
UP = ExternalStatus(
    "redis", "up", "redis://me:secret@localhost:1/0", objects=3, error="no route to redis://u:pw@h"
)


def use(component: ComponentName, tier: TierName, size: int, free: int) -> PoolUse:
    return PoolUse(PoolName(component, tier), size, free, size - free, 0, 0, 0, 2)


POOLS = (
    use(FULL, TierName.DEVICE, 10, 4),
    use(MAMBA, TierName.DEVICE, 3, 2),
    use(FULL, TierName.HOST, 100, 40),
    use(MAMBA, TierName.HOST, 30, 20),
)


def stats(external: ExternalStatus = ABSENT, pools: tuple[PoolUse, ...] = POOLS) -> CacheStats:
    by_tier = {TierName.DEVICE: 64, TierName.HOST: 32, TierName.EXTERNAL: 4}
    turns = TurnCounts(turns=2, prompt_tokens=200, cached_tokens=100, cached_by_tier=by_tier)
    return CacheStats(
        turns=turns,
        sessions=SessionCounts(),
        pools=pools,
        active_turns=0,
        open_references=0,
        tree_pages=6,
        external=external,
        jobs_in_flight=2,
        prefetched_tokens=4,
        returns=ReturnCounts(64, 3, 2, 1),
    )


def test_residency_is_told_by_tier_and_component_in_slots_tokens_and_bytes() -> None:
    said = cache_json(CONFIG, stats(), TierSettings(prefetch="best_effort"))
    tiers = said["tiers"]
    assert isinstance(tiers, dict)
    assert {tier: list(parts) for tier, parts in tiers.items()} == {
        "device": ["FULL", "MAMBA"],
        "host": ["FULL", "MAMBA"],
    }
    assert tiers["host"]["FULL"] == {
        "slot_tokens": 4,
        "slot_bytes": 100,
        "slots": {
            "size": 100,
            "free": 40,
            "cached": 60,
            "leased": 0,
            "in_flight": 0,
            "protected": 0,
            "referenced": 2,
        },
        "cached_tokens": 240,
        "cached_bytes": 6000,
    }
    state = tiers["device"]["MAMBA"]
    assert (state["slot_tokens"], state["cached_tokens"], state["cached_bytes"]) == (0, 0, 7000)
    assert said["cached_tokens"] == {"device": 64, "host": 32, "external": 4}
    assert (said["hit_rate"], said["jobs_in_flight"], said["prefetched_tokens"]) == (0.5, 2, 4)
    assert said["promoted"] == {"tokens": 64, "on_time": 3, "late": 2, "unused": 1}
    policies = [said[name] for name in ("eviction_policy", "write_policy", "prefetch")]
    assert policies == ["ert", "write_back", "best_effort"]


def test_without_a_host_tier_its_residency_is_empty() -> None:
    said = cache_json(CONFIG, stats(pools=POOLS[:2]), TierSettings())
    assert said["tiers"] == {"device": said["tiers"]["device"], "host": {}}  # type: ignore[index]
    assert said["external"] == external_json(ABSENT)


def test_the_store_is_told_without_passwords() -> None:
    said = external_json(UP)
    assert (said["backend"], said["state"], said["objects"], said["used_bytes"]) == ("redis", "up", 3, None)
    assert said["address"] == "redis://me:***@localhost:1/0"
    assert "pw" not in str(said)


def test_a_store_is_named_by_its_fields_and_the_rest_stays() -> None:
    worker = TierSettings(host_mib=5, l3="file", l3_path="here", l3_deadline_s=9)
    wanted = wanted_store(Fields({"backend": "redis", "url": "redis://localhost", "mib": 3}), worker)
    assert wanted == TierSettings(
        host_mib=5, l3="redis", l3_url="redis://localhost", l3_mib=3, l3_deadline_s=9
    )


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        ({}, Kind.BAD_REQUEST, "file, redis, mooncake or memory"),
        ({"backend": "none"}, Kind.BAD_REQUEST, "file, redis, mooncake or memory"),
        ({"backend": 3}, Kind.BAD_REQUEST, "backend must be a string"),
        ({"backend": "file", "l3_path": "x"}, Kind.BAD_REQUEST, "l3_path is no field of a store"),
        ({"backend": "file", "mib": "3"}, Kind.BAD_REQUEST, "mib must be a number"),
        ({"backend": "file", "mib": 0}, Kind.BAD_CONFIG, "l3_mib ('mib' of the request)"),
        ({"backend": "s3"}, Kind.BAD_CONFIG, "l3 ('backend' of the request)"),
        ({"backend": "file", "url": "x"}, Kind.BAD_CONFIG, "l3 is file; leave l3_url out"),
    ],
)
def test_a_store_that_cannot_be_is_refused(values: dict[str, object], kind: Kind, said: str) -> None:
    with pytest.raises(CacheError) as caught:
        wanted_store(Fields(values), TierSettings())
    assert caught.value.kind is kind
    assert said in caught.value.message
