"""The processes behind a Mooncake store, the client's and a master of our own, and the line to the first."""

import fcntl
import json
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO
from urllib.request import ProxyHandler, build_opener

from agentcache.clock import Clock
from agentcache.embedded import FIRST_HIGH_DESCRIPTOR, GuardedProcess, last_words, make_folder, require_memory
from agentcache.errors import CacheError, Kind

SMALLEST_BYTES = 16 << 20
START_NS = 10_000_000_000
PAUSE_S = 0.003
CONNECT_S = 1.0
ANSWER_S = 10.0  # a call on a dead master ends after 4.3 s
LOOPBACK = "127.0.0.1"
LEASE_MS = 1000  # how long a read keeps an object from leaving
PROCESS = "agentcache.tiers.stores.mooncake_process"
MASTER_TRIES = 3
COUNTER = re.compile(r"^(master_\w+) (\d+)$", re.MULTILINE)
OPENER = build_opener(ProxyHandler({}))  # the master's page is on this machine
INSTALL = (
    "install it with `make mooncake`, or pip install 'agentcache[mooncake]' (Linux, Python 3.11 to 3.13)"
)
MISSING_LIBRARY = (
    "the system library libibverbs is missing, which Mooncake needs: apt-get install libibverbs1"
)


class Line:
    """A connection to the process of the client: one question at a time."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_S)
        self._socket.connect(str(path))
        self._stream: BinaryIO = self._socket.makefile("rb")

    def ask(self, asked: dict[str, Any], objects: Sequence[bytes] = ()) -> tuple[list[int], list[bytes]]:
        """Codes, and the objects of those that are sizes in the answer to a get.

        Errors  OSError, after which the line is of no use
        """
        self._socket.sendall(json.dumps(asked).encode() + b"\n")
        for data in objects:
            self._socket.sendall(data)
        head = self._stream.readline()
        if not head.endswith(b"\n"):
            raise ConnectionResetError("the process of the Mooncake client ended")
        codes: list[int] = json.loads(head)["codes"]
        sizes = [code for code in codes if code > 0] if asked["do"] == "get" else []
        found = [self._stream.read(size) for size in sizes]
        if list(map(len, found)) != sizes:
            raise ConnectionResetError("the process of the Mooncake client ended in an object")
        return codes, found

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


class Servers:
    """The processes behind a store: the client's, and the master's where it is ours. One thread at a time."""

    def __init__(self, address: str, capacity_bytes: int, folder: Path, clock: Clock) -> None:
        self.address = address
        self.capacity_bytes = capacity_bytes
        self._is_ours = not address
        self._folder = folder
        self._clock = clock
        self._metrics_port = 0
        self._running: list[GuardedProcess] = []  # the master first
        self._home = tempfile.TemporaryDirectory(prefix="agentcache-", ignore_cleanup_errors=True)
        self._socket = Path(self._home.name) / "client.sock"

    def check(self) -> None:
        """What can be told without starting anything.

        Errors  CacheError(BAD_CONFIG)
        """
        if not find_spec("mooncake"):
            raise _refusal(f"Mooncake is not installed: {INSTALL}")
        if self.capacity_bytes or self._is_ours:
            require_memory(self.capacity_bytes, "memory lent to Mooncake")
            if self.capacity_bytes < SMALLEST_BYTES:
                raise _refusal(
                    f"Mooncake takes no less than {SMALLEST_BYTES} bytes", asked_bytes=self.capacity_bytes
                )
        make_folder(self._folder)

    @property
    def largest_bytes(self) -> int:
        """What is over this never finds room."""
        return self.capacity_bytes if self._is_ours else sys.maxsize

    @property
    def alive(self) -> bool:
        return bool(self._running) and all(process.alive for process in self._running)

    def start(self) -> None:
        """Errors  CacheError(BAD_CONFIG)"""
        if self._is_ours:
            self.address = self._start_master()
        host, master = self._own_host(), self.address
        self._socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._socket))
            listener.listen(64)
            descriptor = fcntl.fcntl(listener, fcntl.F_DUPFD_CLOEXEC, FIRST_HIGH_DESCRIPTOR)
            leave = "no farewell" if self._is_ours or not self.capacity_bytes else "farewell"
            words = [str(descriptor), host, master, str(self.capacity_bytes), leave]
            self._running.append(
                GuardedProcess(
                    [sys.executable, "-m", PROCESS, *words], self._log("client"), keep=[descriptor]
                )
            )
            os.close(descriptor)
        try:
            with closing(self.connect()) as line:
                line.ask({"do": "hello"})
        except TimeoutError as late:
            raise _refusal(f"{self.address} does not answer as a Mooncake master does") from late
        except OSError as ended:
            raise self._died("client") from ended

    def connect(self) -> Line:
        """Errors  OSError"""
        return Line(self._socket)

    def counts(self) -> dict[str, int]:
        """The counters of a master of our own, by their names; empty where it cannot be asked."""
        if not self._metrics_port:
            return {}
        url = f"http://{LOOPBACK}:{self._metrics_port}/metrics"
        with suppress(OSError, HTTPException), OPENER.open(url, None, CONNECT_S) as page:
            return {name: int(count) for name, count in COUNTER.findall(page.read().decode())}
        return {}

    def stop(self) -> None:
        """End them, the client first. They may be started again. Idempotent."""
        while self._running:
            self._running.pop().stop()

    def close(self) -> None:
        self.stop()
        self._home.cleanup()

    def _start_master(self) -> str:
        """A port that was free may be taken a moment later, so there is more than one try."""
        for _ in range(MASTER_TRIES):
            rpc_port, metrics_port = _free_ports(2)
            options = [
                *(f"--rpc_address={LOOPBACK}", f"--rpc_port={rpc_port}", "--rpc_thread_num=2"),
                *(f"--metrics_host={LOOPBACK}", f"--metrics_port={metrics_port}"),
                *(f"--default_kv_lease_ttl={LEASE_MS}", "--minloglevel=2", "--logtostderr=1"),
            ]
            master = GuardedProcess([str(master_binary()), *options], self._log("master"))
            deadline = self._clock.now_ns() + START_NS
            while master.alive and self._clock.now_ns() < deadline:
                with suppress(OSError), socket.create_connection((LOOPBACK, rpc_port), CONNECT_S):
                    self._running.append(master)
                    self._metrics_port = metrics_port
                    return f"{LOOPBACK}:{rpc_port}"
                time.sleep(PAUSE_S)
            master.stop()
        raise self._died("master")

    def _own_host(self) -> str:
        """The address of this machine as the master sees it.

        Errors  CacheError(BAD_CONFIG)
        """
        host, _, port = self.address.rpartition(":")
        if not (host and port.isdecimal()):
            raise _refusal(f"{self.address!r} is no address of a Mooncake master: it is HOST:PORT")
        try:
            with socket.create_connection((host, int(port)), CONNECT_S) as line:
                own: str = line.getsockname()[0]
                return own
        except (OSError, OverflowError) as bad:
            why = f"no Mooncake master answers at {self.address} ({bad}): start mooncake_master, or correct the address"
            raise _refusal(why) from bad

    def _log(self, who: str) -> Path:
        return self._folder / f"mooncake-{who}.log"

    def _died(self, who: str) -> CacheError:
        said = last_words(self._log(who))
        if "libibverbs" in said:
            return _refusal(MISSING_LIBRARY)
        return _refusal(
            f"the Mooncake {who} of our own did not start; it said: {said}", log=str(self._log(who))
        )


def _refusal(why: str, **facts: object) -> CacheError:
    return CacheError(Kind.BAD_CONFIG, why, **facts)


def master_binary() -> Path:
    """The master of the installed Mooncake."""
    roots = getattr(find_spec("mooncake"), "submodule_search_locations", None) or [""]
    return Path(roots[0]) / "mooncake_master"


def _free_ports(count: int) -> list[int]:
    """Ports of the loopback that were free a moment ago."""
    with ExitStack() as taken:
        lines = [taken.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [line.getsockname()[1] for line in lines]
