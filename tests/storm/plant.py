"""The processes of the fault machine: a Valkey, workers and routers, each killed and started again at its old address.

Workers and routers are forked from a server that has imported everything, so that a start takes milliseconds.
"""

import asyncio
import multiprocessing
import os
import secrets
import signal
import time
from collections.abc import Callable
from ctypes import c_longlong
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import redis

from agentcache.config import Settings
from agentcache.embedded import GuardedProcess, valkey_binary
from agentcache.router.serve import serve as serve_router
from agentcache.router.settings import RouterSettings
from agentcache.store.connect import read_secret
from agentcache.wire import SECRET_BYTES, TagSigner
from agentcache.worker.serve import serve as serve_worker
from tests.chosen import CORE
from tests.ports import free_ports
from tests.storm.gate import HOST, Gate

MODEL = {
    "engine": "accounting",
    "model": "tiny-all",
    "core": CORE,
    "page_tokens": 16,
    "grid_tokens": 16,
    "full_slots": 4096,
    "swa_slots": 4096,
    "mamba_slots": 4096,
    "max_running": 16,
    "accounting_decode_tokens_per_s": 400.0,
}
TTL_S = 40.0
"""Shorter than what a worker is not heard for until it is gone: when time jumps, sessions idle out and workers stay."""
LONG_S = 600.0
REOPEN_AFTER_S = 5.0
TENANTS = {"acme": "key-of-acme-alone", "blue": "key-of-blue-alone"}
ALONE = "p"
"""Ids that begin so are the first tenant's alone."""
OPERATORS_KEY = "key-of-the-operator"
PRELOAD = [
    "agentcache.worker.serve",
    "agentcache.router.serve",
    "agentcache.engine.build",
    "tests.storm.plant",
]


def run_worker(settings: dict[str, Any], skew: "Synchronized[int]", log: str) -> None:
    """A worker process."""
    _redirect(log)
    raise SystemExit(serve_worker(Settings(**settings), store_now_ms=_skewed(skew)))


def run_router(settings: dict[str, Any], skew: "Synchronized[int]", log: str) -> None:
    """A router process."""
    _redirect(log)
    raise SystemExit(serve_router(RouterSettings(**settings), store_now_ms=_skewed(skew)))


def _redirect(log: str) -> None:
    with Path(log).open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)


def _skewed(skew: "Synchronized[int]") -> Callable[[], int]:
    """The machine's wall clock, moved by the machine: all processes see the same store time."""
    return lambda: time.time_ns() // 1_000_000 + int(skew.value)


@dataclass(slots=True)
class Unit:
    """One process that can be killed and started again; `starts` counts its lives."""

    name: str
    port: int
    start: Callable[[], ForkServerProcess]
    process: ForkServerProcess
    starts: int = 1

    @property
    def alive(self) -> bool:
        return self.process.is_alive()

    def kill(self) -> None:
        self.process.kill()
        self.process.join(10)

    def restart(self) -> None:
        if not self.alive:
            self.process = self.start()
            self.starts += 1


