"""Placement events of a real worker: an index rebuilt from them alone equals its tree, whatever was missed."""

import asyncio
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentcache.clock import SystemClock
from agentcache.engine.engine import Engine
from agentcache.keys import page_hashes, page_key
from agentcache.kv_events import AllBlocksCleared, Groups, component_card, incarnation_of, topic_of
from agentcache.router.feed import Feeds
from agentcache.router.index import PrefixIndex
from agentcache.tree.api import CoreConfig
from agentcache.types import FULL, ComponentName, Event, EventKind, TierName
from agentcache.wire import WorkerCard
from agentcache.worker.context import Worker
from agentcache.worker.kv_publisher import KvPublisher, Publisher, open_publisher
from agentcache.worker.kv_sockets import open_sockets
from agentcache.worker.kv_telling import Limits
from agentcache.worker.serve import start_worker
from tests.integration.worker.test_worker_process import serving
from tests.integration.worker.test_worker_tiers import settled
from tests.listening import Index, index_of
from tests.oracle import residency
from tests.patience import PATIENCE_S
from tests.serving import client_of, leaves_nothing, tiny_settings
from tests.subscribing import Message, Subscriber, subscribed

pytestmark = pytest.mark.asyncio
ANYWHERE = "tcp://127.0.0.1:*"


def in_tree(engine: Engine) -> Index:
    cache = engine.cache
    return index_of(residency(cache._core.snapshot()), cache.config.page_tokens)


@dataclass
class Reader:
    """An index as a router keeps it: in order, anew when it begins anew, never in doubt."""

    groups: Groups
    next_seq: int = 0
    incarnation: str = ""
    held: Index = field(default_factory=lambda: defaultdict(set))

    @property
    def index(self) -> Index:
        return {shelf: set(hashes) for shelf, hashes in self.held.items() if hashes}

    @property
    def topics(self) -> list[bytes]:
        """What it has followed so far."""
        return [topic_of(self.incarnation)] if self.incarnation else []

    def follows(self, message: Message) -> bool:
        """Whether nothing is missing before it."""
        begins = message.batch.events[0] == AllBlocksCleared()
        same = incarnation_of(message.topic) == self.incarnation
        return begins or (same and message.seq == self.next_seq)

    def read(self, messages: Iterable[Message]) -> None:
        for message in messages:
            assert self.follows(message), f"{message.seq} after {self.next_seq - 1}"
            self.incarnation, self.next_seq = incarnation_of(message.topic), message.seq + 1
            for event in chain.from_iterable(map(self.groups.events, message.batch.events)):
                self._take(event)

    def _take(self, event: Event) -> None:
        if event.kind is EventKind.CLEARED:
            self.held.clear()
        elif event.kind is EventKind.STORED:
            self.held[event.component, event.tier] |= set(event.hashes)
        else:
            self.held[event.component, event.tier] -= set(event.hashes)


@dataclass
class Watched:
    """A worker, a client of it, and a reader of its events."""

    worker: Worker
    client: httpx2.AsyncClient
    subscriber: Subscriber
    reader: Reader

    async def turn(self, prompt: list[int], **fields: object) -> int:
        """Its cached tokens."""
        body = {"prompt": prompt, "max_tokens": 3, "temperature": 0, "ignore_eos": True, **fields}
        answer = await self.client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    async def agrees(self) -> Index:
        """Replays until the reader knows what is in the tree; the index then."""
        async with asyncio.timeout(PATIENCE_S):
            while (there := await self.worker.thread.call(in_tree)) != self.reader.index:
                self.reader.read(self.subscriber.replay(self.reader.next_seq, *self.reader.topics))
        return there


@asynccontextmanager
async def watched(
    checkpoint: Path, publisher: Publisher | None = None, **changes: Any
) -> AsyncIterator[Watched]:
    settings = tiny_settings(checkpoint, kv_events=ANYWHERE, **changes)
    events = publisher or open_publisher(settings, "life-1", time.time)
    worker = start_worker(settings, events)
    config: CoreConfig = await worker.thread.call(lambda engine: engine.cache.config)
    reader = Reader(Groups([component_card(spec) for spec in config.specs], config.page_tokens))
    try:
        with subscribed(events.events_url, events.replay_url) as subscriber:
            async with client_of(worker) as client:
                yield Watched(worker, client, subscriber, reader)
        await leaves_nothing(worker)
    finally:
        await worker.thread.stop(0)
        events.close()


