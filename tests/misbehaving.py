"""What upstreams do to a router in tests of its faults."""

import asyncio
from time import perf_counter

from tests.routing import EVENT, Call, begin_stream

LIMIT_S = 0.2
"""The bar: so soon after its client left a request has ended at the worker."""


async def endless(call: Call) -> None:
    """A stream that ends when nobody listens any more."""
    await begin_stream(call)
    await call.chunk(EVENT % 0)
    await call.gone.wait()


async def queued(call: Call) -> None:
    """A request that waits for a seat, until nobody wants it any more."""
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


async def gone_within(call: Call) -> float:
    """Seconds until the upstream noticed."""
    began = perf_counter()
    async with asyncio.timeout(5):
        await call.gone.wait()
    return perf_counter() - began
