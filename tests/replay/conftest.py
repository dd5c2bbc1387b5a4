"""A real worker over HTTP on a tiny checkpoint, and a small trace to replay against it."""

import asyncio
import io
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
import uvicorn

from agentcache import logs
from agentcache.config import Settings
from agentcache.engine.build import build_engine, load_tokenizer_for
from agentcache.engine.thread import EngineThread
from agentcache.web.listening import bind, url_of
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.serve import make_worker
from tests.accounting import SIZES
from tests.patience import PATIENCE_S, until
from tests.serving import at_rest, empty, no_references, nothing_left, save_tiny_checkpoint, started_worker

SYSTEM = "You repair small programs. " * 12
NAMES = ("slow-parser", "lost-update", "wrong-sum")


class Announcing(uvicorn.Server):
    """Says when it takes requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()


@dataclass(frozen=True)
class Served:
    """A worker, its address, and its server in a thread of its own."""

    worker: Worker
    url: str
    server: uvicorn.Server

    async def answered(self) -> None:
        """Wait until it has done with every request of clients that have all left, those that it has not read too."""
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as last:
            await last.get(f"{self.url}/health")  # whoever connected before is known by now
        state = self.server.server_state
        await until(lambda: not (state.connections or state.tasks))

    async def emptied(self) -> None:
        """Forget everything, whatever a test before this one has left."""
        await self.answered()
        await at_rest(self.worker)
        await self.worker.thread.call(empty)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@contextmanager
def serving(worker: Worker) -> Iterator[Served]:
    """A started worker at an address, until the block ends."""
    listener = bind("127.0.0.1", 0)
    server = Announcing(uvicorn.Config(create_app(worker), log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    assert server.is_up.wait(timeout=PATIENCE_S)
    yield Served(worker, url_of(listener), server)
    server.should_exit = True
    thread.join(timeout=PATIENCE_S)
    asyncio.run(worker.thread.stop(0))


@pytest.fixture(scope="session")
def shared(checkpoint: Path) -> Iterator[Served]:
    with serving(started_worker(checkpoint)) as served:
        yield served


@pytest.fixture(scope="session")
def shared_counting() -> Iterator[Served]:
    with serving(keeping_account("tiny-full", full_slots=2048)) as served:
        yield served


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    """The shared worker with an empty cache; after the test no request, session or reference is left."""
    with emptied(shared):
        yield shared


@pytest.fixture
def counting(shared_counting: Served) -> Iterator[Served]:
    """The same for a worker with full attention that keeps account: 2,048 pages of 4 tokens."""
    with emptied(shared_counting):
        yield shared_counting


@contextmanager
def emptied(served: Served) -> Iterator[None]:
    """Its log lines go to a buffer: stdout belongs to the command under test."""
    logs.configure("text", "info", io.StringIO())
    try:
        asyncio.run(served.emptied())
        yield
        asyncio.run(served.answered())
        asyncio.run(served.worker.thread.call(nothing_left))
        asyncio.run(served.worker.thread.call(no_references))
    finally:
        structlog.reset_defaults()


def keeping_account(model: str, **changes: Any) -> Worker:
    """A worker that computes nothing. Caller: ends its thread."""
    settings = Settings.model_validate({"engine": "accounting", "model": model, **SIZES, **changes})
    thread = EngineThread(lambda: build_engine(settings))
    return make_worker(thread, thread.start().info, load_tokenizer_for(settings), settings)


def trajectory(name: str, turns: int, words: int) -> dict[str, Any]:
    """A conversation whose every observation is `words` words long."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Repair {name}."}]
    for turn in range(turns):
        messages.append({"role": "assistant", "content": f"I look at part {turn} of {name}."})
        messages.append({"role": "user", "content": f"<output>{name} {turn} " + "line of code " * words})
    return {"instance_id": name, "trajectory_format": "mini-swe-agent-1", "messages": messages}


def write_trace(path: Path, sessions: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(session) + "\n" for session in sessions), encoding="utf-8")
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three sessions of four turns that share their system prompt."""
    return write_trace(tmp_path / "small.jsonl", [trajectory(name, 4, 30) for name in NAMES])
