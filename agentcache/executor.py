"""The hands of the cache: applies effects to pools, tier and events, and makes room."""

from collections.abc import Mapping
from dataclasses import dataclass

from agentcache.clock import Clock
from agentcache.controller import UNNAMED, HybridCacheController, Names
from agentcache.errors import CacheError, Kind
from agentcache.events import EventSink
from agentcache.frontiers import Frontiers
from agentcache.pools.api import Pool
from agentcache.stats import PoolUse, Stats
from agentcache.tree.api import UnifiedTreeCore
from agentcache.turns import Ledger
from agentcache.types import ComponentName, Effects, Emit, Free, Move, PoolName, TierName, Wait
from agentcache.views import PoolCount


class Executor:
    """Does what the core decides, in order, before the core is asked again."""

    def __init__(
        self,
        core: UnifiedTreeCore,
        pools: Mapping[PoolName, Pool],
        controller: HybridCacheController,
        clock: Clock,
        events: EventSink,
        stats: Stats,
    ) -> None:
        self._core = core
        self._pools = pools
        self._controller = controller
        self._clock = clock
        self._events = events
        self._stats = stats
        self.frontiers = Frontiers()

    def apply(self, effects: Effects, names: Names = UNNAMED) -> None:
        """Free, move, emit. Infallible unless the core names slots that it does not own.

        `names` are of the path whose pieces a job takes to the external tier.
        """
        for effect in effects:
            match effect:
                case Free(pool, slots):
                    self._pools[pool].free(slots)
                    self.frontiers.freed(pool, slots)
                case Move(job):
                    self._controller.submit(job, names)
                case Emit(event):
                    self._events.publish(event)

    def settle(self) -> None:
        """Commit the jobs that ended, until none ends any more: a commit may start the next."""
        while results := self._controller.poll():
            for job, landed in ((result.job, result.landed) for result in results):
                arrived = () if job.target is TierName.EXTERNAL else landed
                self.apply(self._core.commit(job, arrived, self._clock.now_ns()).effects)

    def device_pool(self, component: ComponentName) -> Pool:
        """Errors: UNKNOWN_COMPONENT."""
        name = PoolName(component, TierName.DEVICE)
        if name not in self._pools:
            raise CacheError(
                Kind.UNKNOWN_COMPONENT,
                "this cache has no such component",
                component=component,
                known=[pool.component for pool in self._pools if pool.tier is TierName.DEVICE],
            )
        return self._pools[name]

    def make_room(
        self, wanted: Mapping[ComponentName, int], ledger: Ledger, before: Wait | None = None
    ) -> bool:
        """Evict until every pool has `wanted` slots free. False: not now, or (nothing evicted then) not at all.

        With `before` only what is expected later than a session that waits so; what could go of that has gone then.
        """
        self.settle()
        if not self._could_fit(wanted, ledger):
            return False
        for spec in self._core.config.specs:  # FULL first: what goes with it makes room in the others
            while (short := self._lacks(wanted, spec.name)) > 0:
                if not self._evict(spec.name, TierName.DEVICE, short, before):
                    break
        return max(self._short(wanted).values(), default=0) <= 0

    def make_host_room(self, wanted: Mapping[ComponentName, int], before: Wait | None = None) -> bool:
        """Evict from the host until its pools have `wanted` slots free. False: not now; what could go has gone."""
        for component, count in wanted.items():
            short = count - self._pools[PoolName(component, TierName.HOST)].free_slots
            if short > 0:
                self._evict(component, TierName.HOST, short, before)
        room = self.host_room()
        return all(count <= room[component] for component, count in wanted.items())

    def host_room(self) -> dict[ComponentName, int]:
        """Free slots per component on the host; empty without a host tier."""
        return {
            name.component: pool.free_slots
            for name, pool in self._pools.items()
            if name.tier is TierName.HOST
        }

    def use(self, count: PoolCount, ledger: Ledger) -> PoolUse:
        """Who has the slots of one pool now."""
        pool = self._pools[count.pool]
        on_device = count.pool.tier is TierName.DEVICE
        return PoolUse(
            pool=count.pool,
            size=pool.size,
            free=pool.free_slots,
            cached=count.cached,
            leased=ledger.count(count.pool.component) if on_device else 0,
            in_flight=int(self._controller.in_flight(count.pool).size),
            protected=count.protected,
            referenced=count.referenced,
        )

    def _lacks(self, wanted: Mapping[ComponentName, int], component: ComponentName) -> int:
        """How many slots are to be evicted yet; those of pieces that are leaving come free by themselves."""
        return self._short(wanted).get(component, 0) - self._controller.leaving(component)

    def _short(self, wanted: Mapping[ComponentName, int]) -> dict[ComponentName, int]:
        return {name: count - self.device_pool(name).free_slots for name, count in wanted.items()}

    def _could_fit(self, wanted: Mapping[ComponentName, int], ledger: Ledger) -> bool:
        """Whether evicting all that is not protected would do. The exact count is asked for only when it matters."""
        short = {name: lacking for name, lacking in self._short(wanted).items() if lacking > 0}
        if not self._controller.jobs_out and all(
            n <= self._surely_loose(name, ledger) for name, n in short.items()
        ):
            return True
        loose = {count.pool: count.cached - count.protected for count in self._core.stats().pools}
        return all(lacking <= loose[PoolName(name, TierName.DEVICE)] for name, lacking in short.items())

    def _surely_loose(self, component: ComponentName, ledger: Ledger) -> int:
        pool = self.device_pool(component)
        return pool.size - pool.free_slots - ledger.claimed(component)

    def _evict(self, component: ComponentName, tier: TierName, want: int, before: Wait | None) -> int:
        """Answers how many slots are free now, or will be; 0: nothing may go."""
        evicted = self._core.evict(component, tier, want, self.host_room(), self._clock.now_ns(), before)
        self._stats.evicted(evicted.effects)
        self.apply(evicted.effects)
        self.settle()
        return evicted.freed + evicted.moving


@dataclass(frozen=True, slots=True)
class MovingParts:
    """What those work with who decide what moves between tiers."""

    core: UnifiedTreeCore
    executor: Executor
    controller: HybridCacheController
    pools: Mapping[PoolName, Pool]
    clock: Clock
    ledger: Ledger
