"""Several router processes behind one port: started here, replaced when one dies, ended with this process.

Each listens on a socket of its own that shares the port (SO_REUSEPORT), so that the kernel spreads connections.
"""

import pkgutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from agentcache.clock import SystemClock
from agentcache.embedded import STOP_S, GuardedProcess
from agentcache.errors import CacheError, Kind
from agentcache.router.banner import banner
from agentcache.router.counted import counting_folder
from agentcache.router.crew import Crew
from agentcache.router.home import ENSURE_S, Keeper, Place, elsewhere
from agentcache.router.metrics import SHARED_FOLDER
from agentcache.router.settings import RouterSettings
from agentcache.web.listening import bind, bind_shared, url_of

TOLD: Final = "AGENTCACHE_ROUTER_PROCESS"
"""The variable in which a process finds its settings and its store: no other user can read it."""
MODULE: Final = "agentcache.router.process"
MARGIN_S: Final = 5.0
START_S: Final = 30.0
LOOK_S: Final = 0.02
StoreTime = Callable[[], int] | None
"""Unix milliseconds in place of the store's own clock, for tests."""


class Told(msgspec.Struct, frozen=True):
    """What a process is started with. `secret` in hexadecimal digits; `counted`: the folder of all their counts;
    `now_ms`: the function, MODULE:NAME, that says the store's time, "" for the store's own clock."""

    settings: dict[str, Any]
    url: str
    secret: str
    shown: str
    counted: str
    now_ms: str = ""

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def place(self) -> Place:
        """The store, which the first process keeps."""
        return Place(self.url, bytes.fromhex(self.secret), self.shown, elsewhere)

    @property
    def store_now_ms(self) -> StoreTime:
        return pkgutil.resolve_name(self.now_ms) if self.now_ms else None


@dataclass(slots=True)
class Leaving:
    """Whether a signal has come, and a wait for it."""

    now: threading.Event = field(default_factory=threading.Event)

    def ask(self, *_signal: object) -> None:
        self.now.set()


def run_several(
    settings: RouterSettings, place: Place, environ: Mapping[str, str], now_ms: StoreTime = None
) -> int:
    """Run them until SIGTERM or Ctrl-C; the exit code.

    Caller  names in `now_ms` a function of a module, so that every process can find it
    Errors  CacheError(BAD_CONFIG) for an address that cannot be had
    """
    leaving = Leaving()
    for sent in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sent, leaving.ask)
    with bind(settings.host, settings.port) as free, counting_folder() as folder:
        counted = str(folder)
        port = free.getsockname()[1]
        free.close()
        with bind_shared(settings.host, port) as reserved:
            told = settings.model_copy(update={"port": port})
            start = Told(
                told.model_dump(), place.url, place.secret.hex(), place.shown, counted, _named(now_ms)
            )
            variables = {**environ, SHARED_FOLDER: counted, TOLD: start.text()}
            crew = Crew(told.workers, lambda: _started(told, variables), SystemClock())
            try:
                crew.fill()
                _until_listening(reserved, crew, leaving)
                print(banner(told, url_of(reserved), place.shown), flush=True)
                _watched(crew, place, leaving)
            finally:
                crew.end()
    return 0


def _named(function: StoreTime) -> str:
    return f"{function.__module__}:{function.__qualname__}" if function else ""


def _started(settings: RouterSettings, environ: Mapping[str, str]) -> GuardedProcess:
    stop_s = max(STOP_S, settings.grace_s + MARGIN_S)
    return GuardedProcess([sys.executable, "-m", MODULE], None, environ=environ, stop_s=stop_s)


def _until_listening(reserved: socket.socket, crew: Crew, leaving: Leaving) -> None:
    """Wait for the first process that takes connections."""
    address = urlsplit(url_of(reserved))
    for _ in range(round(START_S / LOOK_S)):
        try:
            socket.create_connection((address.hostname, address.port), timeout=1).close()
            return
        except OSError:
            if leaving.now.wait(LOOK_S):
                return
            if not crew.alive:
                break
    raise CacheError(Kind.BAD_CONFIG, "no process of the router has come up; the log says why")


def _watched(crew: Crew, place: Place, leaving: Leaving) -> None:
    keeper = Keeper(place)
    while not leaving.now.wait(ENSURE_S):
        crew.fill()
        keeper.look()
