"""Where a worker publishes placement events, and where it replays them."""

import errno
import fcntl
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import zmq

from agentcache.config import Settings
from agentcache.embedded import socket_path
from agentcache.errors import CacheError, Kind
from agentcache.kv_events import OPEN, Seal

SEND_LIMIT: Final = 1_000
"""Messages that wait for one slow subscriber; then it misses some, sees the gap, and asks for a replay."""
REPLAY_LIMIT: Final = 100
REQUEST_BYTES: Final = 1_024
"""Enough for a request, and for the greetings of CURVE."""
_IN_HOME: Final = "ev-"
_ADDRESS: Final = re.compile(
    r"tcp://.+:(\*|[0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])|ipc://.+"
)
_EVERYWHERE: Final = {"*", "0.0.0.0", "::"}


@dataclass(slots=True)
class EventSockets:
    """Bound sockets and the addresses that others connect to. Caller: `close` in the end, from the thread that uses."""

    context: "zmq.Context[zmq.Socket[bytes]]"
    events: "zmq.Socket[bytes]"
    replay: "zmq.Socket[bytes]"
    events_url: str
    replay_url: str

    @property
    def closed(self) -> bool:
        return bool(self.context.closed)

    def close(self) -> None:
        """At once: what nobody has read yet is lost, as in any other end of a worker."""
        self.events.close(linger=0)
        self.replay.close(linger=0)
        self.context.term()
        for url in (self.events_url, self.replay_url):
            if url.startswith("ipc://"):
                Path(url.removeprefix("ipc://")).unlink(missing_ok=True)


def publishes(settings: Settings, asked: str) -> bool:
    """Where somebody asked for it, and behind a router, if nobody else can read it there."""
    return bool(asked or settings.router_dir or (settings.redis_url and zmq.has("curve")))


def open_sockets(
    settings: Settings, seal: Seal = OPEN, name: str = "", asked: str | None = None
) -> EventSockets:
    """Bind both sockets: at the address `asked` for (None: `kv_events`) and beside it, open to all; else where only
    the routers can read.

    That is below `router_dir`, by a `name` that no other worker there has; or, for routers elsewhere, at free ports of
    the worker's address with `seal` on them.

    Errors  CacheError(BAD_CONFIG) for an address that cannot be had
    """
    address = settings.kv_events if asked is None else asked
    if address:
        return _opened(settings, address, OPEN)
    if settings.router_dir:
        with _swept_home(settings.router_dir) as home:
            return _opened(settings, f"ipc://{home}/{_IN_HOME}{name[:6]}", OPEN)
    return _opened(settings, f"tcp://{_numeric(settings.host)}:*", seal)


def _opened(settings: Settings, wanted: str, seal: Seal) -> EventSockets:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    events, replay = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
    try:
        for one, limit in ((events, SEND_LIMIT), (replay, REPLAY_LIMIT)):
            one.set(zmq.SNDHWM, limit)
            seal.publisher(one)
        replay.set(zmq.RCVHWM, REPLAY_LIMIT)
        replay.set(zmq.MAXMSGSIZE, REQUEST_BYTES)
        replay.set(zmq.ROUTER_MANDATORY, 1)
        at = _bind(events, wanted)
        beside = _bind(replay, replay_address(wanted))
    except CacheError:
        events.close(linger=0)
        replay.close(linger=0)
        context.term()
        raise
    host = urlsplit(settings.advertise_url).hostname or ""
    told = [seal.mark + _reachable(address, host) for address in (at, beside)]
    return EventSockets(context, events, replay, *told)


@contextmanager
def _swept_home(router_dir: str) -> Iterator[Path]:
    """Where a router's folder has its sockets, which nobody else can look into; one worker at a time.

    What workers that are dead have left there is removed. Errors: BAD_CONFIG
    """
    try:
        home = socket_path(Path(router_dir).expanduser().absolute()).parent
        with (home / "events.lock").open("w") as lock:
            # Without a lock another one's address that is bound, and not listened at yet, would be removed.
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left in home.glob(f"{_IN_HOME}*"):
                if not _answers(left):
                    left.unlink(missing_ok=True)
            yield home
    except OSError as error:
        raise CacheError(
            Kind.BAD_CONFIG,
            f"cannot publish events in {router_dir} ({error.strerror}); name addresses in kv_events and "
            "session_events",
        ) from None


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        return not line.connect_ex(str(path))


def replay_address(events: str) -> str:
    """The next port, or the path with `.replay` behind it; a free port beside a free port."""
    head, _, port = events.rpartition(":")
    if not events.startswith("tcp://"):
        return f"{events}.replay"
    return f"{head}:{int(port) + 1}" if port.isdigit() and int(port) else f"{head}:*"


def _bind(one: "zmq.Socket[bytes]", address: str) -> str:
    """The address that it got."""
    one.set(zmq.IPV6, int("[" in address))
    try:
        if not _ADDRESS.fullmatch(address):
            raise zmq.ZMQError(errno.EINVAL)
        one.bind(address)
    except zmq.ZMQError as error:
        raise CacheError(
            Kind.BAD_CONFIG,
            f"cannot publish events at {address} ({error.strerror}); an address for events is tcp://IP:PORT with "
            "two free ports in a row, or ipc://PATH",
        ) from None
    if address.startswith("ipc://"):
        Path(address.removeprefix("ipc://")).chmod(0o600)
    return one.get_string(zmq.LAST_ENDPOINT)


def _reachable(bound: str, advertised: str) -> str:
    """What to connect to: an address for every interface becomes the one that the worker is told to advertise."""
    if not bound.startswith("tcp://"):
        return bound
    host, _, port = bound.removeprefix("tcp://").rpartition(":")
    if host.strip("[]") not in _EVERYWHERE:
        return bound
    named = advertised or "127.0.0.1"
    return f"tcp://[{named}]:{port}" if ":" in named else f"tcp://{named}:{port}"


def _numeric(host: str) -> str:
    """ZeroMQ binds to addresses, not to names. Errors: BAD_CONFIG."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise CacheError(
            Kind.BAD_CONFIG, f"cannot listen on {host} ({error}); choose another with --host"
        ) from None
    return f"[{found}]" if ":" in str(found) else str(found)
