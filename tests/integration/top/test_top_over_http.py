"""`agentcache top` before a real worker and a real router, over sockets."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from rich.console import Console

from agentcache import wire
from agentcache.config import Settings
from agentcache.engine.build import build_engine, load_tokenizer_for
from agentcache.engine.thread import EngineThread
from agentcache.router.tenants import load_tenants
from agentcache.top.command import Way, World, show
from agentcache.top.fetching import fetching
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.serve import make_worker
from agentcache.worker.tagged import TagGate
from tests.accounting import SIZES
from tests.patience import PATIENCE_S
from tests.routing import SIGNER, now_ms, routing, serving
from tests.serving import nothing_left

pytestmark = pytest.mark.asyncio
CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Count the words of this sentence. " * 20}], "max_tokens": 2}


@asynccontextmanager
async def a_worker() -> AsyncIterator[tuple[Worker, str]]:
    """One that keeps account, behind a socket."""
    settings = Settings.model_validate({"engine": "accounting", **SIZES})
    thread = EngineThread(lambda: build_engine(settings))
    worker = make_worker(thread, thread.start().info, load_tokenizer_for(settings), settings)
    try:
        async with serving(create_app(worker)) as url:
            yield worker, url
            await thread.call(nothing_left)
    finally:
        await thread.stop(0)


async def shown(url: str, key: str = "", as_json: bool = False) -> str:
    """One look, from another thread: it is a client like any other."""
    text = io.StringIO()
    world = World(fetching(url, key, PATIENCE_S), lambda: 0.0, lambda _: None, Console(file=text, width=160))
    assert await asyncio.to_thread(show, world, url, Way(once=True, json=as_json)) == 0
    return text.getvalue()


def the_objects(out: str) -> list[Any]:
    """What was said as JSON, between the lines that servers log."""
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


async def test_a_worker_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    async with a_worker() as (_, url), httpx2.AsyncClient(base_url=url, timeout=PATIENCE_S) as http:
        for _ in range(2):
            await http.post(CHAT, json=BODY, headers={"x-agentcache-session": "parser"})
        await http.post("/v1/sessions/parser/pause", json={"tool": "pytest"})
        text = await shown(url)
        await shown(url, as_json=True)
    (told,) = the_objects(capsys.readouterr().out)
    assert (told["kind"], told["counted_by"]) == ("worker", "worker")
    assert 0.4 < told["hit_rate"]["device"] == told["hit_rate"]["all"] < 0.5
    (session,) = told["sessions"]
    assert (session["session_id"], session["markers"]) == ("parser", 1)
    assert {pool["component"] for pool in told["workers"][0]["pools"]} >= {"FULL"}
    for word in ("1 open sessions", "parser", "waits for pytest", "device"):
        assert word in text, word


async def test_a_router_and_the_worker_behind_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    admin = tmp_path / "admin"
    admin.write_text("key-of-the-operator")
    tenants = load_tenants("", "acme=key-of-acme", str(admin))
    async with a_worker() as (worker, url), routing(tenants=tenants) as routed:
        worker.gate = TagGate(SIGNER, "w1", now_ms, url=url)
        async with serving(create_app(worker)) as guarded:
            await routed.register("w1", guarded)
            for _ in range(2):
                answer = await routed.post(CHAT, BODY, x_agentcache_session="s", x_api_key="key-of-acme")
                assert answer.headers[wire.WORKER] == "w1"
            await routed.settled()
            nobody = await shown(routed.url)
            tenant = await shown(routed.url, "key-of-acme")
            await shown(routed.url, as_json=True)
            await shown(routed.url, "key-of-the-operator", as_json=True)
            operator = await shown(routed.url, "key-of-the-operator")
            bare = await shown(guarded)
    hidden, told = the_objects(capsys.readouterr().out)
    assert nobody.count("--key-file") == 2
    assert "– open sessions, – running, – waiting" in nobody
    assert (hidden["open_sessions"], hidden["sessions"], hidden["workers"]) == (None, None, None)
    assert (hidden["counted_by"], told["counted_by"]) == ("router", "workers")
    assert hidden["hit_rate"]["all"] > 0.4
    assert "1 open sessions, – running" in tenant
    assert "since the router's start" in tenant
    assert "1 open sessions at workers, 0 running" in operator
    assert "since the workers' start" in operator
    assert "w1" in tenant, "where the session is"
    assert told["sessions"] is None
    (seen,) = told["workers"]
    assert (seen["id"], seen["state"], seen["reached"], seen["open_sessions"]) == ("w1", "alive", True, 1)
    assert told["hit_rate"]["device"] > 0.4
    assert "sessions: shown to whoever has a key" in bare
