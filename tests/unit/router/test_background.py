"""What a router does beside requests goes on whatever it meets, and is told where it does not."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest
import structlog

from agentcache.router.background import Background
from agentcache.router.probing import prober
from agentcache.router.unheard import Health
from agentcache.router.upstream import Reply, Upstreams
from agentcache.store.api import WorkerEntry
from tests.routing import Routed, routing

pytestmark = pytest.mark.asyncio


class OddError(Exception):
    """A fault that nobody has thought of."""


async def failing() -> tuple[WorkerEntry, ...]:
    raise OddError


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0)


async def test_a_look_that_fails_in_any_way_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one of all, too: a router starts whatever it finds."""
    async with routing() as routed:
        await routed.register("w1", "http://127.0.0.1:1")
        looks, right = [0], routed.store.workers

        async def workers() -> tuple[WorkerEntry, ...]:
            looks[0] += 1
            return await (failing() if looks[0] < 4 else right())

        monkeypatch.setattr(routed.store, "workers", workers)
        routed.router.fleet.failed("w1")
        with structlog.testing.capture_logs() as lines:
            async with Background(routed.router, _at_once).running():
                await until(lambda: looks[0] > 5)
        assert [line["loop"] for line in lines if line["event"] == "step_failed"] == ["workers"]


async def _at_once(_seconds: float) -> None:
    await asyncio.sleep(0)


async def test_a_router_whose_background_has_ended_is_not_ready() -> None:
    async with routing() as routed:
        await routed.register("w1", "http://127.0.0.1:1")
        assert (await routed.http.get("/ready")).status_code == 200
        for loop in asyncio.all_tasks():
            if loop.get_name() == "receipts":
                loop.cancel()
                with suppress(asyncio.CancelledError):
                    await loop
        said = await routed.http.get("/ready")
    assert (said.status_code, said.json()["error"]["code"]) == (503, "background_ended")
    assert "'receipts'" in said.json()["error"]["message"]


async def test_who_is_not_ready_says_the_store_first() -> None:
    """Nobody is heard while the store is away; workers are not what is missing then."""
    async with routing() as routed:
        assert await refused(routed) == "no_worker"
        routed.store.down = True
        await routed.look()
        assert await refused(routed) == "store_failed"


async def refused(routed: Routed) -> str:
    said = await routed.http.get("/ready")
    assert said.status_code == 503
    return str(said.json()["error"]["code"])


DEEP = b"[" * 200_000


@pytest.mark.parametrize(
    ("status", "body", "health"),
    [
        (200, b'{"data": [{"id": "a"}, {"id": "b"}]}', Health(True, ("a", "b"))),
        (200, b'{"data": []}', Health(True)),
        (401, b"", Health(True)),
        (404, DEEP, Health(True)),
        (500, b'{"data": []}', Health(False)),
        *(
            (200, body, Health(False))
            for body in (
                DEEP,
                b"",
                b"\xff",
                b"null",
                b"[]",
                b"{}",
                b'{"data": 1}',
                b'{"data": null}',
                b'{"data": "ab"}',
                b'{"data": [1]}',
                b'{"data": [{}]}',
                b'{"data": [{"id": 1}]}',
            )
        ),
    ],
)
async def test_a_server_is_well_if_it_answers_as_such_a_server_does(
    status: int, body: bytes, health: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get(*_asked: object) -> Reply:
        return Reply(status, body)

    upstreams = Upstreams()
    monkeypatch.setattr(upstreams, "get", get)
    assert await prober(upstreams)("http://127.0.0.1:1") == health
