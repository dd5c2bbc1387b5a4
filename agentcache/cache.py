"""The facade that engines use, and the only place that applies effects: the tree decides, the cache executes.

    enter ──► begin ──► ready? ──► reserve · publish · return_slots … ──► finish
      └─────► leave                  (a request that never began)

    tiers.expect ──► tiers.arrived?     before begin: look in the external tier;     tiers.step: now and then

Single threaded: everything that touches a cache runs on its engine's thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from agentcache.audit import audit
from agentcache.bringing import Bringer
from agentcache.clock import Clock
from agentcache.controller import HybridCacheController
from agentcache.errors import CacheError, Kind
from agentcache.events import EventSink
from agentcache.executor import Executor, MovingParts
from agentcache.frontiers import lost_tiers
from agentcache.holdings import Closed, Holding, SessionView
from agentcache.inheritance import Inheritance, deepest
from agentcache.keys import Namespace
from agentcache.paths import Paths
from agentcache.pools.api import Pool
from agentcache.prefetch import DEFAULT_RULES, PrefetchRules
from agentcache.returning import Returning
from agentcache.session_calls import SessionCalls
from agentcache.sessions import Opened, SessionRegistry, Ticket
from agentcache.stats import CachedTokens, CacheStats, Stats
from agentcache.tiering import Tiering
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.turn_history import TurnHistory
from agentcache.turns import ActiveTurn, Ledger, Prompt
from agentcache.types import (
    FULL,
    NO_SLOTS,
    ComponentName,
    Insert,
    Inserted,
    Piece,
    PoolName,
    Released,
    SessionTag,
    Slots,
    Tokens,
    Turn,
)
from agentcache.views import Outline
from agentcache.waits import NOTHING_TOLD, Told
from agentcache.witness import Witness

__all__ = [
    "ActiveTurn",
    "CacheParts",
    "Closed",
    "Holding",
    "Opened",
    "Prompt",
    "SessionView",
    "Ticket",
    "UnifiedRadixCache",
]


@dataclass(frozen=True, slots=True)
class CacheParts:
    """What a cache is made of; `build.py` chooses."""

    core: UnifiedTreeCore
    pools: Mapping[PoolName, Pool]
    controller: HybridCacheController
    sessions: SessionRegistry
    clock: Clock
    events: EventSink
    stats: Stats
    prefetch: PrefetchRules = DEFAULT_RULES


class UnifiedRadixCache(SessionCalls):
    """One tree, its pools and its sessions. Every refused call leaves all three as they were."""

    def __init__(self, parts: CacheParts) -> None:
        self.config: CoreConfig = parts.core.config
        self._core = parts.core
        self._pools = parts.pools
        self._controller = parts.controller
        self._sessions = parts.sessions
        self._clock = parts.clock
        self._stats = parts.stats
        self._ledger = Ledger()
        self.paths = Paths()
        self._inheritance = Inheritance(parts.core, self.paths)
        self._executor = Executor(
            parts.core, parts.pools, parts.controller, parts.clock, parts.events, parts.stats
        )
        self._executor.frontiers.lost = partial(lost_tiers, parts.core, self.paths)
        self.history = TurnHistory(parts.core, self.paths)
        self.witness = Witness(self.history, self._executor.frontiers, parts.sessions.shown, parts.clock)
        moving = MovingParts(
            parts.core, self._executor, parts.controller, parts.pools, parts.clock, self._ledger
        )
        self.tiers = Tiering(moving, parts.prefetch)
        bringer = Bringer(moving, self.tiers.prefetcher)
        self.returning = Returning(bringer, self.paths, parts.clock)

    # a request

    def enter(self, tag: SessionTag | None) -> Ticket:
        """Take in a request on arrival, before it queues. None: a request without a session.

        Errors  BAD_SESSION_ID, SESSION_STALE, SESSION_CLOSED (see `SessionRegistry.arrive`)
        """
        self.sweep()
        ticket = self._sessions.arrive(tag, self._clock.now_ns())
        if tag and tag.fork and ticket.registers:
            self._fork(tag.session, ticket.generation)
        self._tell_of(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Let go of a request that never began. Errors: LEASE_REUSED."""
        self._sessions.leave(ticket, self._clock.now_ns())
        self.tiers.dismiss(ticket)
        self._tell_of(ticket)

    def expects(self, ticket: Ticket, start_ns: int) -> None:
        """A queued request is expected to begin at `start_ns` of the clock, rather than in order of arrival.

        Errors  LEASE_REUSED unless it is queued
        """
        self._sessions.expects(ticket, start_ns)
        self._tell_of(ticket)

    def peek(self, prompt: Prompt) -> int:
        """How many tokens a turn with this prompt would reuse now, of device and host; leaves no trace.

        Errors  BAD_REQUEST
        """
        path, limit = prompt.asks(self.config.page_tokens)
        return self._core.peek(path, limit).any_tier.length

    def begin(self, ticket: Ticket, prompt: Prompt) -> ActiveTurn:
        """Admit a request: match its prompt, protect what it can reuse, take its place in the session's order.

        What of its prefix is on the host begins to move to the device: the turn goes on once it is `ready`.

        Errors  LEASE_REUSED for a used ticket; BAD_REQUEST for tokens that are none. The ticket stays queued
        """
        if not self._sessions.is_queued(ticket):
            raise CacheError(Kind.LEASE_REUSED, "a ticket is used once: begin or leave", ticket=ticket.number)
        path, limit = prompt.asks(self.config.page_tokens)
        names = self.tiers.names(ticket, path)
        brought = self.tiers.dismiss(ticket)
        now = self._clock.now_ns()
        match = self._core.match(path, limit, now)
        locked, loading = self.tiers.lock(match)
        start_seq = self._sessions.begin(ticket, now)
        self._ledger.open(ticket.number)
        self._ledger.lock(ticket.number, locked.pieces)
        self._tell_of(ticket)
        turn = ActiveTurn(
            number=ticket.number,
            start_seq=start_seq,
            ticket=ticket,
            prompt=prompt,
            path=path,
            locked=locked,
            full_tokens=match.full_tokens,
            miss=match.miss if prompt.reuse else None,
            names=names,
            loading=loading,
            brought=brought,
        )
        if not loading:
            self._resume(turn, match.device.length)
        return turn

    def ready(self, turn: ActiveTurn, alone: bool = False) -> bool:
        """Whether the turn's prefix is on the device, or as much of it as will come; asked again until it is.

        `boundary_tokens` and `cached` are final then. `alone`: no other turn will end and make room for the load.

        Errors  LEASE_REUSED for a finished turn
        """
        self._ledger.require_open(turn.number)
        if not turn.loading:
            return True
        if not self.tiers.loaded(turn, alone):
            if self._controller.held(turn.loading):  # no room for it
                self.returning.stop()
            return False
        turn.loading, on_device = 0, turn.boundary_tokens
        match = self._core.peek(*turn.prompt.asks(self.config.page_tokens))
        turn.locked = self._core.relock(turn.locked.lease, match.device, self._clock.now_ns())
        turn.miss = match.miss
        self._ledger.lock(turn.number, turn.locked.pieces)
        self._resume(turn, on_device)
        return True

    def reserve(
        self, turn: ActiveTurn, need: Mapping[ComponentName, int]
    ) -> Mapping[ComponentName, Slots] | None:
        """Lease `need` slots to the turn, evicting in the core's order; None when that is too much just now.

        All or nothing: None allocates nothing, and evicts nothing where that could not have been enough. A cold turn
        gets empty arrays.

        Errors  UNKNOWN_COMPONENT; SLOT_MISUSE for a negative count; LEASE_REUSED for a finished turn
        """
        self._ledger.require_open(turn.number)
        for component, count in need.items():
            if count < 0:
                raise CacheError(Kind.SLOT_MISUSE, "cannot reserve fewer than 0 slots", component=component)
            self._executor.device_pool(component)
        wanted = {component: count if turn.prompt.reuse else 0 for component, count in need.items()}
        turn.refused = not self._executor.make_room(wanted, self._ledger)
        if turn.refused:
            self.returning.stop()
            return None
        leased: dict[ComponentName, Slots] = {}
        for component, count in wanted.items():
            slots = self._executor.device_pool(component).alloc(count)
            assert slots is not None, "room was made for these slots"
            self._ledger.lease(turn.number, component, slots)
            leased[component] = slots
        return leased

    def return_slots(self, turn: ActiveTurn, component: ComponentName, slots: Slots) -> None:
        """Give leased slots back early. Errors: SLOT_MISUSE unless the turn leases them; LEASE_REUSED."""
        self._ledger.require_open(turn.number)
        pool = self._executor.device_pool(component)
        self._ledger.require_leased(turn.number, component, slots)
        self._ledger.settle(turn.number, component, slots)
        pool.free(slots)

    def publish(self, turn: ActiveTurn, tokens: Tokens, full: Slots, pieces: tuple[Piece, ...]) -> Inserted:
        """Offer computed data to the tree and move the turn's lock forward to the frontier.

        Shapes  tokens: int32[n], the path from the root, n whole pages; full: int32[(n - boundary_tokens) / page];
                pieces: window intervals and checkpoints in that range; all slots leased to the turn
        Caller  slots in `kept` stay leased: offer them again later with more tokens, or return them
        Errors  UNALIGNED, BAD_INSERT, UNKNOWN_COMPONENT; SLOT_MISUSE for a slot not leased; LEASE_REUSED. Nothing moves
        """
        self._ledger.require_open(turn.number)
        offered = (Piece(FULL, turn.boundary_tokens, len(tokens), full), *pieces)
        if not turn.prompt.reuse:
            return Inserted(turn.locked.boundary, taken=(), kept=offered)
        by_component = _by_component(offered)
        for component, slots in by_component.items():
            self._ledger.require_leased(turn.number, component, slots)
        key = turn.extended(tokens, self.config.page_tokens)
        now = self._clock.now_ns()
        offer = Insert(full, pieces, after=turn.locked.lease, priority=turn.prompt.priority)
        inserted = self._core.insert(key, offer, now)
        kept = _by_component(inserted.kept)
        for component, slots in by_component.items():
            gone = np.setdiff1d(slots, kept[component]) if component in kept else slots
            self._ledger.settle(turn.number, component, gone)
        self._executor.apply(inserted.effects)
        turn.path = max(turn.path, key, key=len)
        frontier = inserted.frontier
        if self.config.host_tier:  # the frontier may vote on the host only
            frontier = self._core.peek(key, len(key)).device
        if frontier.length > turn.boundary_tokens:
            turn.locked = self._core.relock(turn.locked.lease, frontier, now)
            self._ledger.lock(turn.number, turn.locked.pieces)
            turn.published.append(turn.boundary_tokens)
        return inserted

    def finish(self, turn: ActiveTurn, user_end_tokens: int, told: Told = NOTHING_TOLD) -> None:
        """End a turn, aborted or complete: register it for its session, unlock, free what it still leases.

        It registers unless its session was closed, reopened or moved on meanwhile; what it published stays either way.

        Units   user_end_tokens: where the last user message ends in the prompt; told: what is known of the gap after it
        Errors  LEASE_REUSED for a finished turn
        """
        self._ledger.require_open(turn.number)
        now = self._clock.now_ns()
        completion = self._sessions.complete(turn.ticket, now, told)
        try:
            if completion.registers and turn.prompt.reuse:
                self._register(turn, user_end_tokens, completion.finish_seq)
            self._tell_of(turn.ticket)
            self.history.finished(turn)
            self.tiers.ended(turn)
        finally:
            self.tiers.let_go(turn)
            self._core.unlock(turn.locked.lease, None, now)
            for component, slots in self._ledger.close(turn.number).items():
                self._executor.device_pool(component).free(slots)

    # the whole

    def flush(self, namespace: Namespace | None = None) -> Released:
        """Drop all cached data (of one namespace) on device and host. Sessions stay open and keep their generations.

        What lies in an external tier stays: others may share it. Waits until what is on its way has ended.

        Errors  IN_USE while turns are running
        """
        if len(self._ledger):
            raise CacheError(Kind.IN_USE, "turns are running; flush when idle", turns=len(self._ledger))
        self.returning.stop()
        self.tiers.drain()
        released = self._core.clear(namespace, self._clock.now_ns())
        self._executor.apply(released.effects)
        self.history.flushed(wholly=not namespace)
        return released

    def stats(self) -> CacheStats:
        """What happened since the start and what is there now. Cost O(pools + leased slots)."""
        core = self._core.stats()
        return CacheStats(
            turns=self._stats.counts(),
            sessions=self._sessions.counts(),
            pools=tuple(self._executor.use(count, self._ledger) for count in core.pools),
            active_turns=len(self._ledger),
            open_references=core.markers,
            tree_pages=core.pages,
            external=self.tiers.external(),
            jobs_in_flight=self._controller.jobs_out,
            prefetched_tokens=self.tiers.prefetcher.tokens_total,
            returns=replace(self.returning.counts),
        )

    def outline(self, limit: int) -> tuple[Outline, int]:
        """The branches of the tree that were used last, and the time. Cost: as `Inspect.outline`."""
        return self._core.outline(limit), self._clock.now_ns()

    def check(self) -> None:
        """Verify that every slot has exactly one owner and every reference an open session; AssertionError if not.

        Cost O(everything); for tests.
        """
        self._core.check()
        self.paths.check(self._sessions.may_hold)
        self._inheritance.check(self._sessions.may_hold)
        audit(self._core.snapshot(), self._pools, self._ledger, self._controller, self._sessions)

    # inside

    def _resume(self, turn: ActiveTurn, on_device: int) -> None:
        """Account for what the turn resumes from: `on_device` tokens of it were on the device when it began."""
        turn.cached = _by_tier(turn, on_device)
        turn.found = self.history.found(turn, self._clock.now_ns())
        if not turn.prompt.reuse:
            self._stats.cold_turn()
            return
        self._stats.turn(len(turn.prompt.tokens), turn.cached, turn.found)
        self.tiers.resumed(turn)

    def _tell_of(self, ticket: Ticket) -> None:
        if ticket.session and ticket.registers:
            self._tell(ticket.session)

    def _register(self, turn: ActiveTurn, user_end_tokens: int, finish_seq: int) -> None:
        """Leave the session's marker: boundaries are voted now, since older ones may be stale."""
        ticket = turn.ticket
        assert ticket.session is not None, "only a session's turn registers"
        ends = Turn(
            frontier=deepest(self._core, turn.path, len(turn.path)),
            alternate=deepest(self._core, turn.path, user_end_tokens),
            start_seq=turn.start_seq,
            finish_seq=finish_seq,
            superseded=self._inheritance.takes_over(ticket.session) or ticket.superseded,
        )
        released = self._core.reference(ticket.session, ticket.generation, ends, self._clock.now_ns())
        self._executor.apply(released.effects)
        frontier = ends.frontier.length if ends.frontier else 0
        self.paths.put(ticket.session, ticket.generation, turn.path, frontier)
        self._executor.frontiers.hold(ticket.session, ticket.generation, turn.locked.pieces)
        self.tiers.held(turn, ends.frontier)


def _by_tier(turn: ActiveTurn, on_device: int) -> CachedTokens:
    """Where the tokens before a turn's boundary were; what was brought for it is external, wherever it landed."""
    total, (start, end) = turn.boundary_tokens, turn.brought
    near = min(on_device, total)
    external = max(0, min(end, total) - start)
    device = near - max(0, min(end, near) - start)
    return CachedTokens(device, total - device - external, external)


def _by_component(pieces: tuple[Piece, ...]) -> dict[ComponentName, Slots]:
    slots: dict[ComponentName, Slots] = {}
    for piece in pieces:
        slots[piece.component] = np.concatenate([slots.get(piece.component, NO_SLOTS), piece.slots])
    return slots
