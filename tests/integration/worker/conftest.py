"""Workers over the real engine on tiny checkpoints; after every test nothing may be left behind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from agentcache.worker.context import Worker
from tests.serving import at_rest, client_of, empty, leaves_nothing, save_tiny_checkpoint, started_worker


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with all three components and our tokenizer."""
    return save_tiny_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def shared_worker(checkpoint: Path) -> Iterator[Worker]:
    worker = started_worker(checkpoint)
    yield worker
    asyncio.run(worker.thread.stop(0))


@pytest_asyncio.fixture
async def worker(shared_worker: Worker) -> AsyncIterator[Worker]:
    """The shared worker, with an empty cache and no open session; checked after the test."""
    await at_rest(shared_worker)
    await shared_worker.thread.call(empty)
    yield shared_worker
    await leaves_nothing(shared_worker)
    await shared_worker.thread.call(empty)


@pytest_asyncio.fixture
async def client(worker: Worker) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(worker) as open_client:
        yield open_client
