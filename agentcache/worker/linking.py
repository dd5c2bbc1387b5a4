"""Whether a worker has routers, where their store is, and what the worker calls itself there."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from agentcache.config import Settings
from agentcache.engine.engine import Engine
from agentcache.errors import CacheError, Kind
from agentcache.kv_events import OPEN, Seal, Sealed, component_card
from agentcache.store.api import StoreRules
from agentcache.store.connect import connect, join_home, read_secret
from agentcache.store.redis import RedisStore
from agentcache.wire import TagSigner, WorkerCard
from agentcache.worker.context import Worker
from agentcache.worker.link import NO_LINK, Link, RouterLink
from agentcache.worker.link_standing import Pace
from agentcache.worker.tagged import OPEN_GATE, Gate, TagGate

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
ANY_ADDRESS: Final = ("0.0.0.0", "::")

NowMs = Callable[[], int]


class Membership(Protocol):
    """What a worker is to routers. `seal` is for its events."""

    @property
    def seal(self) -> Seal: ...

    def gate(self, incarnation: str) -> Gate:
        """Who may ask the worker as it has run since this start."""

    async def link(self, worker: Worker) -> Link:
        """The tie, not started yet; in the event loop in which it will live."""


class Alone:
    """A worker without routers."""

    seal = OPEN

    def gate(self, incarnation: str) -> Gate:
        return OPEN_GATE

    async def link(self, worker: Worker) -> Link:
        return NO_LINK


class Member:
    """A worker behind the routers that share a store and a secret."""

    def __init__(self, settings: Settings, url: str, store_now_ms: NowMs | None = None) -> None:
        self._settings = settings
        self._url = settings.advertise_url or url
        self._store_now_ms = store_now_ms
        self._name = settings.worker_id or urlsplit(self._url).netloc
        self._store_url, self._secret = settings.redis_url, b""
        if settings.router_dir:
            self._store_url, self._secret = join_home(Path(settings.router_dir).expanduser())
        else:
            self._secret = read_secret(Path(settings.secret_file).expanduser())
        self.seal = Sealed(TagSigner(self._secret))

    def gate(self, incarnation: str) -> Gate:
        return TagGate(TagSigner(self._secret), self._name, unix_ms, incarnation, self._url)

    async def link(self, worker: Worker) -> Link:
        settings = self._settings
        rules = StoreRules(ttl_s=settings.ttl_s, reopen_after_s=settings.reopen_after_s)
        store = await connect(self._store_url, rules, now_ms=self._store_now_ms)
        try:
            await store.prepare()
        except CacheError as error:  # one that does not answer yet is asked again by the link
            if error.kind is not Kind.STORE_FAILED:
                await store.aclose()
                raise
        card = await worker.thread.call(lambda engine: self.card(engine, worker))
        return StoreLink(
            RouterLink(store, card, worker.thread, worker.clock, Pace(settings.heartbeat_s)), store
        )

    def card(self, engine: Engine, worker: Worker) -> WorkerCard:
        """What the worker is, for routers; on the engine's thread."""
        info, settings, home = engine.info, self._settings, engine.namespace("")
        return WorkerCard(
            worker=self._name,
            incarnation=worker.events.incarnation or worker.new_id(),
            url=self._url,
            model=info.model,
            context_tokens=info.context_tokens,
            page_tokens=info.page_tokens,
            grid_tokens=info.grid_tokens,
            seats=settings.max_running,
            queue_limit=settings.queue_limit,
            components=tuple(component_card(spec) for spec in engine.cache.config.specs),
            namespace=(home.model, home.adapter, home.dtype, home.layout),
            events_url=worker.events.events_url,
            replay_url=worker.events.replay_url,
            started_ms=unix_ms(),
            prompt_bytes_max=worker.prompt_bytes_max,
            role=settings.role,
        )


class StoreLink:
    """A link that lets go of its store's connections in the end."""

    def __init__(self, link: RouterLink, store: RedisStore) -> None:
        self._link = link
        self._store = store

    async def start(self) -> None:
        await self._link.start()

    async def drain(self) -> None:
        await self._link.drain()

    async def stop(self) -> None:
        await self._link.stop()
        await self._store.aclose()


def membership(settings: Settings, url: str, store_now_ms: NowMs | None = None) -> Membership:
    """What the settings say. `url` is the address that the worker listens on.

    Errors  CacheError(BAD_CONFIG): a folder that is no router's, a secret that cannot be read, an address that no
            router on another machine can reach
    """
    if not (settings.router_dir or settings.redis_url):
        return Alone()
    store_host = urlsplit(settings.redis_url).hostname or LOOPBACK[0]
    if settings.host in ANY_ADDRESS and store_host not in LOOPBACK and not settings.advertise_url:
        raise CacheError(
            Kind.BAD_CONFIG,
            f"listening on {settings.host} does not say where routers on other machines reach this worker; "
            "add --advertise-url http://HOST:PORT",
        )
    return Member(settings, url, store_now_ms)


def unix_ms() -> int:
    """Unix time of this machine in milliseconds: by it tags are young or old."""
    return time.time_ns() // 1_000_000
