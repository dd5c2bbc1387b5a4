"""A worker process behind a real store: it registers, follows, lives through the store's end, and leaves."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentcache.clock import SystemClock
from agentcache.store.api import Closing, Done, SessionRef, StoreRules, Use
from agentcache.store.connect import Home, connect, open_home
from agentcache.store.redis import RedisStore
from agentcache.wire import TAG, Hints, Outcome, Receipt, Tag, TagSigner, WorkerLoad
from agentcache.worker.linking import unix_ms
from tests.accounting import SIZES
from tests.patience import PATIENCE_S
from tests.processes import LOG_BYTES
from tests.sessionstores import PATIENT_S

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]
RULES = StoreRules()
BODY: dict[str, Any] = {"prompt": "one two three four five six seven eight " * 10, "max_tokens": 2}


@dataclass
class Routed:
    """A router's folder with its store, and a worker process that belongs to it."""

    home: Home
    store: RedisStore
    process: Process
    client: httpx2.AsyncClient

    async def turn(self, session: str, request_id: str) -> httpx2.Response:
        """A turn as a router takes it."""
        ref = SessionRef("acme", session)
        told = await self.store.tag(ref, Use(request_id, worker="w1"))
        signer = TagSigner(self.home.secret)
        (worker,) = await self.store.workers()
        tag = Tag(
            "acme",
            signer.derive("salt", "acme"),
            session,
            told.generation,
            told.placement,
            "",
            Hints(),
            f"{request_id}.1",
            "w1",
            unix_ms(),
            told.epoch,
            incarnation=worker.card.incarnation,
        )
        answer = await self.client.post("/v1/completions", json=BODY, headers={TAG: signer.sign(tag)})
        await self.store.done(ref, Done(request_id, told.generation, "w1", told.placement, registered=True))
        return answer

    async def markers(self) -> dict[str, int]:
        """What the worker holds, as its operator sees it."""
        url = str(self.client.base_url).rstrip("/")
        bearer = {"authorization": f"Bearer {TagSigner(self.home.secret).bearer('w1', url)}"}
        listed = (await self.client.get("/v1/sessions", headers=bearer)).json()["data"]
        return {f"{one['tenant']}:{one['session_id']}": one["markers"] for one in listed}

    async def load(self) -> WorkerLoad | None:
        """What the store knows of the worker; None: it is not registered."""
        entries = await self.store.workers()
        return entries[0].load if entries and entries[0].alive else None

    async def answered(self) -> Receipt:
        """The next answer to a close."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                receipts = await self.store.receipts("router", "0", 1.0)
                if receipts:
                    return receipts[-1][1]


@asynccontextmanager
async def routed(folder: Path) -> AsyncIterator[Routed]:
    """Started, once the worker listens; killed if it is still there at the end."""
    home = await asyncio.to_thread(open_home, folder / "router", SystemClock())
    store = await connect(home.url, RULES, call_s=PATIENT_S)
    await store.prepare()
    sizes = [word for name, value in SIZES.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    flags = ("--engine", "accounting", "--router-dir", str(folder / "router"), "--worker-id", "w1")
    command = ("-m", "agentcache", "serve", "--port", "0", "--heartbeat-s", "0.2", *flags, *sizes)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=PIPE, stderr=PIPE, limit=LOG_BYTES
    )
    world = Routed(home, store, process, httpx2.AsyncClient(timeout=PATIENCE_S))
    try:
        world.client.base_url = httpx2.URL(await _listening(process))
        yield world
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        await world.client.aclose()
        await store.aclose()
        await asyncio.to_thread(world.home.close)


async def _listening(process: Process) -> str:
    assert process.stdout
    line = b""
    while b"listening on " not in line:
        line = await process.stdout.readline()
        assert line, (await process.communicate())[1].decode()
    return line.decode().split("listening on ")[1].strip()


async def test_a_worker_lives_and_leaves_with_its_routers(tmp_path: Path) -> None:
    async with routed(tmp_path) as world:
        (entry,) = await world.store.workers()  # it listens: it is registered
        assert (entry.card.worker, entry.card.url, entry.alive) == (
            "w1",
            str(world.client.base_url).rstrip("/"),
            True,
        )
        assert entry.card.events_url.startswith(f"ipc://{tmp_path}/router/")
        assert (await world.client.post("/v1/completions", json=BODY)).status_code == 401
        assert (await world.turn("s", "r1")).headers["x-agentcache-session"] == "s"
        assert await world.markers() == {"acme:s": 1}
        how = Closing(mode="drop", operation="op", reply_to="router")
        await world.store.close(SessionRef("acme", "s"), how)
        receipt = await world.answered()
        assert (receipt.outcome, receipt.markers, receipt.mode) == (Outcome.RELEASED, 1, "drop")
        assert {part.component for part in receipt.released} == {"FULL", "SWA", "MAMBA"}
        assert await world.markers() == {}
        world.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(world.process.wait(), PATIENCE_S) == 0
        assert await world.store.workers() == ()


async def test_a_store_that_goes_and_comes_back_empty_is_survived(tmp_path: Path) -> None:
    """The worker serves on, registers again by itself, and gives the store back what it has."""
    async with routed(tmp_path) as world:
        await world.turn("s", "r1")
        await world.store.forget()
        async with asyncio.timeout(PATIENCE_S):
            while (await world.store.look(SessionRef("acme", "s"))).worker != "w1":
                await world.client.get("/health")
        assert await world.markers() == {"acme:s": 1}
        await asyncio.to_thread(world.home.close)
        assert (await world.client.get("/ready")).status_code == 200
        assert await world.markers() == {"acme:s": 1}
        world.home = await asyncio.to_thread(open_home, tmp_path / "router", SystemClock())
        async with asyncio.timeout(PATIENCE_S):
            while not await world.load():
                await world.client.get("/health")
        again = await world.turn("s", "r2")
        assert (again.status_code, again.headers["x-agentcache-state"]) == (200, "open")
        assert int(again.headers["x-agentcache-cached-tokens"]) > 0
