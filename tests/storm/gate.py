"""A TCP gate in front of one worker: requests can be held, cut, and delivered a second time."""

import asyncio
import os
import re
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field

HOST = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.1"
"""An address that only this run listens on: processes that start again come back to ports that nobody has taken."""
SECOND_WAIT_S = 5.0
KEPT_REQUESTS = 8
_TAG = re.compile(rb"(?i)(x-agentcache-tag: *)([^\r]+)")
_SERVED = re.compile(rb"HTTP/1\.1 200 ")


@dataclass(slots=True)
class Passage:
    """One connection through the gate: its two sides, and the last request that came through."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    request: bytearray = field(default_factory=bytearray)

    def cut(self) -> None:
        for side in (self.client, self.server):
            side.transport.abort()


class Gate:
    """Listens for routers and forwards to a worker. While it is shut, what comes is kept and not forwarded."""

    def __init__(self, worker_port: int) -> None:
        self._worker_port = worker_port
        self._open = asyncio.Event()
        self._open.set()
        self._passages: list[Passage] = []
        self._holding = 0
        self._seen: deque[bytes] = deque(maxlen=KEPT_REQUESTS)
        self.port = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        self._open.set()
        while self._passages:
            self.cut()
            await asyncio.sleep(0)

    def shut(self) -> None:
        """Hold what comes from routers from now on: late and reordered delivery."""
        self._open.clear()

    def release(self) -> None:
        """Let through what was held, unless it is held for some time."""
        if not self._holding:
            self._open.set()

    async def hold(self, seconds: float) -> None:
        """Hold what comes for so long, whoever releases meanwhile."""
        self._holding += 1
        self.shut()
        await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=seconds)
        self._holding -= 1
        self.release()

    def cut(self) -> None:
        """Break every connection that is open now."""
        for passage in self._passages:
            passage.cut()

    async def deliver_again(self) -> int:
        """Send a request that was served once more; answers the status, 0 when there is nothing or nobody."""
        return await self._status(self._seen[-1], self._worker_port) if self._seen else 0

    async def deliver_to(self, other: "Gate") -> int:
        """Send a request that was for this worker to another one."""
        return await self._status(self._seen[-1], other._worker_port) if self._seen else 0

    async def deliver_with(self, tag: str) -> int:
        """Send a request with another tag."""
        if not self._seen:
            return 0
        request = _TAG.sub(lambda found: found[1] + tag.encode(), self._seen[-1])
        return await self._status(request, self._worker_port)

    def tag(self) -> str:
        """The tag of the last request that was served; "" where there is none."""
        found = _TAG.search(self._seen[-1]) if self._seen else None
        return found[2].decode().strip() if found else ""

    async def _status(self, request: bytes, port: int) -> int:
        with suppress(OSError, asyncio.TimeoutError, ValueError, IndexError):
            return await asyncio.wait_for(self._send(request, port), SECOND_WAIT_S)
        return 0

    async def _send(self, request: bytes, port: int) -> int:
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            writer.write(request)
            await writer.drain()
            return int((await reader.readline()).split()[1])
        finally:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self._worker_port)
        except OSError:
            writer.transport.abort()
            return
        passage = Passage(writer, far_writer)
        self._passages.append(passage)
        try:
            await asyncio.gather(self._inward(passage, reader), self._outward(passage, far_reader))
        except OSError:
            passage.cut()
        finally:
            passage.cut()
            self._passages.remove(passage)

    async def _inward(self, passage: Passage, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            await self._open.wait()
            if data.startswith(b"POST "):
                passage.request.clear()
            passage.request += data
            passage.server.write(data)
            await passage.server.drain()
        passage.cut()

    async def _outward(self, passage: Passage, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65536):
            self._keep(passage, data)
            passage.client.write(data)
            await passage.client.drain()
        passage.cut()

    def _keep(self, passage: Passage, answer: bytes) -> None:
        """An answer begins, so what came before it was a whole request; one that was served is kept."""
        if _SERVED.match(answer) and _TAG.search(passage.request):
            self._seen.append(bytes(passage.request))
        passage.request.clear()


def spawn(tasks: set[asyncio.Task[object]], work: Coroutine[object, object, object]) -> asyncio.Task[object]:
    """Start a task that is kept until it is done."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
