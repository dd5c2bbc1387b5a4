"""Settings to sizes: pools, their tokens and bytes, and the values that every kind of engine is built from."""

from collections.abc import Mapping

from agentcache.config import EngineSettings
from agentcache.engine.api import PoolInfo
from agentcache.engine.engine import EngineLimits
from agentcache.engine.publish import POOL_SETTINGS, PublishPolicy
from agentcache.engine.scheduler import PrefillOrder
from agentcache.errors import CacheError, Kind
from agentcache.records import SessionRules
from agentcache.tree.api import CoreConfig, Order, OrderBase, WritePolicy
from agentcache.types import Checkpoint, ComponentName, ComponentSpec

MIB = 2**20


def core_config(settings: EngineSettings, specs: tuple[ComponentSpec, ...], host_tier: bool) -> CoreConfig:
    """The tree core's shape."""
    return CoreConfig(
        page_tokens=settings.page,
        specs=specs,
        grid_tokens=settings.grid_tokens,
        order=Order(settings.eviction_policy),
        base=OrderBase(settings.eviction_base),
        write_policy=WritePolicy(settings.write_policy),
        host_tier=host_tier,
    )


def session_rules(settings: EngineSettings) -> SessionRules:
    """How long sessions are kept."""
    return SessionRules(settings.ttl_s, settings.reopen_after_s, settings.tag_ttl_s, settings.tombstones)


def engine_limits(settings: EngineSettings, publishes_decoded: bool) -> EngineLimits:
    """How much runs at once."""
    return EngineLimits(
        max_running=settings.max_running,
        queue_limit=settings.queue_limit,
        prefill_tokens=settings.prefill_tokens,
        order=PrefillOrder(settings.prefill_order),
        publishes_decoded=publishes_decoded,
    )


def pool_slots(specs: tuple[ComponentSpec, ...], settings: EngineSettings) -> dict[ComponentName, int]:
    """Device slots of every component, by the setting for its kind."""
    slots = {
        "full_slots": settings.full_slots,
        "swa_slots": settings.swa_slots,
        "mamba_slots": settings.mamba_slots,
    }
    return {spec.name: slots[POOL_SETTINGS[type(spec.rule)]] for spec in specs}


def check_pools(policy: PublishPolicy, sizes: Mapping[ComponentName, int]) -> None:
    """Errors: CacheError(BAD_CONFIG) for a pool that cannot hold one chunk, so that nothing could ever be cached."""
    short = policy.over_pool(policy.grid_tokens, sizes)
    if short:
        raise CacheError(
            Kind.BAD_CONFIG,
            f"the {short.component} pool of {short.slots} slots cannot hold one chunk of {policy.grid_tokens} tokens; "
            f"raise {short.setting} to {short.least} or more",
        )


def pool_infos(
    settings: EngineSettings, specs: tuple[ComponentSpec, ...], sizes: Mapping[ComponentName, int]
) -> tuple[PoolInfo, ...]:
    """The device pools as they are shown."""
    pools = []
    for spec in specs:
        tokens = 0 if isinstance(spec.rule, Checkpoint) else sizes[spec.name] * settings.page
        pools.append(PoolInfo(spec.name, sizes[spec.name], tokens, sizes[spec.name] * spec.slot_bytes))
    return tuple(pools)


def host_slots(
    specs: tuple[ComponentSpec, ...], sizes: Mapping[ComponentName, int], host_mib: float
) -> dict[ComponentName, int]:
    """Host slots of each component: the device's proportions, in `host_mib` MiB. None for a model without bytes.

    Errors  BAD_CONFIG when a pool would get none
    """
    device_bytes = sum(sizes[spec.name] * spec.slot_bytes for spec in specs)
    if not device_bytes:
        return {}
    share = host_mib * MIB / device_bytes
    slots = {spec.name: int(sizes[spec.name] * share) for spec in specs}
    if not all(slots.values()):
        least = device_bytes / min(sizes[spec.name] for spec in specs)
        raise CacheError(
            Kind.BAD_CONFIG,
            f"host_mib of {host_mib:g} leaves a pool without a slot; raise it to {least / MIB:.1f} or more, or leave "
            "it out for no host tier",
        )
    return slots
