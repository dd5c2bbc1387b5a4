"""An event loop in which time is what its timers say: it jumps to the next one as soon as nothing else can run.

Everything of asyncio that waits (sleep, timeouts, conditions) waits in this time; code is not asked to know. There are
no sockets in it and no threads: what would go to a thread runs at once, so that equal runs are equal to the last bit.
"""

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
NANOSECONDS = 1_000_000_000


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time begins at 0. `now_ns` is the same in whole nanoseconds."""

    def __init__(self) -> None:
        self._now_ns = 0
        super().__init__(_Jumping(self.jump))

    def time(self) -> float:
        """Seconds since the beginning."""
        return self._now_ns / NANOSECONDS

    def now_ns(self) -> int:
        """The loop is a `Clock`, too."""
        return self._now_ns

    def jump(self, seconds: float) -> None:
        """Go on by so much, rounded up: a timer that was waited for is due."""
        self._now_ns += math.ceil(seconds * NANOSECONDS)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Run it now."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class _Jumping(selectors.BaseSelector):
    """Never has anything to read; in place of waiting it says how long it would have waited.

    The loop registers a socket with which threads would wake it; nobody does.
    """

    def __init__(self, jump: Callable[[float], None]) -> None:
        self._jump = jump
        self._registered: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(
            fileobj, fileobj if isinstance(fileobj, int) else fileobj.fileno(), events, data
        )
        self._registered[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._registered.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Errors: RuntimeError where nothing will ever happen again."""
        if timeout is None:
            raise RuntimeError("everything in this loop waits, and no timer will end that")
        if timeout > 0:
            self._jump(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._registered


def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main(loop)` to its end in a loop of its own. Cost: that of what runs, however long it takes in its time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        return runner.run(main(loop))
