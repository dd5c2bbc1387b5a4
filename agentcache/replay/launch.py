"""A worker of our own for the demo: the real `agentcache serve` in a process that ends with the block."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agentcache.clock import Clock
from agentcache.errors import CacheError, Kind
from agentcache.replay.client import WorkerClient

HOST = "127.0.0.1"
START_S = 180.0
STOP_S = 20.0
POLL_S = 0.1
LOG_TAIL_BYTES = 2000
SERVE = ("serve", "--dtype", "float32", "--host", HOST)


@dataclass(frozen=True, slots=True)
class Launched:
    """A worker process: where it will listen and what it wrote."""

    process: Process
    url: str
    log: Path

    async def until_ready(self, client: WorkerClient, clock: Clock) -> None:
        """Wait until it takes requests.

        Errors  CacheError(UNREACHABLE) with the end of its log: it ended, or is not ready after `START_S`
        """
        deadline_ns = clock.now_ns() + int(START_S * 1e9)
        while not await client.is_ready():
            if self.process.returncode is not None:
                raise self._failed(f"the worker ended with code {self.process.returncode}")
            if clock.now_ns() > deadline_ns:
                raise self._failed(f"the worker is not ready after {START_S:.0f} s")
            await asyncio.sleep(POLL_S)

    def _failed(self, what: str) -> CacheError:
        text = self.log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()
        return CacheError(Kind.UNREACHABLE, f"{what}. The end of its log {self.log}:\n{text}")


@asynccontextmanager
async def launched_worker(model: str, log: Path) -> AsyncIterator[Launched]:
    """Start `agentcache serve` with `model` as SERVE says, on a free port of the loopback; end it with the block.

    What it prints goes to `log`. It is ended by its process id: SIGTERM, and SIGKILL if it has not gone in `STOP_S`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    arguments = (*SERVE, "--model", model, "--port", str(port))
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agentcache", *arguments, stdout=written, stderr=written, env=_environment()
        )
    try:
        yield Launched(process, f"http://{HOST}:{port}", log)
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def _free_port() -> int:
    """A port that was free a moment ago; the worker fails with a clear message if somebody is faster."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])
