"""Config to objects: the only place that chooses implementations."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agentcache.cache import CacheParts, UnifiedRadixCache
from agentcache.clock import Clock
from agentcache.config import TierSettings
from agentcache.controller import HybridCacheController
from agentcache.embedded import require_memory
from agentcache.errors import CacheError, Kind
from agentcache.events import EventSink, NullEvents
from agentcache.pools.slots import SlotPool
from agentcache.prefetch import DEFAULT_RULES as DEFAULT_PREFETCH
from agentcache.prefetch import PrefetchRules
from agentcache.records import SessionRules
from agentcache.sessions import SessionRegistry
from agentcache.stats import Counters
from agentcache.tiers.api import ExternalTier, Tier
from agentcache.tiers.host import HostTier
from agentcache.tiers.lanes import InlineLane
from agentcache.tiers.null import NoBytes, NullTier
from agentcache.tiers.stores.api import BlobStore
from agentcache.tiers.stores.file import open_file_store
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.tiers.stores.mooncake import open_mooncake_store
from agentcache.tiers.stores.redis import open_redis_store
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.tree.extension import MISSING
from agentcache.tree.native import NativeCore
from agentcache.tree.reference.core import ReferenceCore
from agentcache.tree.shapes import shape_faults
from agentcache.types import ComponentName, ComponentSpec, PoolName, TierName

CORES: dict[str, Callable[[CoreConfig], UnifiedTreeCore]] = {"native": NativeCore, "reference": ReferenceCore}

STORES: dict[str, Callable[[TierSettings], BlobStore]] = {
    "file": lambda settings: open_file_store(settings.l3_folder, _capacity(settings)),
    "redis": lambda settings: open_redis_store(settings.l3_url, _capacity(settings), settings.l3_folder),
    "mooncake": lambda settings: open_mooncake_store(
        settings.l3_url, _capacity(settings), settings.l3_folder
    ),
    "memory": lambda settings: _memory_store(_capacity(settings)),
}
MIB = 2**20
DEFAULT_RULES = SessionRules()


@dataclass(frozen=True, slots=True)
class Tiers:
    """What lies below the device, how it is used, and who is told what lies where.

    `host_slots`: one size per component, where there is a host. The core makes events only for a sink that listens.
    """

    host_slots: Mapping[ComponentName, int] = field(default_factory=dict)
    host: Tier = field(default_factory=NullTier)
    external: ExternalTier = field(default_factory=lambda: NullTier(TierName.EXTERNAL))
    prefetch: PrefetchRules = DEFAULT_PREFETCH
    events: EventSink = field(default_factory=NullEvents)


NO_TIERS = Tiers()


def build_cache(
    config: CoreConfig,
    pool_slots: Mapping[ComponentName, int],
    clock: Clock,
    core: str = "native",
    rules: SessionRules = DEFAULT_RULES,
    tiers: Tiers = NO_TIERS,
) -> UnifiedRadixCache:
    """A cache over pools of slots; `pool_slots` has one size per component, for the device.

    Engines give the same slots bytes. Errors: BAD_CONFIG names the first thing that cannot be.
    """
    for fault in _faults(config, pool_slots, tiers, core):
        raise CacheError(Kind.BAD_CONFIG, fault)
    if tiers.events.listening:
        config = replace(config, emit_events=True)
    sizes = {TierName.DEVICE: pool_slots, TierName.HOST: tiers.host_slots}
    names = [PoolName(spec.name, tier) for tier in config.tiers for spec in config.specs]
    pools = {name: SlotPool(name, sizes[name.tier][name.component]) for name in names}
    parts = CacheParts(
        core=CORES[core](config),
        pools=pools,
        controller=HybridCacheController(tiers.host, tiers.external, pools),
        sessions=SessionRegistry(rules),
        clock=clock,
        events=tiers.events,
        stats=Counters(),
        prefetch=tiers.prefetch,
    )
    return UnifiedRadixCache(parts)


def accounting_host(specs: tuple[ComponentSpec, ...]) -> HostTier:
    """A host tier for pools that only count: what is sent lands at once."""
    nothing = NoBytes()
    tiers = (TierName.DEVICE, TierName.HOST)
    return HostTier(InlineLane(), {PoolName(spec.name, tier): nothing for spec in specs for tier in tiers})


def open_store(settings: TierSettings) -> BlobStore:
    """The external store that the settings name. May block: files are opened, servers started.

    Errors  BAD_CONFIG says what to do: no such backend, a store that is not ours, no room, no permission, no answer
    """
    if settings.l3 not in STORES:
        raise CacheError(
            Kind.BAD_CONFIG, f"no external store is called {settings.l3!r}; there are {_list(STORES)}"
        )
    return STORES[settings.l3](settings)


def require_core(name: str) -> None:
    """Whether such a core can be made here; for whoever would learn it late. Errors: BAD_CONFIG."""
    for fault in _core_faults(name):
        raise CacheError(Kind.BAD_CONFIG, fault)


def _core_faults(name: str) -> Iterator[str]:
    if name not in CORES:
        yield f"no core is called {name!r}; there are {_list(sorted(CORES))}"
    if name == "native" and MISSING:
        yield MISSING


def _memory_store(capacity_bytes: int) -> BlobStore:
    require_memory(capacity_bytes, "the memory store")
    return MemoryStore(capacity_bytes)


def _capacity(settings: TierSettings) -> int:
    return int(settings.l3_mib * MIB)


def _faults(
    config: CoreConfig, pool_slots: Mapping[ComponentName, int], tiers: Tiers, core: str
) -> Iterator[str]:
    yield from _core_faults(core)
    yield from shape_faults(config)
    names = [spec.name for spec in config.specs]
    yield from _pool_faults(names, pool_slots, TierName.DEVICE)
    if config.host_tier or tiers.host_slots:
        if not config.host_tier:
            yield "there are host pools and no host tier; set host_tier to True"
        yield from _pool_faults(names, tiers.host_slots, TierName.HOST)


def _pool_faults(
    names: list[ComponentName], pool_slots: Mapping[ComponentName, int], tier: TierName
) -> Iterator[str]:
    if set(names) != set(pool_slots):
        yield f"there is one {tier} pool size for each of {_list(names)}, not for {_list(pool_slots)}"
    for name, slots in pool_slots.items():
        if slots < 1:
            yield f"the {tier} pool of {name} has at least one slot, not {slots}"


def _list(names: object) -> str:
    return ", ".join(str(name) for name in names) or "none"  # type: ignore[attr-defined]
