"""The sessions API and acknowledged closes over the embedded Valkey, as routers and workers run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from agentcache.clock import SystemClock
from agentcache.router.app import create_app
from agentcache.router.assembly import make_router
from agentcache.router.context import World
from agentcache.router.settings import RouterSettings
from agentcache.router.tenants import load_tenants
from agentcache.store.api import SessionRef, StoreRules
from agentcache.store.connect import connect, open_home
from agentcache.store.redis import RedisStore
from tests.desks import DeskWorker
from tests.routing import now_ms, serving
from tests.sessionstores import PATIENT_S

pytestmark = pytest.mark.asyncio
RULES = StoreRules(close_limit=50)


@dataclass
class Place:
    """Two routers over one Valkey, and a worker at its desk."""

    https: list[httpx2.AsyncClient]
    store: RedisStore
    worker: DeskWorker

    async def held(self, session: str, **opening: Any) -> int:
        """An open session that the worker holds."""
        answer = await self.https[0].post("/v1/sessions", json={"session_id": session, **opening})
        generation = int(answer.json()["generation"])
        await self.store.assign(SessionRef("default", session), generation, 0, self.worker.name)
        return generation


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[RedisStore]:
    store = await connect(url, RULES, call_s=PATIENT_S)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def routed(url: str, secret: bytes) -> AsyncIterator[httpx2.AsyncClient]:
    world = World(SystemClock(), now_ms, lambda: uuid4().hex, lambda: 0.0)
    settings = RouterSettings(refresh_s=30, sweep_s=0.5, close_wait_s=20)
    async with connected(url) as store:
        router = make_router(settings, store, secret, load_tenants("", ""), world)
        async with (
            serving(create_app(router)) as at,
            httpx2.AsyncClient(base_url=at, timeout=PATIENT_S) as http,
        ):
            yield http


@asynccontextmanager
async def working(store: RedisStore) -> AsyncIterator[DeskWorker]:
    worker = await DeskWorker(store, "w1").start()
    reading = asyncio.ensure_future(worker.run())
    try:
        yield worker
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    home = await asyncio.to_thread(open_home, folder, SystemClock())
    try:
        async with connected(home.url) as store:
            await store.prepare()
            async with (
                working(store) as worker,
                routed(home.url, home.secret) as first,
                routed(home.url, home.secret) as second,
            ):
                yield Place([first, second], store, worker)
    finally:
        await asyncio.to_thread(home.close)


async def test_any_router_closes_a_family_and_hears_of_it(tmp_path: Path) -> None:
    async with place(tmp_path / "home") as here:
        await here.held("root")
        for number in range(120):
            await here.held(f"child{number}", parent="root")
        answer = (await here.https[1].delete("/v1/sessions/root")).json()
        assert (answer["state"], answer["more"], len(answer["children"])) == ("closed", False, 120)
        everyone = [answer, *answer["children"]]
        assert {told["outcome"] for one in everyone for told in one["workers"]} == {"released"}
        again = (await here.https[0].delete("/v1/sessions/root")).json()
        assert (again["generation"], again["released"]) == (answer["generation"], [])
        assert (await here.https[0].get("/v1/sessions")).json()["open_sessions"] == 0


async def test_a_list_is_the_same_at_every_router(tmp_path: Path) -> None:
    async with place(tmp_path / "home") as here:
        names = [f"s{number}" for number in range(7)]
        for name in names:
            await here.held(name)
        found: list[str] = []
        query: dict[str, Any] = {"limit": 3}
        for turn in range(3):
            page = (await here.https[turn % 2].get("/v1/sessions", params=query)).json()
            found += [one["session_id"] for one in page["data"]]
            query["after"] = page["after"]
        assert (found, page["has_more"]) == (names, False)


async def test_what_was_closed_stays_closed_when_all_data_is_lost(tmp_path: Path) -> None:
    async with place(tmp_path / "home") as here:
        generation = await here.held("s")
        await here.https[0].delete("/v1/sessions/s")
        await here.store.forget()
        ref = SessionRef("default", "s")
        while (await here.store.look(ref)).state != "closed":
            await asyncio.sleep(0)
        assert (await here.store.look(ref)).generation == generation
        await here.worker.start()
        await here.held("new")
        closed = (await here.https[0].delete("/v1/sessions/new")).json()
        assert [told["outcome"] for told in closed["workers"]] == ["released"]
