"""What is copied down a tier behind a turn: when, of which boundary, and where to next."""

from collections import OrderedDict
from dataclasses import dataclass

from agentcache.clock import Clock
from agentcache.controller import HybridCacheController, Names
from agentcache.executor import Executor
from agentcache.keys import Key, PathNames
from agentcache.tiers.api import Keep
from agentcache.tree.api import UnifiedTreeCore, WritePolicy
from agentcache.types import Boundary, TierName

DEVICE, HOST, EXTERNAL = TierName.DEVICE, TierName.HOST, TierName.EXTERNAL
HITS_TO_WRITE = 2
REMEMBERED_BOUNDARIES = 65_536
JOBS_AT_MOST = 256
"""Copies that may wait at once; one more is left out, and a later turn over the same path makes up for it."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A path up to a boundary whose regions are worth a copy further down."""

    key: Key
    names: PathNames
    keep: Keep


class WriteBehind:
    """Copies published boundaries to the host and from there to the external tier; the scheduler never waits for it.

        write_through             each published boundary:   device ─► host ─► external
        write_through_selective   from its second hit on:    device ─► host ─► external
        write_back                host by eviction alone; each published boundary:  device ─────► external

    Without a host tier the external one is written from the device.
    """

    def __init__(
        self, core: UnifiedTreeCore, executor: Executor, controller: HybridCacheController, clock: Clock
    ) -> None:
        self._core = core
        self._executor = executor
        self._controller = controller
        self._clock = clock
        self._policy = core.config.write_policy
        self._on_the_way: dict[int, Copied] = {}
        self._hits: OrderedDict[bytes, int] = OrderedDict()

    @property
    def idle(self) -> bool:
        return not self._on_the_way

    def published(self, path: Copied, boundary: Boundary) -> None:
        """A turn has published up to here."""
        if self._policy is not WritePolicy.WRITE_THROUGH_SELECTIVE:
            self._copy(path, boundary)

    def hit(self, path: Copied, boundary: Boundary) -> None:
        """A turn resumes here."""
        if self._policy is not WritePolicy.WRITE_THROUGH_SELECTIVE or not len(path.key):
            return
        end = path.names.of(path.key)[-1]
        self._hits[end] = self._hits.pop(end, 0) + 1
        if len(self._hits) > REMEMBERED_BOUNDARIES:
            self._hits.popitem(last=False)
        if self._hits[end] == HITS_TO_WRITE:
            self._copy(path, boundary)

    def step(self) -> None:
        """Send on what has reached the host."""
        arrived = [number for number in self._on_the_way if not self._controller.is_out(number)]
        for number in arrived:
            self._send_on(self._on_the_way.pop(number))

    def forget(self) -> None:
        """Let go of what was to be sent on."""
        self._on_the_way.clear()

    def _copy(self, path: Copied, boundary: Boundary) -> None:
        if self._controller.jobs_out >= JOBS_AT_MOST:
            return
        if not self._core.config.host_tier or self._policy is WritePolicy.WRITE_BACK:
            self._store(path, boundary, DEVICE)
            return
        room = self._executor.host_room()
        planned = self._core.plan_backup(boundary, DEVICE, HOST, self._clock.now_ns(), room)
        self._executor.apply(planned.effects)
        if planned.job:
            self._on_the_way[planned.job.number] = path
        elif self._controller.has_external:
            self._send_on(path)

    def _send_on(self, path: Copied) -> None:
        """From the host out; a boundary that has left in the meantime is not missed."""
        boundary = self._core.peek(path.key, len(path.key)).any_tier
        if boundary.length == len(path.key):
            self._store(path, boundary, HOST)

    def _store(self, path: Copied, boundary: Boundary, source: TierName) -> None:
        """Plan the way out, where there is one."""
        if not self._controller.has_external:
            return
        planned = self._core.plan_backup(boundary, source, EXTERNAL, self._clock.now_ns())
        self._executor.apply(planned.effects, Names(path.names.of(path.key), path.keep))
