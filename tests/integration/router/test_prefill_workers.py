"""Prefill and decode workers with real engines behind a router, over one store: what one worker says, bit by bit."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentcache import wire
from agentcache.engine.engine import Engine
from agentcache.engine.models import FULL, RECURRENT, WINDOW
from agentcache.router.settings import RouterSettings
from agentcache.tiers.stores.api import BlobStore
from agentcache.tiers.stores.faulty import Call, FaultyStore
from agentcache.tiers.stores.file import open_file_store
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.wire import Role
from agentcache.worker.app import create_app
from agentcache.worker.context import Worker
from agentcache.worker.link import RouterLink
from agentcache.worker.link_standing import Pace
from agentcache.worker.tagged import TagGate
from tests.integration.test_tiers_shared import Shared
from tests.patience import pass_time, until
from tests.routing import SIGNER, Json, Routed, card, now_ms, routing, serving
from tests.serving import no_references, nothing_left, own_worker, save_tiny_checkpoint

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(300)]
MIB = 1 << 20
GRID = 32
LEAST = 64
PREFILL_S = 20.0
MIXES = {
    "full": (FULL, FULL, FULL),
    "swa": (WINDOW, WINDOW, FULL),
    "hybrid": (RECURRENT, RECURRENT, FULL),
    "all": (RECURRENT, WINDOW, FULL),
}
PAIR = {"p": Role.PREFILL, "d": Role.DECODE}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: save_tiny_checkpoint(folder / name, layers) for name, layers in MIXES.items()}


@dataclass
class House:
    """A router and its workers. `stop(name)` ends a worker's server, as if its machine had gone."""

    routed: Routed
    workers: dict[str, Worker]
    servers: dict[str, AsyncExitStack]

    async def stop(self, name: str) -> None:
        await self.servers[name].aclose()

    async def on(self, name: str, function: Any) -> Any:
        return await self.workers[name].thread.call(function)

    async def at_rest(self) -> None:
        """Every worker is done with what it moves between tiers."""
        for name in self.workers:
            while not await self.on(name, lambda engine: engine.idle() and engine.cache.tiers.idle):
                await asyncio.sleep(0)

    async def turn(self, prompt: list[int], session: str = "s", **more: Any) -> "Turn":
        body = {
            "prompt": prompt,
            "max_tokens": 8,
            "temperature": 0,
            "return_token_ids": True,
            "ignore_eos": True,
        }
        body |= {"agentcache": {"logits_digest": True}, **more}
        answer = await self.routed.post(body=body, x_agentcache_session=session)
        assert answer.status_code == 200, answer.text
        await self.routed.settled()
        return Turn(answer.json(), answer.headers.get(wire.PREFILL, ""), answer.headers[wire.WORKER])


@dataclass(frozen=True)
class Turn:
    answer: Json
    prefill: str
    worker: str

    @property
    def tokens(self) -> list[int]:
        return list(self.answer["choices"][0]["token_ids"])

    @property
    def bits(self) -> tuple[tuple[int, ...], str]:
        return tuple(self.tokens), str(self.answer["agentcache"]["first_logits_sha256"])

    @property
    def cached(self) -> dict[str, int]:
        return dict(self.answer["usage"]["cached_tokens_details"])


@asynccontextmanager
async def house(
    checkpoint: Path, roles: Mapping[str, str], store: BlobStore, **settings: Any
) -> AsyncIterator[House]:
    told = {"prefill_min_tokens": LEAST, "refresh_s": 30, "sweep_s": 30, "close_wait_s": 30, **settings}
    async with AsyncExitStack() as stack:
        routed = await stack.enter_async_context(routing(RouterSettings(**told)))
        made = House(routed, {}, {})
        for name, role in roles.items():
            worker = await stack.enter_async_context(own_worker(checkpoint, prefetch="wait_complete"))
            await worker.thread.call(lambda engine: engine.attach(Shared(store)))
            made.workers[name] = worker
            made.servers[name] = await stack.enter_async_context(AsyncExitStack())
            await made.servers[name].enter_async_context(linked(routed, name, role, worker))
        await routed.look()
        yield made
        await made.at_rest()


@asynccontextmanager
async def linked(routed: Routed, name: str, role: str, worker: Worker) -> AsyncIterator[None]:
    """A worker's server, and its tie to the router."""
    worker.gate = gate = TagGate(SIGNER, name, now_ms)
    async with serving(create_app(worker), grace_s=1) as url:
        gate._bearer = SIGNER.bearer(name, url).encode()  # the port is known only now
        namespace = await worker.thread.call(lambda engine: engine.namespace(""))
        names = (namespace.model, namespace.adapter, namespace.dtype, namespace.layout)
        sizes = {"page_tokens": 4, "grid_tokens": GRID, "namespace": names, "role": role}
        link = RouterLink(routed.store, card(name, url, **sizes), worker.thread, worker.clock, Pace(0.1))
        await link.start()
        try:
            yield
        finally:
            await link.stop()


def prompts(seed: int = 1) -> list[list[int]]:
    """What is new in each of five turns: some long, some short."""
    source = random.Random(seed)
    return [[source.randrange(3, 4000) for _ in range(length)] for length in (150, 90, 12, 130, 75)]


async def conversation(house: House, session: str = "s") -> list[Turn]:
    """Turns that each send all that was said, and something new."""
    heard: list[int] = []
    turns = []
    for new in prompts():
        turns.append(await house.turn([*heard, *new], session))
        heard = [*heard, *new, *turns[-1].tokens]
    return turns