@dataclass(slots=True)
class Plant:
    """Everything that runs. `skew_ms` moves the store's time for all of them."""

    folder: Path
    socket: Path
    signer: TagSigner
    skew: "Synchronized[int]"
    workers: list[Unit] = field(default_factory=list)
    routers: list[Unit] = field(default_factory=list)
    gates: list[Gate] = field(default_factory=list)
    server: GuardedProcess | None = None
    paused: bool = False

    def redis_call(self, *words: str) -> object:
        """One command to the Valkey, on a connection of its own."""
        with redis.Redis(unix_socket_path=str(self.socket), socket_timeout=2) as client:
            return client.execute_command(*words)

    def start_redis(self) -> None:
        """Start the Valkey unless it runs, and wait until it answers."""
        if self.server and self.server.alive:
            return
        self.socket.unlink(missing_ok=True)
        place = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        # Without fsyncs a write never waits for one, so a process that is killed loses nothing that it answered;
        # with one each second it may, and that is what a flush is for.
        kept = ["--save", "", "--appendonly", "yes", "--appendfsync", "no", "--daemonize", "no"]
        self.server = GuardedProcess([str(valkey_binary()), *place, *kept], self.folder / "valkey.log")
        self.paused = False

    def redis_pid(self) -> int:
        info = self.redis_call("INFO", "server")
        assert isinstance(info, dict)
        return int(info["process_id"])

    def kill_redis(self) -> None:
        """SIGKILL: what was answered lies in its file."""
        if self.server and self.server.alive:
            self.go_on()
            os.kill(self.redis_pid(), signal.SIGKILL)
            self.server.stop()

    def pause(self) -> None:
        if self.server and self.server.alive and not self.paused:
            self._pid = self.redis_pid()
            os.kill(self._pid, signal.SIGSTOP)
            self.paused = True

    def go_on(self) -> None:
        if self.paused:
            os.kill(self._pid, signal.SIGCONT)
            self.paused = False

    def logs(self, lines: int = 40) -> tuple[str, ...]:
        """The end of what each process has said."""
        ends = [
            (path, path.read_text(errors="replace").splitlines())
            for path in sorted(self.folder.glob("*.log"))
        ]
        return tuple(f"{path.name}: {line}" for path, said in ends for line in said[-lines:])

    def worker(self, name: str) -> Unit:
        return next(unit for unit in self.workers if unit.name == name)

    async def stop(self) -> None:
        self.go_on()
        for unit in (*self.routers, *self.workers):
            unit.kill()
        for gate in self.gates:
            await gate.stop()
        if self.server:
            self.server.stop()

    _pid: int = 0


async def build(folder: Path, units: int = 3) -> Plant:
    """Start everything."""
    (folder / "secret").write_bytes(secrets.token_bytes(SECRET_BYTES))
    (folder / "secret").chmod(0o600)
    keys = _write_keys(folder)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    skew = context.Value(c_longlong, 0)
    plant = Plant(folder, folder / "s.sock", TagSigner(read_secret(folder / "secret")), skew)
    plant.start_redis()
    link = {"redis_url": f"unix://{plant.socket}", "secret_file": str(folder / "secret")}
    ports = free_ports(2 * units)
    for port in ports[:units]:
        gate = Gate(port)
        await gate.start()
        plant.gates.append(gate)
    for number, (port, gate) in enumerate(zip(ports, plant.gates, strict=False)):
        worker = {
            **MODEL,
            **link,
            "host": HOST,
            "port": port,
            "worker_id": f"w{number}",
            "advertise_url": f"http://{HOST}:{gate.port}",
            "ttl_s": TTL_S,
        }
        plant.workers.append(_unit(context, run_worker, f"w{number}", worker, plant))
    for number, port in enumerate(ports[units:]):
        router = {
            **link,
            **keys,
            "host": HOST,
            "port": port,
            "ttl_s": TTL_S,
            "reopen_after_s": REOPEN_AFTER_S,
        }
        plant.routers.append(_unit(context, run_router, f"r{number}", router, plant))
    return plant


def _write_keys(folder: Path) -> dict[str, str]:
    """The API keys of tenants and operator, as settings of a router."""
    said = [f'[[tenant]]\nname = "{name}"\nkeys = ["{key}"]\n' for name, key in TENANTS.items()]
    (folder / "tenants.toml").write_text("\n".join(said))
    (folder / "operator").write_text(OPERATORS_KEY)
    for name in ("tenants.toml", "operator"):
        (folder / name).chmod(0o600)
    return {"tenants_file": str(folder / "tenants.toml"), "admin_key_file": str(folder / "operator")}


def _unit(context: Any, target: Any, name: str, settings: dict[str, Any], plant: Plant) -> Unit:
    def start() -> ForkServerProcess:
        log = str(plant.folder / f"{name}.log")
        process: ForkServerProcess = context.Process(
            target=target, args=(settings, plant.skew, log), name=name, daemon=True
        )
        process.start()
        return process

    return Unit(name, settings["port"], start, start())


async def listening(port: int, deadline_s: float) -> bool:
    """Whether somebody accepts connections there before the deadline."""
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await moment(0.05)
            continue
        writer.close()
        return True
    return False


async def moment(seconds: float) -> None:
    """Let others work before a condition is looked at again."""
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=seconds)