def prompt_of(seed: int, length: int = 200) -> list[int]:
    return [*range(100, 100 + length // 2), *range(1000 + 200 * seed, 1000 + 200 * seed + length // 2)]


@pytest.mark.parametrize(
    "tiers",
    [
        {},
        {"host_mib": 0.5},
        {"host_mib": 0.5, "write_policy": "write_back"},
        {"host_mib": 0.5, "core": "reference"},
    ],
    ids=["device", "host", "write_back", "reference"],
)
async def test_an_index_from_events_equals_the_tree(checkpoint: Path, tiers: dict[str, Any]) -> None:
    """Reports R165, R163: sessions that share, fork, close and are evicted; every component on every tier."""
    small: dict[str, Any] = {"full_slots": 160, "swa_slots": 40, "mamba_slots": 12, **tiers}
    async with watched(checkpoint, **small) as at:
        seen: set[tuple[ComponentName, TierName]] = set()
        for round_ in range(12):
            session = f"s{round_ % 5}"
            await at.turn(prompt_of(round_ % 7), session_id=session)
            seen |= (await at.agrees()).keys()
            if round_ % 4 == 3:
                await at.client.delete(f"/v1/sessions/{session}?mode=drop")
                await at.agrees()
        await settled(at.client)
        seen |= (await at.agrees()).keys()
        assert {component for component, _ in seen} >= {FULL, "SWA", "MAMBA"}
        assert ((FULL, TierName.HOST) in seen) == bool(tiers)


async def test_a_reader_who_knows_the_namespace_finds_its_prompt(checkpoint: Path) -> None:
    """Report R165: the same prompt three times, and all of it but the last page is known by its hashes."""
    async with watched(checkpoint) as at:
        prompt = prompt_of(1)
        for _ in range(3):
            await at.turn(prompt, cache_salt="salt")
        known = (await at.agrees())[FULL, TierName.DEVICE]
        for salt, share in (("salt", 0.95), ("other", 0)):
            space = await at.worker.thread.call(methodcaller("namespace", salt))
            hashes = [*page_hashes(page_key(prompt, space, 4), 4)]
            assert len(known & set(hashes)) / len(hashes) == pytest.approx(share, abs=0.05)


async def test_what_a_router_expects_is_what_the_worker_finds(checkpoint: Path) -> None:
    """Report R081: pages without their window, or without a state, count for nothing on either side."""
    small: dict[str, Any] = {"full_slots": 160, "swa_slots": 24, "mamba_slots": 8}
    async with watched(checkpoint, **small) as at:
        card = await at.worker.thread.call(lambda engine: card_of(engine, at.worker.events))
        index = PrefixIndex()
        feeds = Feeds(index, lambda: int(time.time() * 1000))
        await feeds.sync([card])
        expected, found = [], []
        for number in (0, 1, 2, 0, 1, 3, 3, 4, 5, 6, 3, 0):
            await at.agrees()
            async with asyncio.timeout(PATIENCE_S):
                while index.next_seq("w") < at.worker.events.counts().batches:
                    await asyncio.sleep(0)
            expected.append(index.forecast([card], "", prompt_of(number)).tokens.get("w", 0))
            found.append(await at.turn(prompt_of(number), session_id=f"s{number}"))
        await feeds.close()
    assert expected == found
    assert {0 < tokens < 192 for tokens in found} == {True, False}


def card_of(engine: Engine, events: Publisher) -> WorkerCard:
    config, space = engine.cache.config, engine.namespace("")
    return WorkerCard(
        worker="w",
        incarnation=events.incarnation,
        url="",
        model=engine.info.model,
        context_tokens=engine.info.context_tokens,
        page_tokens=config.page_tokens,
        grid_tokens=config.grid,
        seats=1,
        queue_limit=1,
        components=tuple(map(component_card, config.specs)),
        namespace=(space.model, space.adapter, space.dtype, space.layout),
        events_url=events.events_url,
        replay_url=events.replay_url,
    )


async def test_what_was_missed_is_replayed(checkpoint: Path) -> None:
    """Live messages until some are lost; the gap is seen, and a replay from the first one missing closes it."""
    async with watched(checkpoint) as at:
        number = 0
        while at.subscriber.heard(20) is None:  # until the subscription has arrived
            await at.turn(prompt_of(number := number + 1))
        await at.agrees()
        await at.turn(prompt_of(number + 1))
        message = at.subscriber.heard()
        while message is None or message.seq < at.reader.next_seq:
            message = at.subscriber.heard()
        await at.turn(prompt_of(number + 2))
        later = at.subscriber.heard()
        assert later is not None
        assert not at.reader.follows(later)
        at.reader.read(at.subscriber.replay(at.reader.next_seq))
        assert at.reader.next_seq > later.seq
        await at.agrees()


async def test_a_gap_that_is_too_long_is_closed_by_all_there_is(checkpoint: Path) -> None:
    """Report R194: who has nothing, or too little for the journal, is told of everything at once."""
    settings = tiny_settings(checkpoint, kv_events=ANYWHERE)
    few = Limits(gather_s=0, journal_batches=1)
    publisher = KvPublisher(open_sockets(settings), "life-1", time.time, SystemClock(), few)
    async with watched(checkpoint, publisher, host_mib=1) as at:
        for number in range(4):
            await at.turn(prompt_of(number))
        await settled(at.client)
        await at.agrees()
        assert publisher.counts().snapshots > 0
        late = Reader(at.reader.groups)
        late.read(at.subscriber.replay(0))
        assert late.index == at.reader.index
        assert len(late.index) == 6


async def test_a_restart_is_a_new_life(checkpoint: Path, tmp_path: Path) -> None:
    """Report R079: the sequence begins at 0 again, and what was there before is forgotten."""
    address = f"ipc://{tmp_path}/events"
    settings = tiny_settings(checkpoint, kv_events=address)
    with subscribed(address, f"{address}.replay") as subscriber:
        reader = None
        for life, turns in (("life-1", 3), ("life-2", 1)):
            async with watched(checkpoint, open_publisher(settings, life, time.time)) as at:
                at.subscriber, at.reader = subscriber, reader or at.reader
                for number in range(turns):
                    await at.turn(prompt_of(number))
                await at.agrees()
                assert at.reader.incarnation == life
                reader = at.reader


async def test_a_flush_clears(checkpoint: Path) -> None:
    """Report R078: nothing is left on any tier."""
    async with watched(checkpoint, host_mib=1) as at:
        await at.turn(prompt_of(0))
        while len(await at.agrees()) < 6:
            pass  # copies to the host are on their way
        assert (await at.client.post("/flush_cache")).status_code == 200
        assert await at.agrees() == {}
        before = at.reader.next_seq
        assert (await at.client.post("/flush_cache")).status_code == 200
        assert at.subscriber.replay(before) == []


async def test_what_is_published_is_counted(checkpoint: Path) -> None:
    async with watched(checkpoint) as at:
        await at.turn(prompt_of(0))
        await at.agrees()
        lines = (await at.client.get("/metrics")).text.splitlines()
        said = dict(line.split() for line in lines if line.startswith("agentcache_kv_events_"))
        counts = at.worker.events.counts()
        assert float(said["agentcache_kv_events_published_total"]) == counts.events > 3
        assert float(said["agentcache_kv_events_batches_total"]) == counts.batches
        assert float(said["agentcache_kv_events_replays_total"]) == counts.replays > 0
        assert float(said["agentcache_kv_events_snapshots_total"]) == 0
        assert float(said["agentcache_kv_events_dropped_total"]) == 0


async def test_a_worker_that_nobody_listens_to_makes_no_events(checkpoint: Path) -> None:
    settings = tiny_settings(checkpoint)
    events = open_publisher(settings, "life", time.time)
    worker = start_worker(settings, events)
    assert not (await worker.thread.call(lambda engine: engine.cache.config)).emit_events
    assert (worker.events.events_url, worker.events.counts().events) == ("", 0)
    await worker.thread.stop(0)


@pytest.mark.timeout(300)
async def test_a_worker_process_publishes_until_its_end(checkpoint: Path, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/events"
    async with serving(checkpoint, "--kv-events", address) as running:
        with subscribed(address, f"{address}.replay") as subscriber:
            async with httpx2.AsyncClient(base_url=running.url, timeout=PATIENCE_S) as client:
                body = {"prompt": prompt_of(0), "max_tokens": 1}
                assert (await client.post("/v1/completions", json=body)).status_code == 200
            while len(messages := subscriber.replay(0)) < 2:
                pass
            assert messages[0].batch.events == [AllBlocksCleared()]
            assert incarnation_of(messages[0].topic)
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0
    assert not list(tmp_path.iterdir())
