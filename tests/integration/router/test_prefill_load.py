"""Where a prompt that is computed ahead counts as load: at whoever computes it, then at whoever answers."""

import asyncio

import pytest

from tests.integration.router.test_prefill import answers, ask, fleet, said, stores
from tests.routing import Call

pytestmark = pytest.mark.asyncio


async def test_a_prompt_counts_where_it_is_computed() -> None:
    """At the worker that will answer it counts from when it is sent there."""
    begin, loads = asyncio.Event(), []

    async def waits(call: Call) -> None:
        await begin.wait()
        await stores()(call)

    async def looks(call: Call) -> None:
        loads.append([routed.router.fleet.view(name).load for name in ("d", "p1")])
        await answers()(call)

    async with fleet(waits, decode=looks) as (routed, _, (prefill,)):
        asking = asyncio.ensure_future(ask(routed))
        await prefill.hears(1)
        assert [routed.router.fleet.view(name).load for name in ("d", "p1")] == [0, 1]
        begin.set()
        assert said(await asking) == "p1; 192 tokens"
        assert loads == [[1, 0]]
        assert routed.router.fleet.in_flight == {}
