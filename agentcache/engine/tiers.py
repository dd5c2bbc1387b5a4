"""The tiers of an engine: how large its host pools are, where all its bytes lie, and what is made of a store."""

from collections.abc import Mapping
from dataclasses import dataclass

from agentcache.build import Tiers
from agentcache.clock import Clock
from agentcache.config import EngineSettings
from agentcache.engine.bell import Bell
from agentcache.engine.runner import Runner
from agentcache.engine.sizing import MIB, host_slots
from agentcache.errors import CacheError, Kind
from agentcache.pools.buffers import SlotTensors
from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.tiers.api import ExternalTier, SlotBytes
from agentcache.tiers.cuda import CudaLane
from agentcache.tiers.external import StoredTier
from agentcache.tiers.host import HostTier
from agentcache.tiers.lanes import Lane, ThreadLane
from agentcache.tiers.null import NullTier
from agentcache.tiers.rules import ExternalRules
from agentcache.tiers.stores.api import BlobStore
from agentcache.tiers.stores.objects import HEADER
from agentcache.types import MAMBA, ComponentName, ComponentSpec, PoolName, TierName

LEAST_OBJECTS = 16
"""An external store that cannot hold so many pages is a mistake."""


@dataclass(frozen=True, slots=True)
class EngineTiers:
    """Where an engine's bytes lie, by pool, and what wakes it."""

    pools: Mapping[PoolName, SlotBytes]
    host_slots: Mapping[ComponentName, int]
    settings: EngineSettings
    clock: Clock
    bell: Bell

    def external(self, store: BlobStore) -> ExternalTier:
        """An external tier over an open store. Errors: BAD_CONFIG for one that has room for next to nothing."""
        largest = max(pool.slot_bytes for pool in self.pools.values()) + HEADER.size
        capacity = store.status().capacity_bytes
        if capacity is not None and capacity < LEAST_OBJECTS * largest:
            raise CacheError(
                Kind.BAD_CONFIG,
                f"the external store may hold {capacity / MIB:.3g} MiB, and {LEAST_OBJECTS} of this model's pages take "
                f"{LEAST_OBJECTS * largest / MIB:.3g}; raise l3_mib",
            )
        rules = ExternalRules(deadline_s=self.settings.l3_deadline_s)
        return StoredTier(store, self.pools, self.settings.page, self.clock, rules, self.bell.ring)

    def below(self) -> Tiers:
        """The host tier, if there is one; an external tier is attached later. A thread or a stream starts here."""
        settings = self.settings
        return Tiers(
            host_slots=self.host_slots,
            host=HostTier(_lane(settings, self.bell), self.pools) if self.host_slots else NullTier(),
            prefetch=PrefetchRules(PrefetchPolicy(settings.prefetch), settings.prefetch_timeout_s),
        )


def engine_tiers(
    runner: Runner, sizes: Mapping[ComponentName, int], settings: EngineSettings, clock: Clock
) -> EngineTiers:
    """Allocate the host pools beside a runner's device pools. Errors: BAD_CONFIG for a host_mib that cannot be."""
    specs = runner.capability.specs
    near = {spec.name: _tensors(runner, spec.name) for spec in specs}
    slots = host_slots(specs, sizes, settings.host_mib) if settings.host_mib else {}
    far = {name: near[name].twin(count, settings.device != "cpu") for name, count in slots.items()}
    pools: dict[PoolName, SlotBytes] = {PoolName(name, TierName.DEVICE): one for name, one in near.items()}
    pools |= {PoolName(name, TierName.HOST): one for name, one in far.items()}
    return EngineTiers(pools, slots, settings, clock, Bell())


def layout_of(tiers: EngineTiers, specs: tuple[ComponentSpec, ...]) -> str:
    """What the bytes of all components mean; equal layouts may share what is stored."""
    parts = [
        f"{spec.name} {spec.rule} {tiers.pools[PoolName(spec.name, TierName.DEVICE)].layout}"
        for spec in specs
    ]
    return "; ".join(parts)


def _tensors(runner: Runner, name: ComponentName) -> SlotTensors:
    if name == MAMBA:
        return runner.states.slot_tensors()
    return runner.pages[name].slot_tensors()


def _lane(settings: EngineSettings, bell: Bell) -> Lane:
    return ThreadLane(bell.ring) if settings.device == "cpu" else CudaLane(settings.device, bell.ring)
