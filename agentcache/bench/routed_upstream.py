"""The worker of `bench routed`: answers every turn with 20 events, 20 ms apart, and is registered like any worker.

It computes nothing, so that what is measured is the way there. Every turn calls a tool, as an agent's do; what a router
says of how long it will take is answered at once.
"""

import asyncio
import json
import os
import sys
import time
import uuid
from pathlib import Path

from agentcache.store.api import StoreRules
from agentcache.store.connect import connect, join_home
from agentcache.wire import WorkerCard, WorkerLoad

EVENTS = 20
APART_S = 0.02
CALL_ID, TOOL = "call_1", "bash"
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
_CALLED = {"index": 0, "id": CALL_ID, "type": "function", "function": {"name": TOOL, "arguments": '{"a": 1}'}}
CALL = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[%b]}}]}\n\n' % json.dumps(_CALLED).encode()
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
ANSWER = (*[WORD] * (EVENTS - 2), CALL, END)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
HEARD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
CHUNKS = tuple(b"%x\r\n%b\r\n" % (len(event), event) for event in ANSWER)


class Answering(asyncio.Protocol):
    """One connection: a request at a time, kept alive."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._received = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, mark, body = bytes(self._received).partition(b"\r\n\r\n")
        if not mark or len(body) < _length(head):
            return
        self._received.clear()
        if b"/pause " in head.partition(b"\r\n")[0]:
            self._transport.write(HEARD)
            return
        self._transport.write(HEAD + CHUNKS[0])
        self._send(1)

    def _send(self, sent: int) -> None:
        if self._transport.is_closing():
            return
        if sent < EVENTS:
            self._loop.call_later(APART_S, self._next, sent)
        else:
            self._transport.write(LAST)

    def _next(self, sent: int) -> None:
        self._transport.write(CHUNKS[sent])
        self._send(sent + 1)


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


async def answer(folder: Path) -> None:
    """Serve and stay registered until the parent ends our stdin. Prints the port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(loop), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url, _ = join_home(folder)
    desk = await connect(url, StoreRules())
    card = WorkerCard(
        worker="bench",
        incarnation=uuid.uuid4().hex,
        url=f"http://127.0.0.1:{port}",
        model="bench",
        context_tokens=1 << 20,
        page_tokens=128,
        grid_tokens=128,
        seats=1 << 16,
        queue_limit=1 << 16,
        started_ms=int(time.time() * 1000),
    )
    await desk.register(card)
    print(port, flush=True)
    ended = loop.run_in_executor(None, sys.stdin.read)
    while not ended.done():
        await desk.heartbeat(card.worker, card.incarnation, 0, WorkerLoad())
        await asyncio.wait({ended}, timeout=1.0)
    await desk.aclose()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(answer(Path(sys.argv[1])))
