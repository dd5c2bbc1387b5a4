"""`ReferenceCore`: the tree contract, written to be read. The specification that the native core is judged by."""

import threading
from collections.abc import Sequence

from agentcache.errors import CacheError, Kind
from agentcache.keys import Key, Namespace
from agentcache.tree.api import CoreConfig, Order
from agentcache.tree.reference import checking
from agentcache.tree.reference.alone import alone
from agentcache.tree.reference.arguments import demand_numbers, demand_wait, room_of, saturated
from agentcache.tree.reference.backing import plan_fitting
from agentcache.tree.reference.changes import Changes
from agentcache.tree.reference.closing import demote_released, drop_released
from agentcache.tree.reference.component import TreeComponent, component_for
from agentcache.tree.reference.eviction import Eviction
from agentcache.tree.reference.inserting import insert
from agentcache.tree.reference.jobs import JobTable
from agentcache.tree.reference.leases import LeaseTable
from agentcache.tree.reference.markers import MarkerBook, held_slots
from agentcache.tree.reference.matching import match
from agentcache.tree.reference.node import path_to
from agentcache.tree.reference.outlining import outline
from agentcache.tree.reference.rooms import HostRoom
from agentcache.tree.reference.trie import PageTrie
from agentcache.tree.reference.viewing import snapshot, stats
from agentcache.tree.shapes import demand_shape
from agentcache.types import (
    FULL,
    Boundary,
    Committed,
    ComponentName,
    Evicted,
    Insert,
    Inserted,
    Job,
    Lease,
    Locked,
    MatchResult,
    Piece,
    Planned,
    Released,
    ReleaseMode,
    SessionId,
    TierName,
    Turn,
    Wait,
)
from agentcache.views import CoreStats, Outline, Snapshot

DEVICE, HOST, EXTERNAL = TierName.DEVICE, TierName.HOST, TierName.EXTERNAL


