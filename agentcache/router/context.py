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
from agentcache.router.upstream import Upstreams
from agentcache.store.api import Store
from agentcache.wire import TagSigner


@dataclass(slots=True)
class Router:
    """One router process. `now_ms` is Unix time for tags and the store, `clock` measures; `new_id` makes ids, `jitter`
    numbers in [0, 1)."""

    store: Store
    signer: TagSigner
    fleet: FleetView
    chooser: Chooser
    tenants: Tenants
    closer: Closer
    upstream: Upstreams
    standings: Standings
    store_state: StoreState
    endings: Endings
    settings: RouterSettings
    router_id: str
    clock: Clock
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    jitter: Callable[[], float]
    active: Active = field(default_factory=Active)
    metrics: RouterMetrics = field(default_factory=RouterMetrics)
    draining: bool = False

    def require_open(self) -> None:
        """Errors: CacheError(SHUTTING_DOWN) once the router drains."""
        if self.draining:
            raise CacheError(Kind.SHUTTING_DOWN, "the router is shutting down; send this to another one")
