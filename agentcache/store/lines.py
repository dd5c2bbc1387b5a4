"""Connections of a session store: to one server, or to all of a cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AskError, NoScriptError
from redis.exceptions import ConnectionError as Disconnected

from agentcache.store.lua import Script
from agentcache.store.pipe import CALL_S, PING_S, Listener, Pipe, Words

SCAN_KEYS = 1000
ADMIN_S = 5.0  # a call that no request waits for
CONNECTING = 0.5  # of the time that a call has
MOVING_S = 0.1
CLUSTER_PAUSES = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)
"""Seconds before a call is sent again: pools may hold connections to nodes that are gone, and others close theirs."""


Ask = Callable[[], Awaitable[Any]]


class ServerLine:
    """One server: everything over one connection, but for what waits there."""

    def __init__(self, url: str, address: str, ping_s: float = PING_S, call_s: float = CALL_S) -> None:
        self.address = address
        self._url = url
        self._call_s = call_s
        # Waits are the pipe's own: it limits whole batches, and repeats what may be repeated.
        self._pool = ConnectionPool.from_url(
            url,
            protocol=2,
            decode_responses=True,
            socket_connect_timeout=CONNECTING * call_s,
            socket_timeout=None,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,
        )
        self._pipe = Pipe(self._connect, ping_s, call_s)
        self._listeners: dict[str, Listener] = {}

    async def evaluate(self, script: Script, words: Words) -> Any:
        return await self._pipe.evaluate(script, words)

    async def command(self, *words: str | int) -> Any:
        return await self._pipe.command(*words)

    async def listen(self, name: str, stream: str, after: str, count: int, wait_s: float) -> list[Any]:
        if name not in self._listeners:
            self._listeners[name] = Listener(self._connect, self._call_s)
        return await self._listeners[name].read(stream, after, count, wait_s, self._pipe.lines)

    async def sweep_out(self, pattern: str) -> None:
        client = Redis.from_url(self._url, socket_timeout=ADMIN_S)
        async with client:
            async for key in client.scan_iter(match=pattern, count=SCAN_KEYS):
                await client.unlink(key)

    async def info(self) -> dict[str, Any]:
        said = str(await self.command("INFO"))
        lines = (line.partition(":") for line in said.splitlines() if ":" in line)
        return {name: int(value) if value.isdecimal() else value for name, _, value in lines}

    async def close(self) -> None:
        await self._pipe.close()
        for listener in self._listeners.values():
            await listener.close()

    def _connect(self) -> AbstractConnection:
        line: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        return line


class ClusterLine:
    """The servers of a cluster, with a pool of connections to each, which the client keeps.

    A call goes on when its caller is cancelled, so that its reply is read by nobody else. One whose connection breaks
    is sent again: whenever one call finds a node gone, the client closes connections of others.
    """

    def __init__(self, url: str, address: str, call_s: float = CALL_S) -> None:
        self.address = address
        self._call_s = call_s
        self._client = RedisCluster.from_url(
            url,
            protocol=2,
            decode_responses=True,
            socket_connect_timeout=CONNECTING * call_s,
            socket_timeout=call_s,
            retry=Retry(NoBackoff(), 1),
        )
        self._going: set[asyncio.Task[Any]] = set()
        self._listeners: dict[tuple[str, str], Listener] = {}

    async def evaluate(self, script: Script, words: Words) -> Any:
        return await self._asked(partial(self._evaluate, script, words))

    async def listen(self, name: str, stream: str, after: str, count: int, wait_s: float) -> list[Any]:
        """Over a connection to the node that has the stream, which is the stream's own."""
        node = self._client.get_node_from_key(stream)
        at = (stream, node.name if node else "")
        if node and at not in self._listeners:
            for elsewhere in [one for one in self._listeners if one[0] == stream]:
                await self._listeners.pop(elsewhere).close()
            self._listeners[at] = Listener(partial(_connection, node), self._call_s)
        try:
            return await self._listeners[at].read(stream, after, count, wait_s)
        except AskError:  # the shard is moving, or has moved: the next call learns where to
            await asyncio.sleep(MOVING_S)
            return []

    async def sweep_out(self, pattern: str) -> None:
        async for key in self._client.scan_iter(match=pattern, count=SCAN_KEYS):
            await self._client.unlink(key)

    async def info(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._asked(self._info)
        return {**found, "role": "master"}

    async def close(self) -> None:
        for call in self._going:
            call.cancel()
        await asyncio.gather(*self._going, return_exceptions=True)
        for listener in self._listeners.values():
            await listener.close()
        await self._client.aclose()

    async def _asked(self, ask: Ask) -> Any:
        call = asyncio.create_task(_insisting(ask))
        self._going.add(call)
        call.add_done_callback(self._ended)
        async with asyncio.timeout(2 * self._call_s):  # with a look for where the shard is now
            return await asyncio.shield(call)

    async def _info(self) -> Any:
        await self._client.initialize()
        return await self._client.info(target_nodes=RedisCluster.RANDOM)

    async def _evaluate(self, script: Script, words: Words) -> Any:
        try:
            return await self._client.execute_command("EVALSHA", script.digest, *words)
        except NoScriptError:
            return await self._client.execute_command("EVAL", script.text, *words)

    def _ended(self, call: asyncio.Task[Any]) -> None:
        self._going.discard(call)
        if not call.cancelled():
            call.exception()  # the caller has it, or has gone


def _connection(node: ClusterNode) -> AbstractConnection:
    """One more to a node, with no limit to a wait."""
    options = {**node.connection_kwargs, "socket_timeout": None, "retry": Retry(NoBackoff(), 0)}
    return node.connection_class(**options)


async def _insisting(ask: Ask) -> Any:
    """Errors: redis's own. A connection that is closed while it is used is an AttributeError of the client's."""
    for pause_s in CLUSTER_PAUSES:
        with suppress(Disconnected, AttributeError):
            return await ask()
        await asyncio.sleep(pause_s)
    try:
        return await ask()
    except AttributeError as broken:
        raise Disconnected(str(broken)) from broken
