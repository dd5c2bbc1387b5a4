"""How a request stands to its session: taken in by the store, served without a reference, or refused.

enter ──► Standing ──► settle (who has the session now) ──► … ──► leave
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.router.bindings import Bindings
from agentcache.router.endings import Endings
from agentcache.router.identity import Identity
from agentcache.router.tenants import Tenant
from agentcache.store.api import (
    Closing,
    Done,
    Placed,
    SessionRef,
    Store,
    Tagged,
    TagVerdict,
    Use,
)
from agentcache.types import SessionState

STORE_PAUSE_NS: Final = 1_000_000_000
"""After a call that failed the store is left alone for so long, so that requests do not queue up behind it."""
STORE_DOWN: Final = "session store unavailable"
CLOSED_WHY: Final = "session closed: served without a reference"
_SAID: Final = {
    TagVerdict.EXPIRED: (str(SessionState.EXPIRED), ""),
    TagVerdict.CLOSED: (str(SessionState.CLOSED), CLOSED_WHY),
    TagVerdict.LIMITED: (str(SessionState.NONE), "session limit: served without a reference"),
}


@dataclass(frozen=True, slots=True)
class Standing:
    """What the store said of a request, and what its answer will say of the session.

    `tagged` is what goes into the worker's tag; without a reference (`referenced` False) the tag names no session, so
    that nothing can register. `state` and `why` are "" where the worker's own words stand. `first`: this request
    placed the session.
    """

    request_id: str
    ref: SessionRef
    tagged: Tagged
    referenced: bool
    state: str = ""
    why: str = ""
    generation: int = 0
    bound: str = ""
    first: bool = False

    @property
    def named(self) -> bool:
        return bool(self.ref.session)


AfterEnd = Callable[[SessionRef, int, str], Awaitable[None]]
"""Session, generation and worker of a request that ended after its session."""


@dataclass(frozen=True, slots=True)
class StandingRules:
    """`serve`: without a store requests are served without their sessions, else refused."""

    serve: bool
    ended_late: AfterEnd


class StoreState:
    """Whether the store is worth asking now."""

    def __init__(self, clock: Clock, listed: Callable[[], bool]) -> None:
        """`listed` says whether the last look at the workers, in the background, reached the store."""
        self._clock = clock
        self._listed = listed
        self._until_ns = -1

    @property
    def up(self) -> bool:
        return self._listed() and self._clock.now_ns() >= self._until_ns

    def failed(self) -> None:
        self._until_ns = self._clock.now_ns() + STORE_PAUSE_NS

    def require(self) -> None:
        """Errors: CacheError(STORE_FAILED) while it is down."""
        if not self.up:
            raise CacheError(Kind.STORE_FAILED, "the session store does not answer; try again")


class Standings:
    """The session side of every request of a router."""

    def __init__(
        self,
        store: Store,
        state: StoreState,
        bindings: Bindings,
        endings: Endings,
        rules: StandingRules,
    ) -> None:
        self._store = store
        self.state = state
        self.endings = endings
        self._rules = rules
        self.bindings = bindings

    async def enter(self, request_id: str, tenant: Tenant, identity: Identity, only: str) -> Standing:
        """Take a request in. `only`: the single worker that there is, "" where there is a choice.

        Errors  CacheError(SESSION_CLOSED, SESSION_STALE, SESSION_UNKNOWN, SESSION_LIMIT): refused, and nothing is in
                flight; STORE_FAILED when the store is down and the request insists on it, or settings do
        """
        ref = SessionRef(tenant.name, identity.session)
        if not identity.session:
            return Standing(request_id, ref, Tagged(TagVerdict.JOINED), False)
        use = Use(
            request_id=request_id,
            worker=only,
            parent=identity.parent,
            fence=identity.fence,
            strict=identity.strict,
            limit=tenant.session_limit,
            ttl_s=identity.ttl_s,
            expected_s=identity.expected_s if tenant.hints else 0.0,
        )
        try:
            self.state.require()
            tagged = await self._tag(ref, use)
        except CacheError as error:
            return self._without(error, ref, use)
        return self._judged(ref, use, tagged)

    async def settle(self, standing: Standing, worker: str) -> Standing:
        """Give the session to `worker` if nobody else did: the answer names who has it (`tagged.worker`).

        Caller  has a standing with a reference
        Errors  CacheError(STORE_FAILED)
        """
        tagged = standing.tagged
        if tagged.worker == worker:
            self.bindings.learn(standing.ref, worker)
            return standing if standing.bound == worker else replace(standing, bound=worker)
        try:
            placed = await self._store.assign(standing.ref, tagged.generation, tagged.placement, worker)
        except CacheError:
            self.state.failed()
            raise
        if placed.generation != tagged.generation:  # closed since, or opened again
            self.bindings.forget(standing.ref)
            return self.unreferenced(standing, SessionState.CLOSED, CLOSED_WHY)
        self.bindings.learn(standing.ref, placed.worker)
        return _placed(standing, placed)

    async def lent(self, standing: Standing, worker: str) -> Standing:
        """The same request, with `worker` as the one that computes prompts for its session (`tagged.prefill`).

        Where the session has changed meanwhile it is not, and the request stands as it did.

        Caller  has a standing with a reference
        Errors  CacheError(STORE_FAILED)
        """
        tagged = standing.tagged
        seen = (tagged.generation, tagged.placement)
        try:
            placed = await self._store.assign(standing.ref, *seen, worker, prefill=True)
        except CacheError:
            self.state.failed()
            raise
        if placed.worker != worker:
            return replace(standing, tagged=replace(tagged, prefill=""))
        return replace(standing, tagged=replace(tagged, prefill=worker, placement=placed.placement))

    def unreferenced(self, standing: Standing, state: str, why: str) -> Standing:
        """The same request, served without its session."""
        return replace(standing, referenced=False, state=state, why=why, bound=standing.tagged.worker)

    async def again(self, standing: Standing, tenant: Tenant, identity: Identity, at_least: int) -> Standing:
        """Enter once more, after a worker knew a generation that is not below `at_least`.

        The session's generation rises until it is as high, and above one that the worker has let go of.
        """
        self.leave(standing, "", registered=False)
        found = await self.enter(f"{standing.request_id}.again", tenant, identity, "")
        generation, same = found.tagged.generation, _place(found.tagged) == _place(standing.tagged)
        if not found.referenced or (generation >= at_least and not same):
            return found
        self.leave(found, "", registered=False)
        await self._store.raise_above(found.ref, max(at_least, generation if same else 0))
        return await self.enter(f"{standing.request_id}.raised", tenant, identity, "")

    def leave(self, standing: Standing, worker: str, registered: bool, refused: bool = False) -> None:
        """End a request, in the background. `worker`: who served it last, "" where nobody did.

        A session that only `refused` ones have opened idles out at once.
        """
        if standing.tagged.referenced and standing.named:
            self.endings.begin(self._done(standing, worker, registered, refused))

    def let_go(self, standing: Standing, closed: bool) -> None:
        """Note, in the background, that the worker has let go of the session as this request was tagged for it.

        Where the store still says the same, its order to let go was forgotten with a loss, and no turn there would ever
        register. So what was `closed` is closed again, else the generation rises.
        """
        self.endings.begin(self._closed(standing) if closed else self._risen(standing))

    async def _closed(self, standing: Standing) -> None:
        closing = Closing(standing.tagged.generation, mode="", again=True)
        await self.endings.insist(lambda: self._store.close(standing.ref, closing))

    async def _risen(self, standing: Standing) -> None:
        tagged = standing.tagged

        async def rise() -> int:
            record = await self._store.look(standing.ref)
            if (record.generation, record.worker, record.placement) != _place(tagged):
                return record.generation
            return await self._store.raise_above(standing.ref, tagged.generation)

        await self.endings.insist(rise)

    async def _done(self, standing: Standing, worker: str, registered: bool, refused: bool = False) -> None:
        tagged = standing.tagged
        told = Done(
            standing.request_id,
            tagged.generation,
            worker or tagged.worker,
            tagged.placement,
            registered and standing.referenced,
            refused,
        )
        answers = await self.endings.insist(lambda: self._store.done(standing.ref, told))
        if not answers:
            self.state.failed()
        elif not answers[0] and worker and standing.referenced:
            await self._rules.ended_late(standing.ref, tagged.generation, worker)

    async def _tag(self, ref: SessionRef, use: Use) -> Tagged:
        """The store's word. A client that leaves meanwhile leaves a request behind that has to be ended, too."""
        tagging = asyncio.ensure_future(self._store.tag(ref, use))
        try:
            return await asyncio.shield(tagging)
        except asyncio.CancelledError:
            self.endings.begin(self._undone(tagging, ref, use))
            raise

    async def _undone(self, tagging: asyncio.Future[Tagged], ref: SessionRef, use: Use) -> None:
        try:
            tagged = await tagging
        except CacheError:
            return
        if tagged.referenced:
            await self._done(Standing(use.request_id, ref, tagged, referenced=True), "", registered=False)

    def _without(self, error: CacheError, ref: SessionRef, use: Use) -> Standing:
        """Serve without the store, or refuse."""
        if error.kind is not Kind.STORE_FAILED:
            raise error
        if self.state.up:
            self.state.failed()
        if use.strict or use.fence is not None or not self._rules.serve:
            raise error
        return Standing(
            use.request_id,
            ref,
            Tagged(TagVerdict.UNKNOWN),
            referenced=False,
            state=SessionState.NONE,
            why=STORE_DOWN,
            bound=self.bindings.find(ref),
        )

    def _judged(self, ref: SessionRef, use: Use, tagged: Tagged) -> Standing:
        if tagged.verdict is TagVerdict.CLOSED:
            self.bindings.forget(ref)
        insisting = use.strict or use.fence is not None
        state, why = _words(tagged.verdict)
        new = tagged.verdict is TagVerdict.OPENED  # its worker, if it has one, is the only one there is
        standing = Standing(
            use.request_id,
            ref,
            tagged,
            referenced=tagged.referenced,
            state=state,
            why=why,
            generation=tagged.generation,
            bound="" if new else tagged.worker,
            first=new or not tagged.worker,
        )
        if tagged.verdict in (TagVerdict.STALE, TagVerdict.UNKNOWN):
            _refuse(standing)
        if tagged.verdict is TagVerdict.CLOSED and insisting:
            _refuse(standing)
        if tagged.verdict is TagVerdict.LIMITED and use.strict:
            _refuse(standing)
        return standing


