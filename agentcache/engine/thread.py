"""An engine on a thread of its own, with an asyncio side.

Everything that touches the engine or its cache runs on that thread, in order of arrival, its building included: torch
keeps a pool of workers for each thread that computes, and two pools on the same cores take turns. The thread sleeps
on a condition while there is nothing to do: until a request comes, until a tier has done what it was asked for, at
most a second, so that idle sessions can expire.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import structlog

from agentcache.engine.api import Event, Finished, GenerateRequest
from agentcache.engine.engine import Engine
from agentcache.errors import CacheError, Kind

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Stream:
    """The asyncio end of one request. The queue is unbounded: a slow reader never holds up the engine, and what
    can pile up is bounded by the request's max_tokens."""

    loop: asyncio.AbstractEventLoop
    queue: asyncio.Queue[Event | CacheError] = field(default_factory=asyncio.Queue)

    def put(self, item: Event | CacheError) -> bool:
        """Hand over one item from any thread; False when the reader's loop is gone."""
        try:
            self.loop.call_soon_threadsafe(self.queue.put_nowait, item)
        except RuntimeError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Command:
    """Something to run on the engine's thread, or to refuse when the thread has ended."""

    run: Callable[[Engine], None]
    refuse: Callable[[CacheError], None]


class EngineThread:
    """Builds and runs one engine; `generate` and `call` may be awaited from any event loop."""

    _engine: Engine

    def __init__(self, build: Callable[[], Engine]) -> None:
        self._build = build
        self._built: Future[Engine] = Future()
        self._wake = threading.Condition()
        self._commands: deque[Command] = deque()
        self._streams: dict[str, _Stream] = {}
        self._deadline_ns: int | None = None
        self._ended = CacheError(Kind.SHUTTING_DOWN, "the engine has not been started")
        self._alive = False
        self._rung = False
        self._thread = threading.Thread(target=self._run, name="agentcache-engine", daemon=True)

    def start(self) -> Engine:
        """Start the thread and wait until it has built its engine. Once only. Errors: those of building."""
        self._thread.start()
        return self._built.result()

    async def stop(self, grace_s: float) -> None:
        """Refuse new requests, let running ones end for `grace_s` seconds, abort the rest, end the thread.

        Every open stream gets its Finished. Idempotent; a second call waits for the same end.
        """
        with self._wake:
            if not self._alive and not self._thread.is_alive():
                return
            if self._deadline_ns is None:
                self._deadline_ns = self._engine.clock.now_ns() + int(grace_s * 1e9)
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """Admitted, Token …, Finished. Closing the iterator early (the client has gone) aborts the request.

        Errors  as Engine.submit, and SHUTTING_DOWN; raised at the first step of the iteration
        """
        stream = _Stream(asyncio.get_running_loop())
        self._post(
            Command(lambda engine: self._open(engine, request, stream), lambda e: _drop(stream.put(e)))
        )
        ended = False
        try:
            while not ended:
                item = await stream.queue.get()
                ended = isinstance(item, Finished | CacheError)
                if isinstance(item, CacheError):
                    raise item
                yield item
        finally:
            if not ended:
                self._post(Command(lambda engine: engine.abort(request.request_id), lambda _: None))

    async def call(self, function: Callable[[Engine], T]) -> T:
        """Run `function(engine)` on the engine's thread, between two steps, and answer its result or exception."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def run(engine: Engine) -> None:
            try:
                result = function(engine)
            except Exception as error:
                _settle(loop, answer, partial(answer.set_exception, error))
            else:
                _settle(loop, answer, partial(answer.set_result, result))

        self._post(Command(run, lambda e: _settle(loop, answer, partial(answer.set_exception, e))))
        return await answer

    def tell(self, function: Callable[[Engine], object]) -> None:
        """Run `function(engine)` between two steps, before whatever is asked later. Nobody waits for its answer."""

        def run(engine: Engine) -> None:
            try:
                function(engine)
            except Exception:
                log.exception("engine.told_in_vain")

        self._post(Command(run, lambda _: None))

    def _post(self, command: Command) -> None:
        with self._wake:
            alive = self._alive
            if alive:
                self._commands.append(command)
                self._wake.notify()
        if not alive:
            command.refuse(self._ended)

    def _run(self) -> None:
        try:
            self._engine = self._build()
        except Exception as error:
            self._built.set_exception(error)
            return
        self._alive = True
        self._engine.bell.listen(self._ring)
        self._built.set_result(self._engine)
        ended = CacheError(Kind.SHUTTING_DOWN, "the engine has stopped; send the request to another worker")
        try:
            self._serve()
        except Exception as error:
            log.exception("engine.failed")
            ended = CacheError(Kind.ENGINE_FAILED, f"the engine has failed and must be restarted: {error!r}")
        self._close()
        with self._wake:
            self._alive, self._ended = False, ended
            left, self._commands = self._commands, deque()
        for command in left:
            command.refuse(ended)
        for stream in self._streams.values():
            stream.put(ended)

    def _ring(self) -> None:
        """A tier has done something: look at once."""
        with self._wake:
            self._rung = True
            self._wake.notify()

    def _close(self) -> None:
        try:
            self._engine.close()
        except Exception:
            log.exception("engine.close_failed")

    def _serve(self) -> None:
        while not self._over():
            for command in self._next_commands():
                command.run(self._engine)
            self._step()
        for request_id in self._engine.active():
            self._engine.abort(request_id)
        self._step()

    def _over(self) -> bool:
        """Shutting down, and nothing left to do or no time left to do it."""
        deadline = self._deadline_ns
        if deadline is None:
            return False
        return self._engine.idle() or self._engine.clock.now_ns() >= deadline

    def _next_commands(self) -> deque[Command]:
        """What has arrived; sleeps first while there is nothing to do."""
        with self._wake:
            pause_s = self._engine.pause_s()
            leaving = self._deadline_ns is not None and self._engine.idle()
            if pause_s and not (self._commands or self._rung or leaving):
                self._wake.wait(pause_s)
            self._rung = False
            commands, self._commands = self._commands, deque()
        return commands

    def _step(self) -> None:
        for event in self._engine.step():
            stream = self._streams[event.request_id]
            if isinstance(event, Finished):
                del self._streams[event.request_id]
            if not stream.put(event):
                self._engine.abort(event.request_id)

    def _open(self, engine: Engine, request: GenerateRequest, stream: _Stream) -> None:
        try:
            if self._deadline_ns is not None:
                raise CacheError(Kind.SHUTTING_DOWN, "the worker is shutting down; retry elsewhere")
            engine.submit(request)
        except CacheError as refused:
            stream.put(refused)
        else:
            self._streams[request.request_id] = stream


def _drop(_: bool) -> None:
    """The reader's loop is gone: nobody to tell."""


def _settle(loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[T]", settle: Callable[[], None]) -> None:
    """Settle a future of another thread's loop, unless its caller has given up."""

    def once() -> None:
        if not answer.done():
            settle()

    try:
        loop.call_soon_threadsafe(once)
    except RuntimeError:
        _drop(False)
