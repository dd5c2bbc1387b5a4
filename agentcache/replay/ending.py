"""How a command that runs long is ended from outside."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Within, SIGTERM does what Ctrl-C does: KeyboardInterrupt, or what an event loop makes of it.

    Caller  the main thread
    """
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_: int, frame: FrameType | None) -> None:
    heard = signal.getsignal(signal.SIGINT)
    if callable(heard):
        heard(signal.SIGINT, frame)
    else:  # a shell's background job does not hear Ctrl-C
        raise KeyboardInterrupt
