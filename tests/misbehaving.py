"""What upstreams do to a router in tests of its faults."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.patience import computed_until, pass_time
from tests.routing import EVENT, Call, begin_stream

LIMIT_S = 0.2
"""The bar: so soon after its client left a request has ended at the worker, in seconds that the process computed."""
LATE_S = 4.0
"""Shorter than what a router allows for a connection: others of its timers go on."""


async def endless(call: Call) -> None:
    """A stream that ends when nobody listens any more."""
    await begin_stream(call)
    await call.chunk(EVENT % 0)
    await call.gone.wait()


async def queued(call: Call) -> None:
    """A request that waits for a seat, until nobody wants it any more."""
    await call.gone.wait()


async def late(call: Call) -> None:
    """A request of which it hears, and that nobody waits for any more."""
    pass_time(LATE_S)
    await call.gone.wait()


async def hanging_up(call: Call) -> None:
    call.writer.close()


async def nonsense(call: Call) -> None:
    await call.send(b"220 smtp.example.com ESMTP ready\r\n\r\n")
    call.writer.close()


async def full(call: Call) -> None:
    await call.whole(429, b'{"error": {"code": "queue_full"}}', {"retry-after": "1"})


async def leaving(call: Call) -> None:
    await call.whole(503, b'{"error": {"code": "shutting_down"}}', {"retry-after": "5"})


@contextmanager
def nobody() -> Iterator[str]:
    """A URL where nobody listens: its port is given to nobody else meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield "http://{}:{}".format(*held.getsockname())


async def gone_within(call: Call) -> float:
    """Seconds that this process computed until the upstream noticed."""
    return await computed_until(call.gone.is_set)
