"""One connection to a Redis for everything that an event loop asks: calls of one tick of the loop go out together.

Replies come in the order of the calls, and only the pipe reads them: a caller that is cancelled leaves its reply to
nobody, and no other caller gets it. A connection on which anything went wrong is dropped with all that it still owes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import hiredis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import (
    ClusterDownError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as Disconnected

from agentcache.store.lua import Script

CALL_S = 0.5
PING_S = 5.0
BATCH = 256

Words = tuple[str | int, ...]
Connect = Callable[[], AbstractConnection]
FAILURES = (RedisError, RedisClusterException, OSError, TimeoutError)
ELSEWHERE = (ReadOnlyError, ClusterDownError, TryAgainError)
"""Answers of a server that is no master, or not now: where the address leads to may be another one by now."""
ELSEWHERE_IN_A_SCRIPT = ("-READONLY ", "-MASTERDOWN ", "-CLUSTERDOWN ", "-TRYAGAIN ")
"""How Redis 6 says the same of a command in a script."""


class Call:
    """One command and who waits for its reply. `script`: the one that it names by its digest."""

    __slots__ = ("reply", "script", "words")

    def __init__(self, words: Words, script: Script | None, reply: "asyncio.Future[Any]") -> None:
        self.words = words
        self.script = script
        self.reply = reply

    def answer(self, said: object) -> None:
        """Hand over a reply, or the error that it is; to nobody if the caller has gone."""
        if self.reply.done():
            return
        if isinstance(said, BaseException):
            self.reply.set_exception(said)
        else:
            self.reply.set_result(said)


class Pipe:
    """Calls of one event loop over one connection.

    Caller  uses it in one event loop and closes it there
    Errors  redis's own, OSError or TimeoutError; a call that is sent when the connection breaks, or to a server that
            is no master any more, is sent once more over a new one, a late one is not
    Cost    a call waits at most `call_s` for its reply; one that comes while the server is silent not much longer
    """

    def __init__(self, connect: Connect, ping_s: float = PING_S, call_s: float = CALL_S) -> None:
        self._connect = connect
        self._call_s = call_s
        self._ping_s = ping_s
        self._waiting: deque[Call] = deque()
        self._line: AbstractConnection | None = None
        self._sender: asyncio.Task[None] | None = None
        self._pinger: asyncio.Task[None] | None = None
        self._used = False
        self._closed = False
        self.lines = 0
        """Connections that were made so far."""

    async def evaluate(self, script: Script, words: Words) -> Any:
        """The reply of a script. `words`: the number of keys, the keys, the arguments."""
        return await self._ask(("EVALSHA", script.digest, *words), script)

    async def command(self, *words: str | int) -> Any:
        return await self._ask(words, None)

    async def close(self) -> None:
        """Drop the connection; calls that wait fail. Idempotent."""
        self._closed = True
        tasks = [task for task in (self._sender, self._pinger) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._fail(list(self._waiting), Disconnected("the pipe was closed"))
        self._waiting.clear()

    def _ask(self, words: Words, script: Script | None) -> "asyncio.Future[Any]":
        if self._closed:
            raise Disconnected("the pipe is closed")
        loop = asyncio.get_running_loop()
        call = Call(words, script, loop.create_future())
        self._waiting.append(call)
        if not self._sender or self._sender.done():
            self._sender = loop.create_task(self._send())
        if not self._pinger:
            self._pinger = loop.create_task(self._ping())
        return call.reply

    async def _send(self) -> None:
        """Send what waits, batch by batch, until nothing does."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            batch = [call for call in batch if not call.reply.done()]
            try:
                async with asyncio.timeout(self._call_s):
                    await self._exchange(batch)
            except FAILURES as bad:
                await self._fail(batch, bad)
            except BaseException:
                await self._fail(batch, Disconnected("the pipe was closed"))
                raise

    async def _fail(self, batch: Sequence[Call], why: Exception) -> None:
        """Tell all callers of a batch; after a silence those who wait behind it too, for they would wait in vain."""
        if not isinstance(why, Disconnected):
            batch = [*batch, *self._waiting]
            self._waiting.clear()
        for call in batch:
            call.answer(why)
        await self._drop()

    async def _exchange(self, batch: Sequence[Call]) -> None:
        """Send a batch and read its replies; what has none when the connection breaks goes out once more."""
        try:
            await self._round_trip(batch)
        except (Disconnected, OSError):
            await self._drop()
            await self._round_trip([call for call in batch if not call.reply.done()])
        self._used = True

    async def _round_trip(self, batch: Sequence[Call]) -> None:
        line = await self._connected()
        unknown = await _talk(line, batch)
        if unknown:
            texts = {call.script.text for call in unknown if call.script}
            await _load(line, sorted(texts))
            for call in await _talk(line, unknown):
                call.answer(NoScriptError("the server forgets scripts"))

    async def _connected(self) -> AbstractConnection:
        if not self._line:
            self._line = await _opened(self._connect)
            self.lines += 1
        return self._line

    async def _drop(self) -> None:
        line, self._line = self._line, None
        if line:
            await line.disconnect(nowait=True)

    async def _ping(self) -> None:
        """Find out that an idle connection is dead before a caller does."""
        while True:
            self._used = False
            await asyncio.sleep(self._ping_s)
            if not self._used and self._line:
                with suppress(*FAILURES):
                    await self.command("PING")