@pytest.mark.parametrize("mix", MIXES)
async def test_turns_say_what_one_worker_says_and_close_on_both(
    checkpoints: Mapping[str, Path], mix: str, tmp_path: Path
) -> None:
    async with house(checkpoints[mix], {"w": Role.BOTH}, MemoryStore(64 * MIB)) as alone:
        golden = await conversation(alone)
    store = open_file_store(tmp_path / "store", 64 * MIB)
    async with house(checkpoints[mix], PAIR, store) as split:
        turns = await conversation(split)
        assert [turn.bits for turn in turns] == [turn.bits for turn in golden]
        assert {turn.worker for turn in turns} == {"d"}
        assert [turn.prefill.split(";")[0] for turn in turns] == ["p", "p", "none", "p", "p"]
        loaded = [turn.cached["external"] > 0 for turn in turns]
        assert loaded == [True, True, False, True, True]
        totals = [sum(turn.cached.values()) for turn in turns]
        assert all(total >= sum(one.cached.values()) for total, one in zip(totals, golden, strict=True))
        computed = await split.on("d", lambda engine: engine.load().prefill_tokens_total)
        assert computed <= len(turns) * (LEAST + GRID), "the decode worker computes ends of prompts alone"
        seen = (await split.routed.http.get("/v1/sessions/s")).json()
        assert {one["worker"]: one["markers"] > 0 for one in seen["workers"]} == {"p": True, "d": True}
        assert [turn["cached_tokens"]["external"] > 0 for turn in seen["turns"] if turn["worker"] == "d"] == (
            loaded[::-1]
        )
        await split.at_rest()
        closed = (await split.routed.http.delete("/v1/sessions/s")).json()
        assert {one["worker"]: one["outcome"] for one in closed["workers"]} == {
            "p": "released",
            "d": "released",
        }
        for name in PAIR:
            await split.on(name, no_references)
    store.close()


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore(64 * MIB), random.Random(0))


async def test_a_prefill_worker_that_dies_midway_costs_time_alone(
    checkpoints: Mapping[str, Path], store: FaultyStore
) -> None:
    first, second = prompts()[:2]
    async with house(checkpoints["all"], PAIR, store) as split:
        await split.turn(first, "before")
        with store.hold(Call.PUT) as gate:
            asking = asyncio.ensure_future(split.turn(second))
            while not gate.held:
                await asyncio.sleep(0)
            await split.stop("p")
        turn = await asking
        assert (turn.prefill, turn.worker) == ("none; failed", "d")
        cold = await split.turn(second, "cold", agentcache={"logits_digest": True, "reuse": False})
        assert (cold.prefill, cold.bits) == ("none; no answer", turn.bits)
        assert (await split.turn(first, "after")).prefill == "none; no prefill worker"


async def test_one_that_is_late_is_left_alone_and_ends_its_work(
    checkpoints: Mapping[str, Path], store: FaultyStore
) -> None:
    async with house(checkpoints["all"], PAIR, store, prefill_timeout_s=PREFILL_S) as split:
        with store.hold(Call.PUT) as gate:
            asking = asyncio.ensure_future(split.turn(prompts()[0]))
            await until(lambda: gate.held)
            pass_time(PREFILL_S)
            turn = await asking
            assert turn.prefill == "none; late"
            assert turn.tokens
        await split.at_rest()
        assert await split.on("p", Engine.active) == ()
        assert (await split.routed.http.delete("/v1/sessions/s")).json()["state"] == "closed"
        for name in PAIR:
            await split.on(name, no_references)


async def test_a_session_that_is_closed_while_its_prompt_is_stored_leaves_nothing_on_either(
    checkpoints: Mapping[str, Path], store: FaultyStore
) -> None:
    async with house(checkpoints["all"], PAIR, store) as split:
        with store.hold(Call.PUT) as gate:
            asking = asyncio.ensure_future(split.turn(prompts()[0]))
            while not gate.held:
                await asyncio.sleep(0)
            closed = (await split.routed.http.delete("/v1/sessions/s")).json()
            assert {one["worker"]: one["outcome"] for one in closed["workers"]} == {
                "p": "released",
                "d": "unknown",
            }
        turn = await asking
        assert turn.answer["agentcache"]["state"] == "closed"
        assert turn.prefill.startswith("p; ")
        for name in PAIR:
            await split.on(name, no_references)


async def test_workers_that_differ_are_not_paired(
    checkpoints: Mapping[str, Path], store: FaultyStore
) -> None:
    """Another model's pages would never be found."""
    async with (
        house(checkpoints["all"], {"d": Role.DECODE}, store) as split,
        own_worker(checkpoints["full"]) as other,
        linked(split.routed, "p", Role.PREFILL, other),
    ):
        await split.routed.look()
        turn = await split.turn(prompts()[0])
        assert turn.prefill == "none; another model"
        await other.thread.call(nothing_left)


async def test_what_clients_say_to_a_worker_asks_for_no_prefill(checkpoints: Mapping[str, Path]) -> None:
    """Only a router's tag does, and the worker takes nothing else."""
    async with house(checkpoints["full"], PAIR, MemoryStore(MIB)) as split:
        url = next(view.url for view in split.routed.router.fleet.views() if view.id == "p")
        for headers in ({}, {wire.PREFILL: "1"}):
            answer = await split.routed.http.post(
                f"{url}/v1/completions", json={"prompt": [5]}, headers=headers
            )
            assert answer.status_code == 401
