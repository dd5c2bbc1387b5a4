"""Ways out of a server's process before it serves."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def leave_at_once() -> None:
    """Exit code 0, now: nothing is to be saved, and what runs in other threads cannot be unwound."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


@contextmanager
def leaving_early(leave: Callable[[], object]) -> Iterator[None]:
    """Until the server has its own handlers, SIGTERM and Ctrl-C call `leave`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        sent: signal.signal(sent, lambda _sent, _frame: leave()) for sent in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for sent, handler in before.items():
            signal.signal(sent, handler)
