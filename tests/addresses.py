"""What lies between a store and its servers: a name that leads elsewhere, a line that breaks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from agentcache.store.api import Store, StoreRules
from agentcache.store.connect import connect
from tests.patience import PATIENCE_S

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[object, object, None]]


@asynccontextmanager
async def served_by(
    serve: Serve, path: Path, now_ms: Callable[[], int] | None = None
) -> AsyncIterator[Store]:
    """A store whose server is `serve`, for each connection anew."""
    serving: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_unix_server(accept, path)
    try:
        async with aclosing(
            await connect(f"unix://{path}", StoreRules(), now_ms=now_ms, call_s=PATIENCE_S)
        ) as store:
            yield store
    finally:
        server.close()
        await asyncio.gather(*serving)


class Address:
    """What a name leads to: connections that are there stay where they are when it changes."""

    def __init__(self, behind: Path) -> None:
        self.behind = behind
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_unix_connection(self.behind)
        await asyncio.gather(_pour(reader, far_writer), _pour(far_reader, writer))
        for side in (writer, far_writer):
            await side.wait_closed()


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
    target.close()


class LostAnswers:
    """A line that breaks before the answer to what was asked last, as often as told, and is whole again after that."""

    def __init__(self, behind: Path) -> None:
        self.lose = 0
        self._behind = behind

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._behind)
        while asked := await reader.read(65536):
            far_writer.write(asked)
            answer = await far_reader.read(65536)
            if self.lose and b"EVALSHA" in asked and not answer.startswith(b"-NOSCRIPT"):
                self.lose -= 1
                break
            writer.write(answer)
        for side in (writer, far_writer):
            side.close()
            await side.wait_closed()
