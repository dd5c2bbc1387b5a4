"""What is copied down a tier behind a turn: when, and of which boundary."""

from collections import OrderedDict
from dataclasses import dataclass

from agentcache.clock import Clock
from agentcache.controller import HybridCacheController, Names
from agentcache.executor import Executor
from agentcache.keys import Key, PathNames
from agentcache.tiers.api import Keep
from agentcache.tree.api import UnifiedTreeCore, WritePolicy
from agentcache.types import TierName

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
    """Copies boundaries to the host and to the external tier; the scheduler never waits for it.

        write_through             what a turn has published, when it ends:       device ─► host, device ─► external
        write_through_selective   a boundary, when a turn resumes there again:   device ─► host, device ─► external
        write_back                what a turn has published, when it ends:       device ─► external
                                  and the host by eviction alone

    The host takes only what ranks high enough (design §7), which is known when the turn has registered. What lies
    outside does not depend on that: a page left out there would end every path through it.
    """

    def __init__(
        self, core: UnifiedTreeCore, executor: Executor, controller: HybridCacheController, clock: Clock
    ) -> None:
        self._core = core
        self._executor = executor
        self._controller = controller
        self._clock = clock
        self._policy = core.config.write_policy
        self._hits: OrderedDict[bytes, int] = OrderedDict()

    def published(self, path: Copied) -> None:
        """A turn that ends has published this."""
        if self._policy is not WritePolicy.WRITE_THROUGH_SELECTIVE:
            self._copy(path)

    def hit(self, path: Copied) -> None:
        """A turn resumes here."""
        if self._policy is not WritePolicy.WRITE_THROUGH_SELECTIVE or not len(path.key):
            return
        end = path.names.of(path.key)[-1]
        self._hits[end] = self._hits.pop(end, 0) + 1
        if len(self._hits) > REMEMBERED_BOUNDARIES:
            self._hits.popitem(last=False)
        if self._hits[end] == HITS_TO_WRITE:
            self._copy(path)

    def _copy(self, path: Copied) -> None:
        if self._controller.jobs_out >= JOBS_AT_MOST:
            return
        if self._controller.has_external:
            self._plan(path, TierName.EXTERNAL)
        if self._core.config.host_tier and self._policy is not WritePolicy.WRITE_BACK:
            self._plan(path, TierName.HOST)

    def _plan(self, path: Copied, target: TierName) -> None:
        """Voted again each time: room made for one copy may have taken what another needs."""
        boundary = self._core.peek(path.key, len(path.key)).device
        if boundary.length < len(path.key):
            return  # part of it has left in the meantime
        now, room = self._clock.now_ns(), self._executor.host_room()
        planned = self._core.plan_backup(boundary, TierName.DEVICE, target, now, room)
        outside = target is TierName.EXTERNAL
        names = Names(path.names.of(path.key), path.keep) if outside else Names()
        self._executor.apply(planned.effects, names)
