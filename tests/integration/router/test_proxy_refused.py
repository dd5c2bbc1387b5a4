"""A first request that is refused: what it opened is gone with the next sweep, and what was there before stays."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentcache.store.api import SessionRef
from tests.integration.router.test_proxy_worker import checkpoint as checkpoint
from tests.integration.router.test_proxy_worker import house
from tests.patience import until
from tests.routing import Call, Routed, plain_answer, routed_to, routing
from tests.sessionstores import receipt

pytestmark = pytest.mark.asyncio
S = SessionRef("default", "s")


def says(status: int) -> Any:
    async def script(call: Call) -> None:
        await call.whole(status, b'{"error": {"message": "no", "type": "x"}}')

    return script


async def bad_words(call: Call) -> None:
    """Refuses what is marked as bad, as a worker that reads it."""
    await (says(400)(call) if "bad" in call.fields else plain_answer(call))


async def swept(routed: Routed, *workers: str) -> str:
    """The session's state after a sweep, when the workers that it asked have let go."""
    await routed.settled()
    if (await routed.store.sweep(100)).offered:
        for worker in workers:
            for notice in (await routed.store.mail(worker, 0, "0", 0)).notices:
                await routed.store.receipt(receipt(notice, worker))
    return (await routed.store.look(S)).state


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_first_turn_that_its_worker_refuses_leaves_no_session(status: int) -> None:
    async with routed_to(says(status)) as (routed, _):
        answer = await routed.post(x_agentcache_session="s")
        assert (answer.status_code, answer.headers["x-agentcache-session"]) == (status, "s")
        assert await swept(routed, "w1") == "none"


async def test_a_first_turn_that_nobody_can_take_leaves_no_session() -> None:
    async with routing() as routed:
        assert (await routed.post(x_agentcache_session="s")).status_code == 503
        assert await swept(routed) == "none"


@pytest.mark.parametrize("status", [409, 429, 500, 200])
async def test_what_is_sent_again_or_was_served_keeps_its_session(status: int) -> None:
    async with routed_to(says(status)) as (routed, _):
        assert (await routed.post(x_agentcache_session="s")).status_code == status
        assert await swept(routed, "w1") == "open"


async def test_a_retry_that_comes_at_once_has_its_session() -> None:
    async with routed_to(bad_words) as (routed, _):
        bad = await routed.post(body={"bad": 1}, x_agentcache_session="s")
        good = await routed.post(x_agentcache_session="s", x_agentcache_strict="1")
        assert (bad.status_code, good.status_code) == (400, 200)
        assert good.headers["x-agentcache-state"] == "open"
        assert good.headers["x-agentcache-generation"] == bad.headers["x-agentcache-generation"]
        assert await swept(routed, "w1") == "open"


async def test_a_retry_after_the_sweep_opens_it_anew() -> None:
    async with routed_to(bad_words) as (routed, _):
        await routed.post(body={"bad": 1}, x_agentcache_session="s")
        assert await swept(routed, "w1") == "none"
        good = await routed.post(x_agentcache_session="s", x_agentcache_strict="1")
        assert (good.status_code, good.headers["x-agentcache-state"]) == (200, "open")
        assert await swept(routed, "w1") == "open"


async def test_of_two_first_turns_at_once_one_refused_changes_nothing() -> None:
    release = asyncio.Event()

    async def slow(call: Call) -> None:
        if "bad" not in call.fields:
            await release.wait()
        await bad_words(call)

    async with routed_to(slow) as (routed, (worker,)):
        good = asyncio.ensure_future(routed.post(x_agentcache_session="s"))
        await worker.hears(1)
        assert (await routed.post(body={"bad": 1}, x_agentcache_session="s")).status_code == 400
        release.set()
        assert (await good).status_code == 200
        assert await swept(routed, "w1") == "open"


async def test_a_session_that_was_there_stays_whatever_is_refused() -> None:
    async with routed_to(bad_words) as (routed, _):
        await routed.http.post("/v1/sessions", json={"session_id": "s"})
        assert (await routed.post(body={"bad": 1}, x_agentcache_session="s")).status_code == 400
        assert await swept(routed, "w1") == "open"


@pytest.mark.parametrize("wrong", [{"messages": 3}, {"prompt_cache_retention": "soon"}, {"messages": []}])
async def test_a_worker_that_refused_a_first_turn_lets_go_of_its_session(
    checkpoint: Path, wrong: dict[str, Any]
) -> None:
    async with house(checkpoint) as (routed, _):
        said = {"messages": [{"role": "user", "content": "hi"}], **wrong}
        answer = await routed.post("/v1/chat/completions", said, x_agentcache_session="s")
        assert answer.status_code == 400, answer.text
        await routed.settled()
        await routed.store.sweep(100)
        await until(lambda: S not in routed.store.books.open)
        assert (await routed.http.get("/v1/sessions")).json()["open_sessions"] == 0
