"""What the handlers of one router share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.router.active import Active
from agentcache.router.choosing import Chooser
from agentcache.router.closing import Closer
from agentcache.router.endings import Endings
from agentcache.router.fleet import FleetView
from agentcache.router.metrics import RouterMetrics
from agentcache.router.settings import RouterSettings
from agentcache.router.standing import Standings, StoreState
from agentcache.router.tenants import Tenants
from agentcache.router.tool_waits import ToolWaits
from agentcache.router.tracing import NO_TRACING, Tracing
from agentcache.router.upstream import Upstreams
from agentcache.store.api import Store
from agentcache.wire import TagSigner


@dataclass(frozen=True, slots=True)
class World:
    """What a router has from outside. `clock` measures, `now_ms` is Unix time for tags; `new_id` makes ids, `jitter`
    numbers in [0, 1). `tracing`: where its requests are told in spans."""

    clock: Clock
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    jitter: Callable[[], float]
    tracing: Tracing = NO_TRACING


@dataclass(slots=True)
class Router:
    """One router process."""

    store: Store
    signer: TagSigner
    fleet: FleetView
    chooser: Chooser
    tenants: Tenants
    closer: Closer
    upstream: Upstreams
    standings: Standings
    waits: ToolWaits
    settings: RouterSettings
    world: World
    active: Active = field(default_factory=Active)
    metrics: RouterMetrics = field(default_factory=RouterMetrics)
    draining: bool = False
    ended_loop: str = ""
    """The loop of the background that has ended though the router goes on; "" while all run."""

    @property
    def clock(self) -> Clock:
        return self.world.clock

    @property
    def tracing(self) -> Tracing:
        return self.world.tracing

    @property
    def endings(self) -> Endings:
        """The work that no request waits for."""
        return self.standings.endings

    def new_id(self) -> str:
        return self.world.new_id()

    @property
    def store_state(self) -> StoreState:
        """Whether the store is worth asking."""
        return self.standings.state

    def require_open(self) -> None:
        """Errors: CacheError(SHUTTING_DOWN) once the router drains."""
        if self.draining:
            raise CacheError(Kind.SHUTTING_DOWN, "the router is shutting down; send this to another one")
