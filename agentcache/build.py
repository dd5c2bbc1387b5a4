"""Config to objects: the only place that chooses implementations."""

from collections.abc import Callable, Iterator, Mapping

from agentcache.cache import CacheParts, UnifiedRadixCache
from agentcache.clock import Clock
from agentcache.controller import HybridCacheController
from agentcache.errors import CacheError, Kind
from agentcache.events import EventSink, NullEvents
from agentcache.pools.slots import SlotPool
from agentcache.records import SessionRules
from agentcache.sessions import SessionRegistry
from agentcache.stats import Counters
from agentcache.tiers.null import NullTier
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.tree.extension import MISSING
from agentcache.tree.native import NativeCore
from agentcache.tree.reference.core import ReferenceCore
from agentcache.tree.shapes import shape_faults
from agentcache.types import ComponentName, PoolName, TierName

CORES: dict[str, Callable[[CoreConfig], UnifiedTreeCore]] = {"native": NativeCore, "reference": ReferenceCore}

DEFAULT_RULES = SessionRules()
NOBODY_LISTENS = NullEvents()


def build_cache(
    config: CoreConfig,
    pool_slots: Mapping[ComponentName, int],
    clock: Clock,
    core: str = "native",
    rules: SessionRules = DEFAULT_RULES,
    events: EventSink = NOBODY_LISTENS,
) -> UnifiedRadixCache:
    """A cache over accounting pools of the device tier; `pool_slots` has one size per component.

    Engines give the same slots bytes. Errors: BAD_CONFIG names the first thing that cannot be.
    """
    for fault in _faults(config, pool_slots, core):
        raise CacheError(Kind.BAD_CONFIG, fault)
    names = [PoolName(spec.name, TierName.DEVICE) for spec in config.specs]
    pools = {name: SlotPool(name, pool_slots[name.component]) for name in names}
    parts = CacheParts(
        core=CORES[core](config),
        pools=pools,
        controller=HybridCacheController(NullTier(), pools),
        sessions=SessionRegistry(rules),
        clock=clock,
        events=events,
        stats=Counters(),
    )
    return UnifiedRadixCache(parts)


def require_core(name: str) -> None:
    """Whether such a core can be made here; for whoever would learn it late. Errors: BAD_CONFIG."""
    for fault in _core_faults(name):
        raise CacheError(Kind.BAD_CONFIG, fault)


def _core_faults(name: str) -> Iterator[str]:
    if name not in CORES:
        yield f"no core is called {name!r}; there are {_list(sorted(CORES))}"
    if name == "native" and MISSING:
        yield MISSING


def _faults(config: CoreConfig, pool_slots: Mapping[ComponentName, int], core: str) -> Iterator[str]:
    yield from _core_faults(core)
    yield from shape_faults(config)
    if config.host_tier:
        yield "a host tier is not part of this version; set host_tier to False"
    yield from _pool_faults([spec.name for spec in config.specs], pool_slots)


def _pool_faults(names: list[ComponentName], pool_slots: Mapping[ComponentName, int]) -> Iterator[str]:
    if set(names) != set(pool_slots):
        yield f"there is one pool size for each of {_list(names)}, not for {_list(pool_slots)}"
    for name, slots in pool_slots.items():
        if slots < 1:
            yield f"the pool of {name} has at least one slot, not {slots}"


def _list(names: object) -> str:
    return ", ".join(str(name) for name in names) or "none"  # type: ignore[attr-defined]
