"""Puts a router together from its parts; the only place that chooses them."""

from agentcache.kv_events import Sealed
from agentcache.router.bindings import Bindings
from agentcache.router.choosing import Chooser, Sources
from agentcache.router.closing import Closer
from agentcache.router.context import Router, World
from agentcache.router.endings import Endings
from agentcache.router.feed import Feeds
from agentcache.router.fleet import FleetView
from agentcache.router.gauges import Placement
from agentcache.router.index import PrefixIndex
from agentcache.router.metrics import RouterMetrics
from agentcache.router.pausing import Pausing
from agentcache.router.probing import prober
from agentcache.router.settings import RouterSettings
from agentcache.router.sglang import PlainServers
from agentcache.router.standing import StandingRules, Standings, StoreState
from agentcache.router.tenants import Tenants
from agentcache.router.tokenizing import Tokenizing
from agentcache.router.tool_waits import ToolWaits
from agentcache.router.upstream import Upstreams
from agentcache.router.wait_counts import WaitCounts
from agentcache.store.api import Store, StoreRules
from agentcache.wire import TagSigner


def store_rules(settings: RouterSettings) -> StoreRules:
    """What the settings say to the store."""
    return StoreRules(
        ttl_s=settings.ttl_s, reopen_after_s=settings.reopen_after_s, worker_s=settings.worker_s
    )


def make_router(
    settings: RouterSettings,
    store: Store,
    secret: bytes,
    tenants: Tenants,
    world: World,
    metrics: RouterMetrics | None = None,
) -> Router:
    """A router over a store that is there already.

    Caller  runs `create_app`'s lifespan, or `Background`, in the loop that serves
    """
    router_id, signer, upstream = world.new_id(), TagSigner(secret), world.tracing.upstreams()
    store = world.tracing.store(store)
    fleet = FleetView(settings.upstreams, prober(upstream), salt=router_id)
    plain = PlainServers(fleet.find, upstream.post)
    closer = Closer(store, router_id, world.new_id, plain, settings.close_wait_s, world.clock)
    state = StoreState(world.clock, lambda: not fleet.store_down)
    endings = Endings()
    rules = StandingRules(settings.without_store == "serve", closer.close_plain)
    chooser, counted = _chooser(fleet, upstream, signer, world), metrics or RouterMetrics()
    counted.add(Placement(chooser.sources))
    standings = Standings(store, state, Bindings(world.clock, settings.bindings_s), endings, rules)
    pausing = Pausing(fleet.find, upstream.post, signer.bearer)
    waits = ToolWaits(world.clock, pausing.foretell, endings.begin, WaitCounts(counted.registry))
    return Router(
        store=store,
        signer=signer,
        fleet=fleet,
        chooser=chooser,
        tenants=tenants,
        closer=closer,
        upstream=upstream,
        standings=standings,
        waits=waits,
        settings=settings,
        world=world,
        metrics=counted,
    )


def _chooser(fleet: FleetView, upstream: Upstreams, signer: TagSigner, world: World) -> Chooser:
    index = PrefixIndex()
    tokenizing = Tokenizing(upstream.post, signer.bearer, world.clock)
    feeds = Feeds(index, world.now_ms, seal=Sealed(signer))
    return world.tracing.chooser(Sources(fleet, index, feeds, tokenizing, world.clock))
