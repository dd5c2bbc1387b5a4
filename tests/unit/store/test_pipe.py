"""One connection for a whole loop: no reply goes to another caller, whatever callers, connection and server do."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import redis
from redis.asyncio.connection import UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from agentcache.clock import SystemClock
from agentcache.embedded import EmbeddedServer, ServerOptions, open_embedded
from agentcache.store.lua import Script
from agentcache.store.pipe import FAILURES, Pipe
from tests.patience import PATIENCE_S, pass_time

pytestmark = pytest.mark.asyncio
ECHO = Script("echo", "return ARGV[1]")
CALLS = 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    one = open_embedded(tmp_path_factory.mktemp("valkey"), ServerOptions(), SystemClock())
    yield one
    one.close()


def connecting(path: Path) -> Callable[[], UnixDomainSocketConnection]:
    return lambda: UnixDomainSocketConnection(
        path=str(path), protocol=2, decode_responses=True, retry=Retry(NoBackoff(), 0)
    )


@pytest_asyncio.fixture
async def pipe(server: EmbeddedServer) -> AsyncIterator[Pipe]:
    one = Pipe(connecting(server.socket), call_s=PATIENCE_S)
    yield one
    await one.close()


class SlowProxy:
    """Between a pipe and its server: replies come in pieces, some time later; connections can be broken."""

    def __init__(self, behind: Path, chance: random.Random) -> None:
        self._behind = behind
        self._chance = chance
        self._sides: list[asyncio.StreamWriter] = []
        self.connections = 0

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[Path]:
        server = await asyncio.start_unix_server(self._serve, path)
        try:
            yield path
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        for side in self._sides:
            side.transport.abort()
        self._sides.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_unix_connection(self._behind)
        self._sides += [writer, far_writer]
        try:
            await asyncio.gather(_pour(reader, far_writer), self._drip(far_reader, writer))
        except OSError:
            far_writer.transport.abort()

    async def _drip(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(self._chance.randrange(1, 200)):
            for _ in range(self._chance.randrange(3)):
                await asyncio.sleep(0)
            target.write(data)
            await target.drain()


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.close()


async def test_calls_of_one_tick_go_out_together_and_each_gets_its_reply(pipe: Pipe) -> None:
    said = await asyncio.gather(*(pipe.evaluate(ECHO, (0, f"v{number}")) for number in range(600)))
    assert said == [f"v{number}" for number in range(600)]


async def test_a_burst_needs_one_connection_and_nobody_is_refused(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    """R137: 100 look-ups at once were refused by a pool of two."""
    proxy = SlowProxy(server.socket, random.Random(1))
    async with proxy.serving(tmp_path / "s") as path:
        pipe = Pipe(connecting(path), call_s=PATIENCE_S)
        said = await asyncio.gather(*(pipe.evaluate(ECHO, (0, str(number))) for number in range(100)))
        await pipe.close()
    assert said == [str(number) for number in range(100)]
    assert proxy.connections == 1


async def test_a_cancelled_call_leaves_its_reply_to_nobody(server: EmbeddedServer, tmp_path: Path) -> None:
    """R003: 1,000 cancellations through a slow proxy; every reply that comes is the caller's own."""
    chance = random.Random(2)
    proxy = SlowProxy(server.socket, chance)
    async with proxy.serving(tmp_path / "s") as path:
        pipe = Pipe(connecting(path), call_s=PATIENCE_S)

        async def ask(number: int) -> None:
            assert await pipe.evaluate(ECHO, (0, f"v{number}")) == f"v{number}"

        async def cancelled(number: int) -> bool:
            call = asyncio.ensure_future(ask(number))
            for _ in range(chance.randrange(12)):
                await asyncio.sleep(0)
            call.cancel()
            await ask(-number)
            await asyncio.wait({call})
            return call.cancelled()

        gone = [
            await asyncio.gather(*(cancelled(at + number) for number in range(50)))
            for at in range(0, CALLS, 50)
        ]
        await pipe.close()
    assert sum(map(sum, gone)) > CALLS / 2


async def test_a_connection_that_broke_is_made_again_for_the_same_call(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    proxy = SlowProxy(server.socket, random.Random(3))
    async with proxy.serving(tmp_path / "s") as path:
        pipe = Pipe(connecting(path), call_s=PATIENCE_S)
        assert await pipe.evaluate(ECHO, (0, "before")) == "before"
        proxy.cut()
        assert await pipe.evaluate(ECHO, (0, "after")) == "after"
        await pipe.close()
    assert proxy.connections == 2


async def test_scripts_that_the_server_forgot_are_sent_again(server: EmbeddedServer, pipe: Pipe) -> None:
    assert await pipe.evaluate(ECHO, (0, "one")) == "one"
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        client.script_flush()
    assert await asyncio.gather(*(pipe.evaluate(ECHO, (0, str(at))) for at in range(3))) == ["0", "1", "2"]


async def test_a_refusal_is_its_callers_alone(pipe: Pipe) -> None:
    wrong = asyncio.ensure_future(pipe.evaluate(Script("wrong", "return redis.call('NO-SUCH')"), (0, "x")))
    assert await pipe.evaluate(ECHO, (0, "right")) == "right"
    with pytest.raises(redis.ResponseError):
        await wrong


async def test_a_server_that_hangs_costs_its_callers_the_timeout(server: EmbeddedServer, pipe: Pipe) -> None:
    """R147: commands queued up behind a dead connection, and reads hung for minutes."""
    assert await pipe.evaluate(ECHO, (0, "before")) == "before"
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        info: Any = client.info("server")
    os.kill(int(info["process_id"]), signal.SIGSTOP)
    try:
        calls = asyncio.gather(
            *(pipe.evaluate(ECHO, (0, str(at))) for at in range(20)), return_exceptions=True
        )
        for _ in range(5):
            await asyncio.sleep(0)
        pass_time(PATIENCE_S)
        async with asyncio.timeout(PATIENCE_S / 2):
            said = await calls
    finally:
        os.kill(int(info["process_id"]), signal.SIGCONT)
    assert all(isinstance(answer, FAILURES) for answer in said)
    assert await pipe.evaluate(ECHO, (0, "after")) == "after"


async def test_nobody_there_is_an_error_at_once(tmp_path: Path) -> None:
    pipe = Pipe(connecting(tmp_path / "nobody"))
    with pytest.raises(FAILURES):
        await pipe.evaluate(ECHO, (0, "x"))
    await pipe.close()
    with pytest.raises(redis.ConnectionError, match="closed"):
        await pipe.evaluate(ECHO, (0, "x"))
