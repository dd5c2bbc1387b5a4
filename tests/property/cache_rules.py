"""Rules of the facade's machine: requests and sessions in any order over pools that are always too small.

Every slot carries the path that wrote it; a turn that is told to reuse slots checks what they hold.
"""

from collections import Counter
from contextlib import suppress
from typing import ClassVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentcache.build import build_cache
from agentcache.cache import ActiveTurn, Prompt, Ticket, UnifiedRadixCache
from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.keys import Namespace
from agentcache.records import SessionRules
from agentcache.tree.api import CoreConfig, Order
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentName,
    Piece,
    ReleaseMode,
    SessionId,
    SessionState,
    SessionTag,
    Tokens,
    full_spec,
    mamba_spec,
    swa_spec,
)
from agentcache.waits import Told, WaitKind
from tests.chosen import CORE

PAGE, GRID = 2, 4
POOLS = {FULL: 14, SWA: 8, MAMBA: 4}
SPACES = (Namespace(tenant_salt="a"), Namespace(tenant_salt="b"))
SESSIONS = st.sampled_from([SessionId(name) for name in "wxyz"])
CHUNKS = st.lists(st.sampled_from([0, 1]), min_size=1, max_size=6)


def tokens_of(chunks: list[int]) -> Tokens:
    """One grid chunk a number, so that prompts fork often."""
    return np.repeat(np.array(chunks, dtype=np.int32), GRID)


