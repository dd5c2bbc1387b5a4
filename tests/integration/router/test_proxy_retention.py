"""How long prompts are kept, behind a router: the lease is the store's, the rest the worker's, hints are for few."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agentcache.config import Settings
from agentcache.engine.build import build_engine, load_tokenizer_for
from agentcache.engine.thread import EngineThread
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import Tenants, load_tenants
from agentcache.store.api import Opening, SessionRef
from agentcache.wire import RETENTION
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.serve import make_worker
from agentcache.worker.tagged import TagGate
from tests.accounting import SIZES
from tests.routing import SIGNER, Routed, Upstream, now_ms, routing, serving
from tests.serving import nothing_left

pytestmark = pytest.mark.asyncio
S, T = SessionRef("default", "s"), SessionRef("default", "t")
LONG = "The parser gets bytes where it wants text, and the tests say so. " * 12
CHAT = "/v1/chat/completions"
RETAIN = {
    "protocol_version": "0.1",
    "message_id": "m",
    "actions": [{"action_id": "1", "action_type": "Retain", "payload": {"ttl_s": 60}}],
}
TENANTS = """
[[tenant]]
name = "agents"
keys = ["key-of-agents"]

[[tenant]]
name = "orchestrator"
keys = ["key-of-the-orchestrator"]
kv_hints = true
"""


@asynccontextmanager
async def house(tenants: Tenants | None = None, **changes: Any) -> AsyncIterator[tuple[Routed, Worker]]:
    """A router before one worker that keeps account."""
    settings = Settings.model_validate({"engine": "accounting", **SIZES})
    thread = EngineThread(lambda: build_engine(settings))
    worker = make_worker(thread, thread.start().info, load_tokenizer_for(settings), settings)
    worker.gate = TagGate(SIGNER, "w1", now_ms)
    chosen = RouterSettings(refresh_s=30, sweep_s=30, **changes)
    try:
        async with routing(chosen, tenants) as routed, serving(create_app(worker)) as url:
            await routed.register("w1", url)
            yield routed, worker
            await routed.settled()
            await thread.call(nothing_left)
    finally:
        await thread.stop(0)


def body(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": LONG}], "max_tokens": 2, **more}


async def test_the_lease_is_the_stores_and_the_workers_too() -> None:
    async with house(ttl_max_s=900, ttl_s=600) as (routed, worker):
        asked = body(prompt_cache_options={"ttl": "5m"})
        short = await routed.post(CHAT, asked, x_agentcache_session="s")
        assert short.headers[RETENTION] == "prompt_cache_options.ttl=accepted"
        assert (await routed.store.look(S)).ttl_s == 300
        asked = body(prompt_cache_retention="24h")
        long = await routed.post(CHAT, asked, x_agentcache_session="s")
        assert long.headers[RETENTION] == "prompt_cache_retention=clipped (900 s of 86400 s)"
        assert (await routed.store.look(S)).ttl_s == 900
        (view,) = await worker.thread.call(lambda engine: engine.cache.sessions())
        assert view.ttl_s == 900
        await routed.post(CHAT, body(), x_agentcache_session="s")
        assert (await routed.store.look(S)).ttl_s == 900


async def test_no_wish_makes_the_lease_shorter_that_a_session_was_opened_with() -> None:
    """The longest of this router is below that: others may allow more."""
    async with house(ttl_max_s=900, ttl_s=600) as (routed, worker):
        await routed.store.open(S, Opening(ttl_s=1000))
        for wish, said, has_s in (
            ("5m", "accepted", 1000),
            ("in_memory", "accepted", 1000),
            ("15m", "accepted", 1000),
            ("24h", "clipped (1000 s of 86400 s)", 1000),
        ):
            asked = body(prompt_cache_retention=wish)
            answer = await routed.post(CHAT, asked, x_agentcache_session="s")
            assert answer.headers[RETENTION] == f"prompt_cache_retention={said}"
            assert (await routed.store.look(S)).ttl_s == has_s
            (view,) = await worker.thread.call(lambda engine: engine.cache.sessions())
            assert view.ttl_s == has_s


async def test_without_a_session_or_a_store_nothing_has_a_lease() -> None:
    async with house() as (routed, _):
        asked = body(prompt_cache_retention="24h")
        nobody = await routed.post(CHAT, asked)
        assert nobody.headers[RETENTION] == "prompt_cache_retention=ignored (no session)"
        routed.store.down = True
        down = await routed.post(CHAT, asked, x_agentcache_session="s")
        assert down.headers[RETENTION] == "prompt_cache_retention=ignored (no session)"
        routed.store.down = False


async def test_marks_are_kept_as_without_a_router() -> None:
    async with house() as (routed, _):
        marked = [{"role": "user", "content": LONG, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
        answer = await routed.post(CHAT, body(messages=marked), x_agentcache_session="s")
        said = "cache_control.ttl=accepted; cache_control=accepted (1 at a boundary)"
        assert answer.headers[RETENTION] == said


async def test_hints_are_for_tenants_that_may(tmp_path: Any) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text(TENANTS)
    async with house(load_tenants(str(file), "")) as (routed, _):
        for tenant, key, said, ttl_s in (
            ("agents", "key-of-agents", "kv_hints=ignored (not allowed)", 1800),
            ("orchestrator", "key-of-the-orchestrator", "kv_hints.actions[0]=accepted", 60),
        ):
            answer = await routed.post(CHAT, body(kv_hints=RETAIN), x_agentcache_session="s", x_api_key=key)
            assert answer.headers[RETENTION] == said
            assert (await routed.store.look(SessionRef(tenant, "s"))).ttl_s == ttl_s


async def test_who_is_nobody_in_particular_sends_no_hints() -> None:
    async with house() as (routed, _):
        for envelope in (RETAIN, "nonsense"):
            answer = await routed.post(CHAT, body(kv_hints=envelope), x_agentcache_session="s")
            assert (answer.status_code, answer.headers[RETENTION]) == (200, "kv_hints=ignored (not allowed)")


async def test_what_makes_no_sense_is_refused_by_the_worker_and_nothing_changes() -> None:
    async with house() as (routed, _):
        answer = await routed.post(CHAT, body(prompt_cache_retention="forever"), x_agentcache_session="s")
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "prompt_cache_retention"
        assert (await routed.store.look(S)).ttl_s == 1800


async def test_other_servers_judge_what_is_theirs_and_the_lease_is_the_stores() -> None:
    async with Upstream().serving() as upstream:
        settings = RouterSettings(upstream=(f"openai={upstream.url}",), refresh_s=30)
        async with routing(settings) as routed:
            asked = body(
                prompt_cache_retention="24h",
                kv_hints=RETAIN,
                messages=[{"role": "user", "content": "hi", "cache_control": {"type": "ephemeral"}}],
            )
            answer = await routed.post(CHAT, asked, x_agentcache_session="s")
            assert answer.headers[RETENTION] == (
                "prompt_cache_retention=clipped (3600 s of 86400 s); kv_hints=ignored (not allowed); "
                "cache_control=ignored (passed on as it is)"
            )
            assert (await routed.store.look(S)).ttl_s == 3600
            await routed.store.open(T, Opening(ttl_s=7200))
            opened = await routed.post(CHAT, asked, x_agentcache_session="t")
            assert opened.headers[RETENTION].startswith("prompt_cache_retention=clipped (7200 s of 86400 s)")
            odd = await routed.post(CHAT, body(prompt_cache_retention="forever"), x_agentcache_session="s")
            assert (odd.status_code, RETENTION in odd.headers) == (200, False)
        heard = [call.fields for call in upstream.heard]
    assert heard[0]["prompt_cache_retention"] == "24h"
    assert heard[0]["messages"] == asked["messages"]
    assert "kv_hints" not in heard[0]
    assert heard[2]["prompt_cache_retention"] == "forever"
