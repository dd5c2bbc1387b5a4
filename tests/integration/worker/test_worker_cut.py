"""Clients that close a stream in its middle, over sockets: one line of the log each, and nothing of asyncio's."""

import logging
import struct
from collections.abc import AsyncIterator
from socket import SO_LINGER, SOL_SOCKET

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from tests.integration.worker.test_worker_accounting import started
from tests.patience import until
from tests.routing import raw_client, serving
from tests.serving import nothing_left

CLIENTS, LINES = 10, 20
LONG = {"prompt": [5] * 8, "max_tokens": 3000, "ignore_eos": True, "stream": True}


@pytest_asyncio.fixture
async def worker() -> AsyncIterator[Worker]:
    one = started(model="tiny-full", full_slots=2048)
    try:
        yield one
        await one.thread.call(nothing_left)
    finally:
        await one.thread.stop(0)


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.asyncio
async def test_a_cut_stream_is_one_line(
    worker: Worker, caplog: pytest.LogCaptureFixture, reset: bool
) -> None:
    with capture_logs() as lines, caplog.at_level(logging.WARNING, "asyncio"):
        async with serving(create_app(worker)) as url:
            for _ in range(CLIENTS):
                async with raw_client(url, "/v1/completions", LONG) as (reader, writer):
                    for _ in range(LINES):
                        assert await reader.readline()
                    if reset:  # what is closed with this is not closed in order
                        lingering = struct.pack("ii", 1, 0)
                        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, lingering)
            await until(lambda: len(lines) == CLIENTS)
    assert {(line["event"], line["status"], line["reason"]) for line in lines} == {
        ("request", 499, "client_gone")
    }
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
