"""What the handlers of one router share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.router.settings import RouterSettings
from agentcache.wire import TagSigner

if TYPE_CHECKING:
    from agentcache.router.choosing import Chooser
    from agentcache.router.closing import Closer
    from agentcache.router.fleet import FleetView
    from agentcache.router.tenants import Tenants
    from agentcache.router.upstream import Upstreams
    from agentcache.store.api import Store


@dataclass(slots=True)
class Router:
    """One router process. `now_ms` is Unix time for tags and the store, `clock` measures; `new_id` makes ids."""

    store: Store
    signer: TagSigner
    fleet: FleetView
    chooser: Chooser
    tenants: Tenants
    closer: Closer
    upstream: Upstreams
    settings: RouterSettings
    router_id: str
    clock: Clock
    now_ms: Callable[[], int]
    new_id: Callable[[], str]
    draining: bool = False

    def require_open(self) -> None:
        """Errors: CacheError(SHUTTING_DOWN) once the router drains."""
        if self.draining:
            raise CacheError(Kind.SHUTTING_DOWN, "the router is shutting down; send this to another one")
