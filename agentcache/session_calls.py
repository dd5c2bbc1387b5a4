"""The session half of the facade: open, look, close, expire, and what each lets go of."""

from dataclasses import replace

from agentcache.clock import Clock
from agentcache.executor import Executor
from agentcache.holdings import SHOWN, Closed, LetGo, SessionView, holdings, session_view
from agentcache.inheritance import Inheritance
from agentcache.paths import Paths
from agentcache.records import Paused, nanoseconds
from agentcache.returning import Returning
from agentcache.routed import KnownSession, Parting
from agentcache.sessions import Opened, Opening, SessionRegistry
from agentcache.tiering import Tiering
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.types import Released, ReleaseMode, SessionId
from agentcache.waits import Told

AT_ONCE_S = 1.0
"""Who says that a session is back within so many seconds, or goes on, has its data brought at once."""


class SessionCalls:
    """Sessions of one cache. Its other half is `UnifiedRadixCache`, which makes both."""

    config: CoreConfig
    tiers: Tiering
    paths: Paths
    returning: Returning
    _core: UnifiedTreeCore
    _executor: Executor
    _sessions: SessionRegistry
    _clock: Clock
    _inheritance: Inheritance

    def open_session(
        self,
        session: str,
        *,
        parent: str | None = None,
        ttl_s: float | None = None,
        fence: bool = False,
        on_close: ReleaseMode = ReleaseMode.RELEASE,
        fork: bool = False,
    ) -> Opened:
        """Open a session, or answer the open one unchanged. `fork`: it inherits its parent's path (decision 0020).

        Errors  see `SessionRegistry.open`
        """
        self.sweep()
        opening = Opening(parent, ttl_s, fence, on_close)
        opened = self._sessions.open(session, opening, self._clock.now_ns())
        if fork:
            self._fork(opened.session, opened.generation)
        return opened

    def close_session(
        self,
        session: str,
        *,
        generation: int | None = None,
        subtree: bool = False,
        mode: ReleaseMode | None = None,
    ) -> Closed:
        """Close a session, with its descendants if asked, and say what that let go of; the second time, nothing.

        `mode` None is what each was opened with. `ReleaseMode.PREVIEW` closes nothing and answers what a close would
        let go of.

        Errors  BAD_SESSION_ID, SESSION_UNKNOWN; SESSION_STALE for a `generation` that is not current. Nothing closes
        """
        self.sweep()
        self._sessions.look(session, generation, self._clock.now_ns())
        family = self._sessions.subtree(session) if subtree else ()
        closed = self._close(session, mode)
        children = [self._close(child, mode) for child in family]
        return replace(closed, children=tuple(children[:SHOWN]), more=len(children) > SHOWN)

    def touch_session(self, session: str, *, generation: int | None = None) -> None:
        """Renew an open session's lease. Errors: see `SessionRegistry.touch`."""
        self.sweep()
        self._sessions.touch(session, generation, self._clock.now_ns())

    def pause_session(self, session: str, paused: Paused | None, *, generation: int | None = None) -> None:
        """Note what an open session waits for, None: nothing (any more). It renews its lease. Errors: as a touch.

        A time that it names moves what the session references in the order of eviction; it holds nothing. What was only
        learned changes nothing where a client has paused the session, or its next request is here.
        """
        self.sweep()
        now = self._clock.now_ns()
        if paused and paused.learned and self._is_known_better(session, generation):
            return
        facts = self._sessions.note(session, generation, paused, now)
        self._tell(facts.session, at_once=not paused or 0 < paused.expected_s <= AT_ONCE_S)

    def tell_session(self, session: SessionId, generation: int, told: Told) -> None:
        """More is known of the gap that a session is in, or that follows its turn. Ignored if it has moved on."""
        self.sweep()
        now = self._clock.now_ns()
        if self._sessions.tell(session, generation, told, now):
            self._tell(session)

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
            self.tiers.released(one.session)
            self._release(one.session, one.generation, ReleaseMode.RELEASE)
        return len(lapsed)

    # what a router orders, and asks

    def close_through(self, session: SessionId, generation: int, mode: ReleaseMode) -> LetGo:
        """Close a session through a generation, known here or not; what it has of later ones stays."""
        self.sweep()
        return self._let_go(self._sessions.routed.close(session, generation, self._clock.now_ns()), mode)

    def expire_through(self, session: SessionId, generation: int, even_busy: bool = False) -> LetGo:
        """Let a session idle out through a generation, unless a request of it is queued or running."""
        self.sweep()
        parting = self._sessions.routed.expire(session, generation, self._clock.now_ns(), even_busy)
        return self._let_go(parting, ReleaseMode.RELEASE)

    def moved_away(self, session: SessionId, generation: int, placement: int) -> LetGo:
        """Let go of what was registered before `placement`: another worker has the session."""
        self.sweep()
        parting = self._sessions.routed.moved(session, generation, placement, self._clock.now_ns())
        return self._let_go(parting, ReleaseMode.RELEASE)

    def known_sessions(self) -> tuple[KnownSession, ...]:
        """The open sessions as they are offered to a router. Cost O(records)."""
        self.sweep()
        return tuple(self._sessions.routed.known(self._clock.now_ns()))

    def unconfirmed_sessions(self) -> tuple[KnownSession, ...]:
        """Those that a router's tag has made known, each once: the store may have ended them meanwhile."""
        self.sweep()
        return tuple(self._sessions.routed.unconfirmed(self._clock.now_ns()))

    def heard_router(self, epoch: str, ago_s: float) -> int:
        """A router was there so long ago, with a store of that epoch; answers the highest generation that any named."""
        self._sessions.routed.epoch = epoch
        self._sessions.routed.heard(self._clock.now_ns() - nanoseconds(ago_s))
        return self._sessions.routed.highest

    # inside

    def _let_go(self, parting: Parting, mode: ReleaseMode) -> LetGo:
        """Release what an order gave up; the tiers keep what a later generation wants."""
        session, current = parting.session, parting.current
        if not parting.releases:
            return LetGo(session, current, parting.known, parting.busy, mode)
        if parting.releases >= current:
            self.tiers.released(session)
        released = self._release(session, parting.releases, mode)
        held = holdings(released, self.config.specs)
        return LetGo(session, current, parting.known, False, released.mode, released.markers, held)

    def _close(self, session: str, asked: ReleaseMode | None) -> Closed:
        now = self._clock.now_ns()
        mode = asked or self._sessions.look(session, None, now).on_close
        if mode is ReleaseMode.PREVIEW:
            facts = self._sessions.look(session, None, now)
        else:
            facts = self._sessions.close(session, None, now)
            self.tiers.released(facts.session)
        released = self._release(facts.session, facts.generation, mode)
        return Closed(
            session=facts.session,
            state=facts.state,
            generation=facts.generation,
            mode=released.mode,
            markers=released.markers,
            released=holdings(released, self.config.specs),
        )

    def _is_known_better(self, session: str, generation: int | None) -> bool:
        """Whether what was learned of a session's wait comes too late, or against its client's word."""
        facts = self._sessions.look(session, generation, self._clock.now_ns())
        return facts.queued > 0 or bool(facts.paused and not facts.paused.learned)

    def _fork(self, session: SessionId, generation: int) -> None:
        """Until its first turn has registered the session references its parent's frontier of now, once."""
        now = self._clock.now_ns()
        parent = self._sessions.look(session, None, now).parent
        inherited = parent and self._inheritance.fork(session, generation, parent, now)
        if parent and inherited:
            self._executor.apply(inherited.effects)
            self.tiers.inherited(session, parent)
            self._tell(session)

    def _tell(self, session: SessionId, at_once: bool = False) -> None:
        """Say what the session does now, and when it is expected back: to the order, and to who brings its data."""
        wait = self._sessions.wait(session)
        self._core.expect(session, wait, self._clock.now_ns())
        self.returning.expect(session, wait, self._sessions.shown.due_ns(session), at_once)

    def _release(self, session: SessionId, through_generation: int, mode: ReleaseMode) -> Released:
        if mode is not ReleaseMode.PREVIEW:  # which changes nothing
            self.paths.release(session, through_generation)
            self._inheritance.release(session, through_generation)
            if not self.paths.has(session):
                self.returning.forget(session)  # before its data goes, or what is on its way would keep them
        released = self._core.release(session, through_generation, mode, self._clock.now_ns())
        self._executor.apply(released.effects)
        if mode is not ReleaseMode.PREVIEW:
            self._executor.settle()
        return released
