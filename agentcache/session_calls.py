"""The session half of the facade: open, look, close, expire, and what each lets go of."""

from dataclasses import replace

from agentcache.clock import Clock
from agentcache.executor import Executor
from agentcache.holdings import Closed, SessionView, holdings, session_view
from agentcache.sessions import Opened, SessionRegistry
from agentcache.tiering import Tiering
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.types import Released, ReleaseMode, SessionId


class SessionCalls:
    """Sessions of one cache. Its other half is `UnifiedRadixCache`, which makes both."""

    config: CoreConfig
    tiers: Tiering
    _core: UnifiedTreeCore
    _executor: Executor
    _sessions: SessionRegistry
    _clock: Clock

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
            self.tiers.released(one.session)
            self._release(one.session, one.generation, ReleaseMode.RELEASE)
        return len(lapsed)

    # inside

    def _close(self, session: str, mode: ReleaseMode) -> Closed:
        now = self._clock.now_ns()
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

    def _release(self, session: SessionId, through_generation: int, mode: ReleaseMode) -> Released:
        released = self._core.release(session, through_generation, mode, self._clock.now_ns())
        self._executor.apply(released.effects)
        if mode is not ReleaseMode.PREVIEW:  # which changes nothing
            self._executor.settle()
        return released
