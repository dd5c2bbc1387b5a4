"""An engine that runs in the event loop of those who ask it: for engines that compute nothing, and clocks that jump."""

import asyncio
from collections.abc import Callable

import structlog

from agentcache.engine.engine import Engine
from agentcache.engine.thread import Command, EngineThread
from agentcache.errors import CacheError, Kind

log = structlog.get_logger(__name__)


class EngineInLoop(EngineThread):
    """As an `EngineThread`, without a thread: its steps are callbacks of the loop, and wait by the loop's time.

    Caller  starts it in the loop; nothing is asked from other threads. `rest_s`: how long an idle engine is left alone
            at least, where nothing of it can be due meanwhile
    """

    def __init__(
        self, build: Callable[[], Engine], loop: asyncio.AbstractEventLoop, rest_s: float = 0.0
    ) -> None:
        super().__init__(build)
        self._loop = loop
        self._rest_s = rest_s
        self._next: asyncio.Handle = asyncio.Handle(_nothing, (), loop)

    def start(self) -> Engine:
        """Build the engine, here and now. Once only. Errors: those of building."""
        self._engine = self._build()
        self._engine.bell.listen(self._wake_up)
        self._alive = True
        self._wake_up()
        return self._engine

    async def stop(self, grace_s: float) -> None:
        """As of a thread, without grace."""
        if self._alive:
            self._end(CacheError(Kind.SHUTTING_DOWN, "the engine has stopped"))

    def _post(self, command: Command) -> None:
        if not self._alive:
            command.refuse(self._ended)
            return
        self._commands.append(command)
        self._wake_up()

    def _wake_up(self) -> None:
        """Take the next step soon, in place of whenever it was to be."""
        self._next.cancel()
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        try:
            while self._commands:
                self._commands.popleft().run(self._engine)
            self._step()
            pause_s = max(self._engine.pause_s(), self._rest_s if self._engine.idle() else 0.0)
        except Exception as error:
            log.exception("engine.failed")
            self._end(
                CacheError(Kind.ENGINE_FAILED, f"the engine has failed and must be restarted: {error!r}")
            )
            return
        self._next.cancel()
        self._next = self._loop.call_later(pause_s, self._turn)

    def _end(self, why: CacheError) -> None:
        """Abort what runs, refuse what is asked from now on."""
        self._next.cancel()
        self._alive, self._ended = False, why
        for stream in self._streams.values():
            stream.put(why)
        while self._commands:
            self._commands.popleft().refuse(why)
        self._close()


def _nothing() -> None:
    """What is to be done before there is anything."""