def _place(tagged: Tagged) -> tuple[int, str, int]:
    """Which turns of a session a worker takes for late ones."""
    return tagged.generation, tagged.worker, tagged.placement


def _placed(standing: Standing, placed: Placed) -> Standing:
    tagged = replace(standing.tagged, worker=placed.worker, placement=placed.placement)
    return replace(standing, tagged=tagged, bound=placed.worker)


def _words(verdict: TagVerdict) -> tuple[str, str]:
    """State and why of an answer where the router knows better than the worker."""
    return _SAID.get(verdict, ("", ""))


def _refuse(standing: Standing) -> NoReturn:
    kind, said = {
        TagVerdict.STALE: (Kind.SESSION_STALE, "the generation given is not the current one"),
        TagVerdict.UNKNOWN: (
            Kind.SESSION_UNKNOWN,
            "no open session has this id; leave the generation out to open it",
        ),
        TagVerdict.CLOSED: (
            Kind.SESSION_CLOSED,
            "the session is closed; open it again with POST /v1/sessions",
        ),
        TagVerdict.LIMITED: (
            Kind.SESSION_LIMIT,
            "too many open sessions; close some, or send this without strict",
        ),
    }[standing.tagged.verdict]
    raise _refused(kind, said, standing)


def _refused(kind: Kind, said: str, standing: Standing) -> CacheError:
    facts: dict[str, object] = {"current": standing.generation} if standing.generation else {}
    return CacheError(kind, said, session=standing.ref.session, **facts)
