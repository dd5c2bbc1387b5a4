"""Placement over two real workers: their events, their tokenizers, and what they then reuse."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentcache.clock import SystemClock
from agentcache.engine.engine import Engine
from agentcache.kv_events import component_card
from agentcache.router.choosing import Asked, Chooser, Chosen, Sources
from agentcache.router.feed import FeedMode, Feeds
from agentcache.router.fleet import FleetView
from agentcache.router.index import PrefixIndex
from agentcache.router.tokenizing import Tokenizing
from agentcache.web.fields import Fields
from agentcache.wire import WorkerCard
from agentcache.worker.context import Worker
from tests.fleets import Heard, card_of
from tests.listening import index_of
from tests.oracle import residency
from tests.patience import PATIENCE_S
from tests.serving import client_of, own_worker, save_tiny_checkpoint

pytestmark = pytest.mark.asyncio
NAMES = "ab"
SYSTEM = "You are an agent that repairs programs. " * 12
ASKS = ("fix the parser", "write a test for the printer")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes


@dataclass
class Pair:
    """Two workers and a router's chooser over them."""

    workers: dict[str, Worker]
    clients: dict[str, httpx2.AsyncClient]
    roster: Heard
    index: PrefixIndex

    def __post_init__(self) -> None:
        self.feeds = Feeds(self.index, lambda: int(time.time() * 1000))
        tokenizing = Tokenizing(self.post, lambda *_: "", SystemClock(), wait_s=PATIENCE_S)
        self.chooser = Chooser(
            Sources(FleetView(salt="r"), self.index, self.feeds, tokenizing, SystemClock())
        )

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], _timeout_s: float) -> Reply:
        _, worker, path = url.removeprefix("http://").split("/", 2)
        answer = await self.clients[worker].post(f"/{path}", content=body, headers=dict(headers))
        return Reply(answer.status_code, answer.content)

    async def heard(self) -> None:
        """Until all that the workers told is known here."""
        async with asyncio.timeout(PATIENCE_S):
            while self.index.pages != await self._pages() or self.chooser.mode is not FeedMode.EVENTS:
                await asyncio.sleep(0)

    async def _pages(self) -> int:
        """In both trees."""
        return sum([await worker.thread.call(pages_in_tree) for worker in self.workers.values()])

    async def turn(self, route: str, body: dict[str, Any], session: str) -> tuple[Chosen, int]:
        """One request where the chooser sends it; the tokens that the worker reused."""
        await self.heard()
        chosen = await self.chooser.choose(Asked("t", "", route, Fields(body), session=session))
        answer = await self.clients[chosen.worker].post(route, json=body)
        assert answer.status_code == 200, answer.text
        self.chooser.learned(chosen)
        chosen.flight.end()
        return chosen, cached_tokens(answer.json()["usage"])


def pages_in_tree(engine: Engine) -> int:
    """Of all components on all tiers, each page once."""
    cache = engine.cache
    shelves = index_of(residency(cache._core.snapshot()), cache.config.page_tokens).values()
    return len(set().union(*shelves))


def cached_tokens(usage: Mapping[str, Any]) -> int:
    """In any of the three ways to say it."""
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    return int(details.get("cached_tokens", usage.get("cache_read_input_tokens", 0)))


@asynccontextmanager
async def pair(checkpoint: Path) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        workers, clients = {}, {}
        for name in NAMES:
            worker = await stack.enter_async_context(own_worker(checkpoint, kv_events="tcp://127.0.0.1:*"))
            workers[name] = worker
            clients[name] = await stack.enter_async_context(client_of(worker))
        cards = [await told(name, worker) for name, worker in workers.items()]
        made = Pair(workers, clients, Heard(*cards), PrefixIndex())
        try:
            await made.chooser.refresh(made.roster)
            yield made
        finally:
            await made.chooser.close()


async def told(name: str, worker: Worker) -> WorkerCard:
    """The card that a worker would register."""

    def made(engine: Engine) -> WorkerCard:
        config, space = engine.cache.config, engine.namespace("")
        return card_of(
            name,
            incarnation=worker.events.incarnation,
            page_tokens=config.page_tokens,
            grid_tokens=config.grid,
            components=tuple(map(component_card, config.specs)),
            namespace=(space.model, space.adapter, space.dtype, space.layout),
            events_url=worker.events.events_url,
            replay_url=worker.events.replay_url,
        )

    return await worker.thread.call(made)


def chat(ask: str) -> dict[str, Any]:
    return {
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ask}],
        "max_tokens": 2,
    }


def messages(ask: str) -> dict[str, Any]:
    return {"system": SYSTEM, "messages": [{"role": "user", "content": ask}], "max_tokens": 2}


def responses(ask: str) -> dict[str, Any]:
    return {"instructions": SYSTEM, "input": ask, "max_output_tokens": 2}


def completion(ask: str) -> dict[str, Any]:
    return {"prompt": SYSTEM + ask, "max_tokens": 2}


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/chat/completions", chat),
        ("/v1/messages", messages),
        ("/v1/responses", responses),
        ("/v1/completions", completion),
    ],
)
async def test_a_new_session_finds_the_worker_that_has_its_beginning(
    checkpoint: Path, route: str, body: Any
) -> None:
    """What was expected of it comes, to the token; nobody told the router but the worker's events."""
    async with pair(checkpoint) as two:
        first, reused = await two.turn(route, body(ASKS[0]), "one")
        assert (first.predicted_tokens, reused) == (0, 0)
        for number, ask in enumerate((ASKS[1], ASKS[0], ASKS[0] + " again")):
            chosen, reused = await two.turn(route, body(ask), f"session {number}")
            assert (chosen.worker, chosen.why) == (first.worker, "longest prefix")
            assert chosen.predicted_tokens == chosen.best_tokens == reused > 0


async def test_after_a_flush_nothing_is_expected(checkpoint: Path) -> None:
    async with pair(checkpoint) as two:
        first, _ = await two.turn("/v1/chat/completions", chat(ASKS[0]), "one")
        assert (await two.clients[first.worker].post("/flush_cache")).status_code == 200
        chosen, reused = await two.turn("/v1/chat/completions", chat(ASKS[1]), "two")
        assert (chosen.best_tokens, reused) == (0, 0)
        assert chosen.why == "least load"
        assert chosen.worker != first.worker


async def test_a_worker_that_is_drained_keeps_its_cache_and_gets_nothing(checkpoint: Path) -> None:
    async with pair(checkpoint) as two:
        first, _ = await two.turn("/v1/chat/completions", chat(ASKS[0]), "one")
        two.roster.change(replace(two.roster.entry(first.worker), draining=True))
        await two.chooser.refresh(two.roster)
        chosen, _ = await two.turn("/v1/chat/completions", chat(ASKS[1]), "two")
        assert chosen.worker != first.worker
        two.roster.change(replace(two.roster.entry(first.worker), draining=False))
        await two.chooser.refresh(two.roster)
        again, reused = await two.turn("/v1/chat/completions", chat(ASKS[0] + " again"), "three")
        assert again.predicted_tokens == reused > 0