class CacheMachine(RuleBasedStateMachine):
    """One cache and whatever happens to it."""

    reached: ClassVar[Counter[str]] = Counter()
    order: ClassVar[Order] = Order.SESSION

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        config = CoreConfig(PAGE, (full_spec(), swa_spec(3), mamba_spec(GRID)), GRID, self.order)
        rules = SessionRules(ttl_s=30, reopen_after_s=3, tag_ttl_s=8, tombstones=1)
        self.cache: UnifiedRadixCache = build_cache(config, POOLS, self.clock, CORE, rules)
        self.queued: list[Ticket] = []
        self.turns: list[ActiveTurn] = []
        self.wrote: dict[tuple[ComponentName, int], tuple[Namespace, bytes]] = {}
        self.closed: Counter[SessionId] = Counter()

    # requests

    @rule(session=st.none() | SESSIONS, superseded=st.booleans())
    def enter(self, session: SessionId | None, superseded: bool) -> None:
        tag = SessionTag(session, superseded=superseded) if session else None
        ticket = self.cache.enter(tag)
        self.queued.append(ticket)
        self.reached[f"arrival {ticket.state}"] += 1

    @precondition(lambda self: self.queued)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.cache.leave(self.queued.pop(data.draw(st.integers(0, len(self.queued) - 1))))

    @precondition(lambda self: self.queued)
    @rule(data=st.data(), seconds=st.integers(-5, 60))
    def expect(self, data: st.DataObject, seconds: int) -> None:
        ticket = data.draw(st.sampled_from(self.queued))
        self.cache.expects(ticket, self.clock.now_ns() + seconds * 10**9)

    @rule(
        session=SESSIONS,
        generation=st.integers(1, 4),
        kind=st.sampled_from(WaitKind),
        gap_s=st.none() | st.floats(0, 60),
    )
    def tell(self, session: SessionId, generation: int, kind: WaitKind, gap_s: float | None) -> None:
        """More is known of a gap, or somebody thinks so: sessions that are unknown, closed, or moved on."""
        self.cache.tell_session(session, generation, Told(kind, gap_s))

    @precondition(lambda self: self.queued and len(self.turns) < 3)
    @rule(
        data=st.data(),
        chunks=CHUNKS,
        space=st.sampled_from(SPACES),
        reuse=st.sampled_from([True, True, True, False]),
    )
    def begin(self, data: st.DataObject, chunks: list[int], space: Namespace, reuse: bool) -> None:
        ticket = self.queued.pop(data.draw(st.integers(0, len(self.queued) - 1)))
        tokens = tokens_of(chunks)
        self.start(ticket, self.asked(ticket, Prompt(tokens, space, len(tokens) - 1, reuse)))

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), chunks=st.integers(1, 3), whole=st.sampled_from([True, True, False]))
    def work(self, data: st.DataObject, chunks: int, whole: bool) -> None:
        """Compute some chunks; `whole` False offers FULL alone, which is kept and then given back."""
        self.compute(data.draw(st.sampled_from(self.turns)), chunks, whole)

    @rule(session=st.none() | SESSIONS, chunks=CHUNKS)
    def whole_turn(self, session: SessionId | None, chunks: list[int]) -> None:
        """A request that nothing interrupts, in one space, so that others meet its data."""
        ticket = self.cache.enter(SessionTag(session) if session else None)
        tokens = tokens_of(chunks)
        turn = self.cache.begin(ticket, Prompt(tokens, SPACES[0], len(tokens) - 1))
        self.verify(turn, tokens)
        self.reached["hit"] += turn.cached_tokens > 0
        evicted = self.cache.stats().turns.evicted_slots
        for _ in chunks:
            self.compute(turn, 1, whole=True)
        marked = self.cache.stats().open_references > 0
        self.reached["eviction under a marker"] += (
            marked and self.cache.stats().turns.evicted_slots != evicted
        )
        self.cache.finish(turn, len(tokens) - GRID)

    @precondition(lambda self: self.turns)
    @rule(data=st.data(), user_end=st.integers(0, 30))
    def finish(self, data: st.DataObject, user_end: int) -> None:
        turn = self.turns.pop(data.draw(st.integers(0, len(self.turns) - 1)))
        late = turn.ticket.registers and turn.ticket.generation != self.generation(turn.ticket.session)
        before = self.cache.stats().open_references
        self.cache.finish(turn, user_end)
        if late:
            assert self.cache.stats().open_references == before, "a late completion registered"
            self.reached["late completion"] += 1

    # sessions

    @rule(session=SESSIONS, fence=st.booleans())
    def open(self, session: SessionId, fence: bool) -> None:
        opened = self.cache.open_session(session, fence=fence)
        self.reached["reopened"] += opened.created and self.closed[session] > 0

    @rule(
        child=SESSIONS, parent=SESSIONS, asks=st.booleans(), goes=st.sampled_from([None, None, *ReleaseMode])
    )
    def fork(self, child: SessionId, parent: SessionId, asks: bool, goes: ReleaseMode | None) -> None:
        """By a request or an open; and perhaps the parent is closed at once, which takes nothing of it."""
        before = self.markers(child)
        if asks:
            self.queued.append(self.cache.enter(SessionTag(child, parent=parent, fork=True)))
        else:
            with suppress(CacheError):  # unknown, closed, or itself
                self.cache.open_session(child, parent=parent, fork=True)
        inherited = self.markers(child)
        assert inherited - before in (0, 1)
        self.reached["forked"] += inherited > before
        if goes and child != parent:
            self.close(parent, goes)
            assert self.markers(child) == inherited
            self.reached["heir of a closed session"] += inherited > before

    @rule(session=SESSIONS, mode=st.sampled_from(ReleaseMode))
    def close(self, session: SessionId, mode: ReleaseMode) -> None:
        try:
            before = self.cache.session(session)
        except CacheError as error:
            if error.kind is not Kind.SESSION_UNKNOWN:
                raise
            self.reached["tombstone forgotten"] += self.closed[session] > 0
            return
        closed = self.cache.close_session(session, mode=mode)
        assert closed.released == before.held
        if mode is ReleaseMode.PREVIEW:
            return
        assert self.cache.session(session).held == ()
        self.reached["double close"] += before.state is SessionState.CLOSED
        self.reached["close after reopening"] += (
            before.state is SessionState.OPEN and self.closed[session] > 0
        )
        self.closed[session] += before.state is not SessionState.CLOSED

    @rule(seconds=st.sampled_from([0.5, 4.0, 9.0, 31.0]))
    def wait(self, seconds: float) -> None:
        before = {view.session for view in self.cache.sessions()}
        self.clock.advance(int(seconds * 1e9))
        self.reached["expired"] += self.cache.sweep() > 0
        after = {view.session: view.parent for view in self.cache.sessions()}
        waited_for = set(after.values()) & before
        assert waited_for <= after.keys(), "a parent idled out under an open child"
        self.reached["kept by a child"] += bool(waited_for)

    @rule(really=st.sampled_from([False, False, False, True]))
    def flush(self, really: bool) -> None:
        if not really:
            return
        try:
            self.cache.flush()
        except CacheError as error:
            if error.kind is not Kind.IN_USE:
                raise
            assert self.turns

    # what must hold

    @invariant()
    def one_owner(self) -> None:
        self.cache.check()
        stats = self.cache.stats()
        assert stats.active_turns == len(self.turns)
        for use in stats.pools:
            assert use.free + use.cached + use.leased + use.in_flight == use.size

    def teardown(self) -> None:
        for turn in self.turns:
            self.cache.finish(turn, 0)
        for ticket in self.queued:
            self.cache.leave(ticket)
        for view in self.cache.sessions():
            assert view.queued + view.running == 0
            self.cache.close_session(view.session)
        stats = self.cache.stats()
        assert (stats.open_references, stats.active_turns) == (0, 0)
        self.cache.flush()
        self.cache.check()
        assert all(use.free == use.size for use in self.cache.stats().pools), "slots were leaked"

    # inside

    def asked(self, ticket: Ticket, prompt: Prompt) -> Prompt:
        """What the request asks for that begins now."""
        return prompt

    def start(self, ticket: Ticket, prompt: Prompt) -> ActiveTurn:
        turn = self.cache.begin(ticket, prompt)
        self.turns.append(turn)
        self.verify(turn, prompt.tokens)
        self.reached["hit"] += turn.cached_tokens > 0
        return turn

    def compute(self, turn: ActiveTurn, chunks: int, whole: bool) -> None:
        start, tokens = turn.boundary_tokens, self.path(turn)
        end = min(len(tokens), start + chunks * GRID)
        if end <= start or not turn.prompt.reuse:
            return
        leased = self.cache.reserve(turn, {FULL: (end - start) // PAGE, SWA: 2, MAMBA: 1})
        if leased is None:
            self.reached["short"] += 1
            return
        pieces = (Piece(SWA, end - 2 * PAGE, end, leased[SWA]), Piece(MAMBA, end, end, leased[MAMBA]))
        for piece in (Piece(FULL, start, end, leased[FULL]), *pieces):
            self.write(turn, piece, tokens)
        answer = self.cache.publish(turn, tokens[:end], leased[FULL], pieces if whole else ())
        self.reached["kept"] += bool(answer.kept)
        self.reached["duplicates"] += whole and not answer.taken
        for piece in answer.kept:
            self.cache.return_slots(turn, piece.component, piece.slots)
        self.verify(turn, tokens)

    def path(self, turn: ActiveTurn) -> Tokens:
        """The prompt and what the model says then: one chunk of sevens."""
        return np.append(turn.prompt.tokens, np.full(GRID, 7, dtype=np.int32))

    def markers(self, session: SessionId) -> int:
        """How many a session has, 0 for one that is not known."""
        try:
            return self.cache.session(session).markers
        except CacheError:
            return 0

    def generation(self, session: SessionId | None) -> int:
        """The open generation of a session, 0 when it is not open."""
        return next((view.generation for view in self.cache.sessions() if view.session == session), 0)

    def write(self, turn: ActiveTurn, piece: Piece, tokens: Tokens) -> None:
        for end, slot in zip(_ends(piece), piece.slots.tolist(), strict=True):
            self.wrote[piece.component, slot] = (turn.prompt.namespace, tokens[:end].tobytes())

    def verify(self, turn: ActiveTurn, tokens: Tokens) -> None:
        for piece in turn.locked.pieces:
            for end, slot in zip(_ends(piece), piece.slots.tolist(), strict=True):
                holds = self.wrote[piece.component, slot]
                assert holds == (turn.prompt.namespace, tokens[:end].tobytes()), f"{piece} holds another path"


def _ends(piece: Piece) -> list[int]:
    if piece.start == piece.end:
        return [piece.end] * piece.slots.size
    return list(range(piece.start + PAGE, piece.end + PAGE, PAGE))