@alone
class ReferenceCore:
    """The obvious tree: one node a page. `components` replaces those that the specs' rules name.

    Errors  CacheError(BAD_CONFIG) for a config that cannot be (shapes.py)
    """

    def __init__(self, config: CoreConfig, components: Sequence[TreeComponent] | None = None) -> None:
        demand_shape(config)
        self.running = threading.Lock()
        self._config = config
        built = tuple(components or (component_for(spec, config.page_tokens) for spec in config.specs))
        self._trie = PageTrie(config, built)
        self._leases = LeaseTable(self._trie)
        self._jobs = JobTable(self._trie)
        self._markers = MarkerBook(self._trie)

    @property
    def config(self) -> CoreConfig:
        return self._config

    # -- Lookup

    def match(self, key: Key, limit: int, now_ns: int) -> MatchResult:
        self._trie.begin(now_ns)
        result = match(self._trie, key, limit)
        node = self._trie.node(result.any_tier)
        self._trie.touch(node, node.end, now_ns, hit=True)
        return result

    def peek(self, key: Key, limit: int) -> MatchResult:
        return match(self._trie, key, limit)

    def insert(self, key: Key, offer: Insert, now_ns: int) -> Inserted:
        self._trie.begin(now_ns)
        return insert(self._trie, self._leases, key, offer, now_ns)

    def lock(self, boundary: Boundary, now_ns: int) -> Locked:
        self._trie.begin(now_ns)
        return self._leases.lock(boundary)

    def relock(self, lease: Lease, boundary: Boundary, now_ns: int) -> Locked:
        self._trie.begin(now_ns)
        return self._leases.relock(lease, boundary)

    def unlock(self, lease: Lease, component: ComponentName | None, now_ns: int) -> None:
        self._trie.begin(now_ns)
        self._leases.unlock(lease, component)

    def evict(
        self,
        component: ComponentName,
        tier: TierName,
        want: int,
        room: dict[ComponentName, int],
        now_ns: int,
        before: Wait | None = None,
    ) -> Evicted:
        self._trie.begin(now_ns)
        if before:
            demand_wait(before)
        self._trie.component(component)
        want = max(0, saturated(want))
        if tier not in self._config.tiers or not want:
            return Evicted(0, 0, want)
        self._markers.advance(now_ns)
        changes = Changes()
        eviction = Eviction(self._trie, self._jobs, component, (tier, room_of(room)), changes)
        freed, moving = eviction.run(want, before)
        _close_call(self._trie, self._markers, changes)
        effects = changes.effects(self._config)
        return Evicted(freed, moving, max(0, want - freed - moving), effects)

    # -- Tiering

    def plan_backup(
        self,
        boundary: Boundary,
        source: TierName,
        target: TierName,
        now_ns: int,
        room: dict[ComponentName, int] | None = None,
    ) -> Planned:
        self._trie.begin(now_ns)
        node = self._trie.node(boundary)
        routes = ((DEVICE, HOST), (DEVICE, EXTERNAL), (HOST, EXTERNAL))
        if (source, target) not in routes or not {source, target} <= {*self._config.tiers, EXTERNAL}:
            raise CacheError(
                Kind.BAD_INSERT, "a backup goes down to a tier that is there", source=source, target=target
            )
        changes = Changes()
        if room is None or target is not HOST:
            job = self._jobs.plan_region(node, source, target, changes)
        else:
            self._markers.advance(now_ns)
            free = HostRoom(self._trie, room_of(room), changes)
            job = plan_fitting(self._trie, self._jobs, node, free, changes)
        _close_call(self._trie, self._markers, changes)
        return Planned(job, None, changes.effects(self._config))

    def plan_load(self, boundary: Boundary, source: TierName, target: TierName, now_ns: int) -> Planned:
        self._trie.begin(now_ns)
        node = self._trie.node(boundary)
        if (source, target) != (HOST, DEVICE) or HOST not in self._config.tiers:
            raise CacheError(
                Kind.BAD_INSERT,
                "the tree plans loads from host to device; graft what comes from outside with insert(tier=host)",
                source=source,
                target=target,
            )
        self._jobs.demand_region(node)
        changes = Changes()
        job = self._jobs.plan_region(node, source, target, changes)
        device_end = max((at.end for at in path_to(node) if at.has(FULL, DEVICE)), default=0)
        lease = self._leases.lock_device_part(node, device_end)
        return Planned(job, lease, changes.effects(self._config))

    def commit(self, job: Job, landed: tuple[Piece, ...], now_ns: int) -> Committed:
        self._trie.begin(now_ns)
        changes = Changes()
        settled = self._jobs.commit(job, landed, changes)
        _close_call(self._trie, self._markers, changes)
        return Committed(settled.landed, settled.dropped, changes.effects(self._config))

    # -- Sessions

    def reference(self, session: SessionId, generation: int, turn: Turn, now_ns: int) -> Released:
        self._trie.begin(now_ns)
        demand_numbers(generation=generation, start_seq=turn.start_seq, finish_seq=turn.finish_seq)
        nodes = (self._trie.named(turn.frontier), self._trie.named(turn.alternate))
        gone = self._markers.register(session, generation, turn, nodes)
        return Released(ReleaseMode.RELEASE, held_slots(gone, self._trie), 0)

    def release(
        self,
        session: SessionId,
        through_generation: int,
        mode: ReleaseMode,
        now_ns: int,
    ) -> Released:
        self._trie.begin(now_ns)
        changes = Changes()
        ending = [
            marker for marker in self._markers.markers(session) if marker.generation <= through_generation
        ]
        if mode is ReleaseMode.PREVIEW:
            gone = self._markers.would_drop(session, through_generation)
            return Released(mode, held_slots(gone, self._trie, own=1), len(ending))
        if mode is ReleaseMode.DEMOTE and not self._config.host_tier:
            mode = ReleaseMode.RELEASE
        gone = self._markers.drop_through(session, through_generation)
        held = held_slots(gone, self._trie)
        if mode is ReleaseMode.DROP:
            drop_released(self._trie, gone, changes)
        elif mode is ReleaseMode.DEMOTE:
            demote_released(self._trie, self._jobs, gone, changes)
        _close_call(self._trie, self._markers, changes)
        return Released(mode, held, len(ending), changes.effects(self._config))

    def expect(self, session: SessionId, wait: Wait, now_ns: int) -> None:
        self._trie.begin(now_ns)
        demand_wait(wait)
        if self._config.order is Order.ERT:
            self._markers.expect(session, wait)

    # -- Inspect

    def snapshot(self) -> Snapshot:
        return snapshot(self._trie, self._markers, len(self._leases), len(self._jobs))

    def outline(self, limit: int) -> Outline:
        return outline(self._trie, self._markers, limit)

    def check(self) -> None:
        checking.check(self._trie, self._leases, self._jobs, self._markers)

    def stats(self) -> CoreStats:
        return stats(self._trie, self._markers, len(self._leases), len(self._jobs))

    def clear(self, namespace: Namespace | None, now_ns: int) -> Released:
        self._trie.begin(now_ns)
        if len(self._leases) or len(self._jobs):
            raise CacheError(
                Kind.IN_USE,
                "requests or transfers are running; clear when idle",
                leases=len(self._leases),
                jobs=len(self._jobs),
            )
        changes, markers = Changes(), self._markers.size
        doomed = [node for node in self._trie.nodes() if namespace in (None, node.namespace)]
        everywhere = {spec.name: set(doomed) for spec in self._config.specs}
        held = held_slots(everywhere, self._trie, own=len(self._markers.sessions()))
        for node in doomed:
            if node.above is self._trie.origin:
                self._trie.remove(node, changes)
        if namespace is None:
            changes.cleared(self._config.tiers)
        _close_call(self._trie, self._markers, changes)
        effects = changes.effects(self._config)
        return Released(ReleaseMode.DROP, held, markers - self._markers.size, effects)


def _close_call(trie: PageTrie, markers: MarkerBook, changes: Changes) -> None:
    """End a call that may have dropped data: stale boundaries, markers that no longer vote."""
    trie.epoch += changes.dropped
    markers.repair(changes.disturbed)
