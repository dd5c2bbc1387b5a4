"""Several router processes behind one port: started here, replaced when one dies, ended with this process.

Each listens on a socket of its own that shares the port (SO_REUSEPORT), so that the kernel spreads connections.
"""

import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import structlog

from agentcache.embedded import STOP_S, GuardedProcess
from agentcache.errors import CacheError, Kind
from agentcache.router.banner import banner
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


class Told(msgspec.Struct, frozen=True):
    """What a process is started with. `secret` in hexadecimal digits; `counted`: the folder of all their counts."""

    settings: dict[str, Any]
    url: str
    secret: str
    shown: str
    counted: str

    def text(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def place(self) -> Place:
        """The store, which the first process keeps."""
        return Place(self.url, bytes.fromhex(self.secret), self.shown, elsewhere)


@dataclass(slots=True)
class Leaving:
    """Whether a signal has come, and a wait for it."""

    now: threading.Event = field(default_factory=threading.Event)

    def ask(self, *_signal: object) -> None:
        self.now.set()


def run_several(settings: RouterSettings, place: Place, environ: Mapping[str, str]) -> int:
    """Run them until SIGTERM or Ctrl-C; the exit code.

    Errors  CacheError(BAD_CONFIG) for an address that cannot be had
    """
    leaving = Leaving()
    for sent in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sent, leaving.ask)
    with (
        bind(settings.host, settings.port) as free,
        tempfile.TemporaryDirectory(prefix="agentcache-router-") as counted,
    ):
        port = free.getsockname()[1]
        free.close()
        with bind_shared(settings.host, port) as reserved:
            told = settings.model_copy(update={"port": port})
            start = Told(told.model_dump(), place.url, place.secret.hex(), place.shown, counted)
            crew = _Crew(told, {**environ, SHARED_FOLDER: counted, TOLD: start.text()})
            try:
                crew.fill()
                _until_listening(reserved, leaving)
                print(banner(told, url_of(reserved), place.shown), flush=True)
                _watched(crew, place, leaving)
            finally:
                crew.end()
    return 0


def _until_listening(reserved: socket.socket, leaving: Leaving) -> None:
    """Wait for the first process that takes connections."""
    address = urlsplit(url_of(reserved))
    for _ in range(round(START_S / LOOK_S)):
        try:
            socket.create_connection((address.hostname, address.port), timeout=1).close()
            return
        except OSError:
            if leaving.now.wait(LOOK_S):
                return
    raise CacheError(
        Kind.BAD_CONFIG, f"no process of the router listens after {START_S:g} s; the log says why"
    )


def _watched(crew: "_Crew", place: Place, leaving: Leaving) -> None:
    keeper = Keeper(place)
    while not leaving.now.wait(ENSURE_S):
        crew.fill()
        keeper.look()


class _Crew:
    """The processes. One that dies is replaced at the next look."""

    def __init__(self, settings: RouterSettings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._processes: list[GuardedProcess] = []

    def fill(self) -> None:
        lost = [process for process in self._processes if not process.alive]
        for process in lost:
            structlog.get_logger().error("process_died", processes=self._settings.workers)
            process.stop()
            self._processes.remove(process)
        while len(self._processes) < self._settings.workers:
            self._processes.append(
                GuardedProcess(
                    [sys.executable, "-m", MODULE],
                    None,
                    environ=self._environ,
                    stop_s=max(STOP_S, self._settings.grace_s + MARGIN_S),
                )
            )

    def end(self) -> None:
        """Ask all to end, then wait for each."""
        for process in self._processes:
            process.end()
        for process in self._processes:
            process.stop()
