"""The facade that engines use, and the only place that applies effects: the tree decides, the cache executes.

    enter ──► begin ──► reserve · publish · return_slots … ──► finish
      └─────► leave                  (a request that never began)

Single threaded: everything that touches a cache runs on its engine's thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from agentcache.audit import audit
from agentcache.clock import Clock
from agentcache.controller import HybridCacheController
from agentcache.errors import CacheError, Kind
from agentcache.events import EventSink
from agentcache.executor import Executor
from agentcache.holdings import Closed, Holding, SessionView, holdings, session_view
from agentcache.keys import Key, Namespace
from agentcache.pools.api import Pool
from agentcache.sessions import NOTHING_TOLD, Opened, SessionRegistry, Ticket
from agentcache.stats import CacheStats, Stats
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.turns import ActiveTurn, Ledger, Prompt
from agentcache.types import (
    FULL,
    NO_SLOTS,
    Boundary,
    ComponentName,
    Insert,
    Inserted,
    Piece,
    PoolName,
    Released,
    ReleaseMode,
    SessionId,
    SessionTag,
    Slots,
    Tokens,
    Turn,
)
from agentcache.waits import Told

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


class UnifiedRadixCache:
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
        self._executor = Executor(
            parts.core, parts.pools, parts.controller, parts.clock, parts.events, parts.stats
        )

    # a request

    def enter(self, tag: SessionTag | None) -> Ticket:
        """Take in a request on arrival, before it queues. None: a request without a session.

        Errors  BAD_SESSION_ID, SESSION_STALE, SESSION_CLOSED (see `SessionRegistry.arrive`)
        """
        self.sweep()
        ticket = self._sessions.arrive(tag, self._clock.now_ns())
        _tell_core(self._core, self._sessions, ticket, self._clock.now_ns())
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Let go of a request that never began. Errors: LEASE_REUSED."""
        self._sessions.leave(ticket, self._clock.now_ns())
        _tell_core(self._core, self._sessions, ticket, self._clock.now_ns())

    def peek(self, prompt: Prompt) -> int:
        """How many tokens a turn with this prompt would reuse now; leaves no trace. Errors: BAD_REQUEST."""
        path, limit = prompt.asks(self.config.page_tokens)
        return self._core.peek(path, limit).device.length

    def begin(self, ticket: Ticket, prompt: Prompt) -> ActiveTurn:
        """Admit a request: match its prompt, protect what it can reuse, take its place in the session's order.

        Errors  LEASE_REUSED for a used ticket; BAD_REQUEST for tokens that are none. The ticket stays queued
        """
        if not self._sessions.is_queued(ticket):
            raise CacheError(Kind.LEASE_REUSED, "a ticket is used once: begin or leave", ticket=ticket.number)
        now = self._clock.now_ns()
        path, limit = prompt.asks(self.config.page_tokens)
        match = self._core.match(path, limit, now)
        locked = self._core.lock(match.device, now)
        start_seq = self._sessions.begin(ticket, now)
        self._ledger.open(ticket.number)
        self._ledger.lock(ticket.number, locked.pieces)
        _tell_core(self._core, self._sessions, ticket, now)
        cached = locked.boundary.length
        if prompt.reuse:
            self._stats.turn(len(prompt.tokens), cached, match.miss)
        else:
            self._stats.cold_turn()
        return ActiveTurn(
            number=ticket.number,
            start_seq=start_seq,
            ticket=ticket,
            prompt=prompt,
            path=path,
            locked=locked,
            cached_tokens=cached,
            full_tokens=match.full_tokens,
            miss=match.miss if prompt.reuse else None,
        )

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
        if not self._executor.make_room(wanted, self._ledger):
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
            gone = np.setdiff1d(slots, kept.get(component, NO_SLOTS))
            self._ledger.settle(turn.number, component, gone)
        self._executor.apply(inserted.effects)
        turn.path = max(turn.path, key, key=len)
        frontier = inserted.frontier
        if self.config.host_tier:  # the frontier may vote on the host only
            frontier = self._core.peek(key, len(key)).device
        if frontier.length > turn.boundary_tokens:
            turn.locked = self._core.relock(turn.locked.lease, frontier, now)
            self._ledger.lock(turn.number, turn.locked.pieces)
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
            _tell_core(self._core, self._sessions, turn.ticket, now)
        finally:
            self._core.unlock(turn.locked.lease, None, now)
            for component, slots in self._ledger.close(turn.number).items():
                self._executor.device_pool(component).free(slots)

    # sessions

    def open_session(
        self, session: str, *, parent: str | None = None, ttl_s: float | None = None, fence: bool = False
    ) -> Opened:
        """Open a session, or answer the open one unchanged. Errors: see `SessionRegistry.open`."""
        self.sweep()
        return self._sessions.open(session, parent, ttl_s, fence, self._clock.now_ns())

    def close_session(
        self,
        session: str,
        *,
        generation: int | None = None,
        subtree: bool = False,
        mode: ReleaseMode = ReleaseMode.RELEASE,
    ) -> Closed:
        """Close a session, with its descendants if asked, and say what that let go of; the second time, nothing.

        `ReleaseMode.PREVIEW` closes nothing and answers what a close would let go of.

        Errors  BAD_SESSION_ID, SESSION_UNKNOWN; SESSION_STALE for a `generation` that is not current. Nothing closes
        """
        self.sweep()
        self._sessions.look(session, generation, self._clock.now_ns())
        family = self._sessions.subtree(session) if subtree else ()
        closed = self._close(session, mode)
        return replace(closed, children=tuple(self._close(child, mode) for child in family))

    def session(self, session: str) -> SessionView:
        """One session as it is, with what it references. Errors: BAD_SESSION_ID, SESSION_UNKNOWN."""
        self.sweep()
        facts = self._sessions.look(session, None, self._clock.now_ns())
        return session_view(
            facts, self._release(facts.session, facts.generation, ReleaseMode.PREVIEW), self.config.specs
        )

    def sessions(self) -> tuple[SessionView, ...]:
        """The open sessions, oldest first. Cost: of a close's preview for each."""
        self.sweep()
        is_open = self._sessions.open_sessions(self._clock.now_ns())
        return tuple(
            session_view(
                facts, self._release(facts.session, facts.generation, ReleaseMode.PREVIEW), self.config.specs
            )
            for facts in is_open
        )

    def sweep(self) -> int:
        """Let idle leases run out: their references go, their data stays. Answers how many did."""
        lapsed = self._sessions.sweep(self._clock.now_ns())
        for one in lapsed:
            self._release(one.session, one.generation, ReleaseMode.RELEASE)
        return len(lapsed)

    # the whole

    def flush(self, namespace: Namespace | None = None) -> Released:
        """Drop all cached data (of one namespace). Sessions stay open and keep their generations.

        Errors  IN_USE while turns are running
        """
        released = self._core.clear(namespace, self._clock.now_ns())
        self._executor.apply(released.effects)
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
        )

    def check(self) -> None:
        """Verify that every slot has exactly one owner and every reference an open session; AssertionError if not.

        Cost O(everything); for tests.
        """
        self._core.check()
        audit(self._core.snapshot(), self._pools, self._ledger, self._controller, self._sessions)

    # inside

    def _register(self, turn: ActiveTurn, user_end_tokens: int, finish_seq: int) -> None:
        """Leave the session's marker: boundaries are voted now, since older ones may be stale."""
        ticket = turn.ticket
        assert ticket.session is not None, "only a session's turn registers"
        ends = Turn(
            frontier=_boundary(self._core, turn.path, len(turn.path)),
            alternate=_boundary(self._core, turn.path, user_end_tokens),
            start_seq=turn.start_seq,
            finish_seq=finish_seq,
            superseded=ticket.superseded,
        )
        released = self._core.reference(ticket.session, ticket.generation, ends, self._clock.now_ns())
        self._executor.apply(released.effects)

    def _close(self, session: str, mode: ReleaseMode) -> Closed:
        now = self._clock.now_ns()
        if mode is ReleaseMode.PREVIEW:
            facts = self._sessions.look(session, None, now)
        else:
            facts = self._sessions.close(session, None, now)
        released = self._release(facts.session, facts.generation, mode)
        return Closed(
            session=facts.session,
            state=facts.state,
            generation=facts.generation,
            mode=released.mode,
            markers=released.markers,
            released=holdings(released, self.config.specs),
        )

    def _release(self, session: SessionId, through_generation: int, mode: ReleaseMode) -> Released:
        released = self._core.release(session, through_generation, mode, self._clock.now_ns())
        self._executor.apply(released.effects)
        self._executor.settle()
        return released


def _tell_core(core: UnifiedTreeCore, sessions: SessionRegistry, ticket: Ticket, now_ns: int) -> None:
    """Tell the core what the session of a request is doing now."""
    if ticket.session and ticket.registers:
        core.expect(ticket.session, sessions.wait(ticket.session), now_ns)


def _by_component(pieces: tuple[Piece, ...]) -> dict[ComponentName, Slots]:
    slots: dict[ComponentName, Slots] = {}
    for piece in pieces:
        slots[piece.component] = np.concatenate([slots.get(piece.component, NO_SLOTS), piece.slots])
    return slots


def _boundary(core: UnifiedTreeCore, path: Key, limit: int) -> Boundary | None:
    """The deepest boundary not beyond `limit` on any tier; None when that is the root."""
    deepest = core.peek(path, max(0, min(limit, len(path)))).any_tier
    return deepest if deepest.length else None
