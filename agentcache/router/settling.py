"""Where one request goes: the choice of a worker, and the store's word for who has its session, until they agree."""

from dataclasses import dataclass

from agentcache.errors import CacheError, Kind
from agentcache.router.choosing import Asked, Chosen
from agentcache.router.context import Router
from agentcache.router.request import Request
from agentcache.router.standing import STORE_DOWN, Standing
from agentcache.store.api import SessionRef
from agentcache.types import SessionState


@dataclass(frozen=True, slots=True)
class Settled:
    """A worker that takes a request, and how the request stands there. The caller ends `chosen.flight`."""

    chosen: Chosen
    standing: Standing


class Settling:
    """The choices of one request. `standing` is how it stands to its session now."""

    def __init__(self, router: Router, request: Request, standing: Standing) -> None:
        self._router = router
        self._request = request
        self.standing = standing

    async def settled(self, exclude: frozenset[str]) -> Settled:
        """Errors: CacheError(NO_WORKER); SESSION_CLOSED and STORE_FAILED where the request insists on its session."""
        chosen = await self._router.chooser.choose(await self._asked(exclude))
        if not self.standing.referenced:
            return Settled(chosen, self.standing)
        if chosen.for_once:  # its session stays where it is
            told = self._router.standings.unreferenced(self.standing, SessionState.NONE, chosen.why)
            return Settled(chosen, told)
        try:
            self.standing = await self._assigned(chosen)
            return Settled(await self._at_its_holder(chosen), self.standing)
        except BaseException:
            chosen.flight.end()
            raise

    async def tag_again(self, at_least: int) -> None:
        """Take the request in once more, after its worker said that it knows generation `at_least`.

        Errors  as `Standings.enter`
        """
        self.standing = await self._router.standings.again(
            self.standing, self._request.tenant, self._request.identity, at_least
        )

    async def _asked(self, exclude: frozenset[str]) -> Asked:
        request, identity = self._request, self._request.identity
        return Asked(
            tenant=request.tenant.name,
            salt=request.salt,
            route=request.route.path,
            fields=request.fields,
            session=identity.session,
            bound=self.standing.bound,
            parent=self.standing.tagged.parent if self.standing.referenced else "",
            parent_worker=await self._parents_worker(),
            forks=identity.fork,
            family=identity.family,
            pinned=request.pinned,
            exclude=exclude,
        )

    async def _parents_worker(self) -> str:
        """Where the parent is, asked only while the session itself is nowhere yet."""
        standing = self.standing
        parent = standing.tagged.parent
        if standing.bound or not standing.referenced or not parent:
            return ""
        ref = SessionRef(standing.ref.tenant, parent)
        known = self._router.standings.bindings.find(ref)
        if known:
            return known
        try:
            return (await self._router.store.look(ref)).worker
        except CacheError:
            return ""

    async def _assigned(self, chosen: Chosen) -> Standing:
        try:
            standing = await self._router.standings.settle(self.standing, chosen.worker)
        except CacheError:
            if self._router.settings.without_store == "refuse" or self._request.insists:
                raise
            return self._router.standings.unreferenced(self.standing, SessionState.NONE, STORE_DOWN)
        if not standing.referenced and self._request.insists:
            raise CacheError(Kind.SESSION_CLOSED, "the session was closed meanwhile; open it again")
        return standing

    async def _at_its_holder(self, chosen: Chosen) -> Chosen:
        """The same choice, unless another router was first to place the session."""
        holder = self.standing.bound
        if not self.standing.referenced or holder == chosen.worker:
            return chosen
        if self._router.fleet.find(holder) is None:
            await self._router.fleet.refresh(self._router.store)
        return self._router.chooser.adopt(chosen, holder)
