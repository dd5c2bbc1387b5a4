"""A house of our own for the demo: a router, its Valkey and two workers, real processes that end with the block."""

import asyncio
import os
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.replay.client import WorkerClient, worker_client
from agentcache.replay.references import Site
from agentcache.store.connect import join_home
from agentcache.wire import TagSigner

HOST = "127.0.0.1"
START_S = 180.0
STOP_S = 20.0
POLL_S = 0.1
LOG_TAIL_BYTES = 2000
WORKERS = 2
SERVE = ("serve", "--dtype", "float32", "--host", HOST)


@dataclass(frozen=True, slots=True)
class Launched:
    """One process: where it will listen and what it wrote."""

    what: str
    process: Process
    url: str
    log: Path

    def require_alive(self) -> None:
        """Errors: CacheError(UNREACHABLE) with the end of its log."""
        if self.process.returncode is not None:
            raise self.failed(f"the {self.what} ended with code {self.process.returncode}")

    def failed(self, what: str) -> CacheError:
        text = self.log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        return CacheError(Kind.UNREACHABLE, f"{what}. The end of its log {self.log}:\n{text}")


@dataclass(frozen=True, slots=True)
class House:
    """A router and its workers."""

    router: Launched
    workers: tuple[Launched, ...]
    folder: Path

    async def until_ready(self, front: WorkerClient, clock: Clock) -> None:
        """Wait until the router has all workers.

        Errors  CacheError(UNREACHABLE) with the end of a log: a process ended, or is not ready after `START_S`
        """
        deadline_ns = clock.now_ns() + int(START_S * 1e9)
        while not await self._all_here(front):
            for one in (self.router, *self.workers):
                one.require_alive()
                if clock.now_ns() > deadline_ns:
                    raise one.failed(f"the {one.what} is not ready after {START_S:.0f} s")
            await asyncio.sleep(POLL_S)

    async def _all_here(self, front: WorkerClient) -> bool:
        if not await front.is_ready():
            return False
        return sum(bool(worker["alive"]) for worker in await front.workers()) == len(self.workers)

    def bearer(self, url: str) -> str:
        """What the operator says at a worker, once the router has started."""
        _, secret = join_home(self.folder)
        return TagSigner(secret).bearer(urlsplit(url).netloc, url)


@asynccontextmanager
async def launched_house(model: str, logs: Path) -> AsyncIterator[House]:
    """Start `agentcache router` and two `agentcache serve` with `model`, on free ports of the loopback.

    What they print goes to `demo-*.log` in `logs`; each computes with its share of the machine's cores. They are ended
    by process id: SIGTERM, and SIGKILL for what has not gone in `STOP_S`.
    """
    logs.mkdir(parents=True, exist_ok=True)
    threads = max(1, (os.cpu_count() or 1) // WORKERS)
    async with AsyncExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="agentcache-demo-")))
        home = ("--router-dir", str(folder))
        router = await _launch(ending, "router", ("router", "--host", HOST, *home), logs / "demo-router.log")
        while not (folder / "secret").exists():  # the workers look for it when they start
            router.require_alive()
            await asyncio.sleep(POLL_S)
        own = ("--model", model, "--threads", str(threads), *home)
        workers = [
            await _launch(ending, "worker", (*SERVE, *own), logs / f"demo-worker-{number}.log")
            for number in range(1, WORKERS + 1)
        ]
        yield House(router, tuple(workers), folder)


@asynccontextmanager
async def site_of(house: House, clock: Clock) -> AsyncIterator[Site]:
    """Clients of a house, once it is ready."""
    async with AsyncExitStack() as clients:
        front = await clients.enter_async_context(worker_client(house.router.url, clock))
        await house.until_ready(front, clock)
        workers = [
            await clients.enter_async_context(worker_client(one.url, clock, bearer=house.bearer(one.url)))
            for one in house.workers
        ]
        yield Site(front, tuple(workers))


async def _launch(ending: AsyncExitStack, what: str, arguments: tuple[str, ...], log: Path) -> Launched:
    port = _free_port()
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "agentcache",
            *arguments,
            "--port",
            str(port),
            stdout=written,
            stderr=written,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    ending.push_async_callback(_end, process)
    return Launched(what, process, f"http://{HOST}:{port}", log)


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def _free_port() -> int:
    """A port that was free a moment ago; the process fails with a clear message if somebody is faster."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])