async def _opened(connect: Connect) -> AbstractConnection:
    line = connect()
    await line.connect()  # type: ignore[no-untyped-call]
    return line


async def _talk(line: AbstractConnection, batch: Sequence[Call]) -> list[Call]:
    """Send, and hand each reply to its caller. Answers the calls whose script the server does not have.

    Errors  Disconnected: the server is no master any more; who got that for a reply has none yet
    """
    await _say(line, [call.words for call in batch])
    unknown = []
    elsewhere: ResponseError | None = None
    for call in batch:
        try:
            call.answer(await line.read_response())
        except NoScriptError:
            unknown.append(call)
        except ResponseError as refused:
            if _is_elsewhere(refused):
                elsewhere = refused
            else:
                call.answer(refused)
    if elsewhere:
        raise Disconnected(str(elsewhere))
    return unknown


def _is_elsewhere(refused: ResponseError) -> bool:
    return isinstance(refused, ELSEWHERE) or any(word in str(refused) for word in ELSEWHERE_IN_A_SCRIPT)


async def _say(line: AbstractConnection, commands: Sequence[Words]) -> None:
    packed = b"".join([hiredis.pack_command(words) for words in commands])  # type: ignore[arg-type]  # its stub
    await line.send_packed_command(packed, check_health=False)


async def _load(line: AbstractConnection, texts: Sequence[str]) -> None:
    await _say(line, [("SCRIPT", "LOAD", text) for text in texts])
    for _ in texts:
        await line.read_response()


class Listener:
    """A connection of its own for calls that wait on the server, one at a time."""

    def __init__(self, connect: Connect, call_s: float = CALL_S) -> None:
        self._connect = connect
        self._call_s = call_s
        self._turn = asyncio.Lock()
        self._line: AbstractConnection | None = None
        self._since = 0

    async def read(self, stream: str, after: str, count: int, wait_s: float, since: int = 0) -> list[Any]:
        """Entries of a stream after a place, once there are any; empty after `wait_s`.

        `since`: another number is a new connection, for the address may lead to another server now.
        """
        block_ms = max(1, round(wait_s * 1000))
        words = ("XREAD", "COUNT", count, "BLOCK", block_ms, "STREAMS", stream, after)
        async with self._turn:
            if since != self._since:
                await self.close()
            self._since = since
            try:
                async with asyncio.timeout(wait_s + self._call_s):
                    found = await self._once_more(words)
            except BaseException:
                await self.close()
                raise
        return list(found[0][1]) if found else []

    async def close(self) -> None:
        line, self._line = self._line, None
        if line:
            await line.disconnect(nowait=True)

    async def _once_more(self, words: Words) -> Any:
        try:
            return await self._round_trip(words)
        except Disconnected:
            await self.close()
            return await self._round_trip(words)

    async def _round_trip(self, words: Words) -> Any:
        if not self._line:
            self._line = await _opened(self._connect)
        await _say(self._line, [words])
        return await self._line.read_response()
