"""Where a router's sessions are: an embedded Valkey in its folder, or a server elsewhere."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from agentcache.clock import Clock
from agentcache.config import without_password
from agentcache.errors import CacheError, Kind
from agentcache.router.assembly import store_rules
from agentcache.router.lasting import Lasting, Pause
from agentcache.router.settings import RouterSettings
from agentcache.store.connect import connect, open_home, read_secret

ENSURE_S: Final = 1.0
"""Seconds between two looks whether the embedded server is still there."""


@dataclass(frozen=True, slots=True)
class Place:
    """A session store and the secret of its tags. `ensure` starts the server again where it is ours to start."""

    url: str
    secret: bytes
    shown: str
    ensure: Callable[[], None]


def elsewhere() -> None:
    """The server is somebody else's."""


@contextmanager
def opened(settings: RouterSettings, clock: Clock) -> Iterator[Place]:
    """The place that the settings name; an embedded server ends with the block if it was started here.

    Errors  CacheError(BAD_CONFIG)
    """
    if settings.redis_url:
        secret = read_secret(Path(settings.secret_file).expanduser())
        yield Place(settings.redis_url, secret, f"at {without_password(settings.redis_url)}", elsewhere)
        return
    home = open_home(settings.folder, clock)
    try:
        yield Place(home.url, home.secret, f"in {settings.folder}, an embedded Valkey", home.ensure)
    finally:
        home.close()


async def prepared(
    place: Place, settings: RouterSettings, now_ms: Callable[[], int] | None, forget: bool
) -> None:
    """Check the store before anybody is served; `forget` empties it first. One that is down is only told in the log.

    Errors  CacheError(BAD_CONFIG): keys of another format, or a server that is not for us
    """
    store = await connect(place.url, store_rules(settings), now_ms=now_ms)
    try:
        if forget:
            await store.forget()
            structlog.get_logger().info("sessions_forgotten", store=place.shown)
        await store.prepare()
    except CacheError as error:
        if forget or error.kind is not Kind.STORE_FAILED:
            raise
        structlog.get_logger().warning("store_down", store=place.shown, why=error.message)
    finally:
        await store.aclose()


async def kept(place: Place, pause: Pause = asyncio.sleep) -> None:
    """See to it until cancelled that the server is there, whichever process has to start it."""
    await Lasting("home", pause).run(Keeper(place).step)


class Keeper:
    """Looks whether the server is there; one that cannot be started is told once in the log."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._failing = False

    async def step(self) -> float:
        """One look; how long to wait before the next."""
        await asyncio.to_thread(self.look)
        return ENSURE_S

    def look(self) -> None:
        """Return once the server answers, or cannot be started. Blocks."""
        try:
            self._place.ensure()
            self._failing = False
        except CacheError as error:
            if not self._failing:
                structlog.get_logger().warning("store_down", store=self._place.shown, why=error.message)
            self._failing = True
