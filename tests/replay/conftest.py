"""A real worker over HTTP on a tiny checkpoint, and a small trace to replay against it."""

import asyncio
import io
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
import uvicorn

from agentcache import logs
from agentcache.web.listening import bind, url_of
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from tests.serving import no_references, nothing_left, save_tiny_checkpoint, started_worker

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
    """A worker and its address."""

    worker: Worker
    url: str


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def shared(checkpoint: Path) -> Iterator[Served]:
    worker = started_worker(checkpoint)
    listener = bind("127.0.0.1", 0)
    server = Announcing(uvicorn.Config(create_app(worker), log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    assert server.is_up.wait(timeout=20)
    yield Served(worker, url_of(listener))
    server.should_exit = True
    thread.join(timeout=20)
    asyncio.run(worker.thread.stop(0))


@pytest.fixture
def served(shared: Served) -> Iterator[Served]:
    """The shared worker with an empty cache; after the test no request, session or reference is left.

    Its log lines go to a buffer: stdout belongs to the command under test.
    """
    logs.configure("text", "info", io.StringIO())
    asyncio.run(shared.worker.thread.call(lambda engine: engine.cache.flush()))
    yield shared
    asyncio.run(shared.worker.thread.call(nothing_left))
    asyncio.run(shared.worker.thread.call(no_references))
    structlog.reset_defaults()


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
