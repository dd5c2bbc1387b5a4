"""Feeds over real sockets: what a worker tells arrives once, in order, whatever was lost, restarted or garbage."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import pytest
import zmq
import zmq.asyncio

from agentcache.clock import SystemClock
from agentcache.config import Settings
from agentcache.kv_events import (
    END_SEQ,
    AllBlocksCleared,
    Batch,
    BlockEvent,
    BlockStored,
    Sealed,
    encode_batch,
    pack_seq,
    topic_of,
    unpack_seq,
)
from agentcache.router.feed import FeedMode, FeedRules, Feeds, FeedState
from agentcache.router.index import PrefixIndex
from agentcache.types import Event, EventKind, TierName, full_spec
from agentcache.wire import TagSigner, WorkerCard
from agentcache.worker.kv_parts import PART_PAGES
from agentcache.worker.kv_publisher import KvPublisher
from agentcache.worker.kv_sockets import open_sockets
from agentcache.worker.kv_telling import Limits
from tests.fleets import PAGE, card_of

QUICK = FeedRules(silence_s=0.05, replay_s=60.0)
PATIENT = FeedRules(silence_s=3600.0, replay_s=60.0)
WAIT_S = 60.0
NOW_S = 1000.0
ANYWHERE = Settings(kv_events="tcp://127.0.0.1:*")
SEALED = Sealed(TagSigner(b"s" * 32))


async def until(condition: Callable[[], object]) -> None:
    """Wait, with a deadline, until it is so."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0)


@asynccontextmanager
async def listening(rules: FeedRules = QUICK) -> AsyncIterator[tuple[Feeds, PrefixIndex]]:
    index = PrefixIndex()
    feeds = Feeds(index, lambda: int(NOW_S * 1000) + 250, rules, SEALED)
    try:
        yield feeds, index
    finally:
        await feeds.close()


def page(number: int) -> bytes:
    return number.to_bytes(32, "big")


# a publisher of ours


@contextmanager
def publishing(
    incarnation: str = "first", limits: Limits | None = None, settings: Settings = ANYWHERE
) -> Iterator[KvPublisher]:
    sockets = open_sockets(settings, SEALED, incarnation)
    publisher = KvPublisher(sockets, incarnation, lambda: NOW_S, SystemClock(), limits or Limits(gather_s=0))
    publisher.start((full_spec(),), PAGE)
    with closing(publisher):
        yield publisher


def card_for(publisher: KvPublisher, worker: str = "a") -> WorkerCard:
    return card_of(
        worker,
        incarnation=publisher.incarnation,
        events_url=publisher.events_url,
        replay_url=publisher.replay_url,
    )


def store(publisher: KvPublisher, *numbers: int) -> None:
    for number in numbers:
        tokens = (number,) * PAGE
        publisher.publish(Event(EventKind.STORED, TierName.DEVICE, (page(number),), None, tokens))


@pytest.mark.asyncio
async def test_a_late_listener_hears_of_everything_and_then_of_the_rest() -> None:
    with publishing() as publisher:
        store(publisher, *range(50))
        async with listening() as (feeds, index):
            await feeds.sync([card_for(publisher)])
            await until(lambda: index.pages == 50)
            await until(lambda: feeds.mode("a") is FeedMode.EVENTS)
            store(publisher, *range(50, 60))
            await until(lambda: index.pages == 60 and index.synced("a"))
            assert feeds.overall is FeedMode.EVENTS


@pytest.mark.asyncio
async def test_workers_whose_events_are_for_routers_only_are_followed_beside_others() -> None:
    elsewhere = Settings(redis_url="redis://h:1", secret_file="s")
    with publishing(settings=elsewhere) as sealed, publishing() as plain:
        assert (sealed.events_url[:9], plain.events_url[:3]) == ("curve+tcp", "tcp")
        async with listening() as (feeds, index):
            await feeds.sync([card_for(sealed), card_for(plain, "b")])
            store(sealed, 1, 2)
            store(plain, 3)
            await until(lambda: index.pages == 3 and feeds.overall is FeedMode.EVENTS)


@pytest.mark.asyncio
async def test_a_journal_that_has_forgotten_is_a_snapshot() -> None:
    with publishing(limits=Limits(gather_s=0, journal_batches=1)) as publisher:
        for number in range(20):
            store(publisher, number)
            await until(lambda told=number + 2: publisher.counts().batches >= told)  # type: ignore[misc]
        async with listening() as (feeds, index):
            await feeds.sync([card_for(publisher)])
            await until(lambda: index.pages == 20 and index.synced("a"))
            assert publisher.counts().snapshots >= 1


@pytest.mark.asyncio
async def test_a_long_snapshot_is_taken_part_by_part_and_others_have_their_turn() -> None:
    pages, at_once = 6 * PART_PAGES, 100
    with publishing(limits=Limits(gather_s=0, journal_batches=1)) as publisher:
        for number in range(0, pages, at_once):
            hashes = tuple(map(page, range(number, number + at_once)))
            told = publisher.counts().batches
            publisher.publish(Event(EventKind.STORED, TierName.DEVICE, hashes, None, (1,) * PAGE * at_once))
            await until(lambda told=told: publisher.counts().batches > told)  # type: ignore[misc]
        async with listening() as (feeds, index):
            await feeds.sync([card_for(publisher)])
            seen = [0]
            async with asyncio.timeout(WAIT_S):
                while not index.synced("a"):
                    await asyncio.sleep(0)
                    seen.append(index.pages)
    assert seen[-1] == pages
    assert max(after - before for before, after in itertools.pairwise(seen)) <= PART_PAGES + at_once


@pytest.mark.asyncio
async def test_a_worker_that_restarts_has_what_it_tells_now() -> None:
    async with listening() as (feeds, index):
        with publishing() as before:
            store(before, *range(9))
            await feeds.sync([card_for(before)])
            await until(lambda: index.pages == 9)
        with publishing("second") as after:
            await feeds.sync([card_for(after)])
            assert index.pages == 0
            store(after, 3)
            await until(lambda: index.pages == 1 and index.synced("a"))


@pytest.mark.asyncio
async def test_who_leaves_is_forgotten_and_who_is_the_same_is_kept() -> None:
    with publishing() as one, publishing() as two:
        async with listening() as (feeds, index):
            cards = [card_for(one, "a"), card_for(two, "b")]
            store(one, 1)
            store(two, 2, 3)
            await feeds.sync(cards)
            await until(lambda: index.pages == 3)
            replays = feeds.states()["b"].replays
            await feeds.sync(cards)
            assert feeds.states()["b"].replays >= replays
            await feeds.sync(cards[1:])
            assert index.pages == 2
            assert set(feeds.states()) == {"b"}


@pytest.mark.asyncio
async def test_a_worker_that_publishes_nothing_is_left_to_own_decisions() -> None:
    with publishing() as publisher:
        async with listening() as (feeds, _):
            modes = [feeds.overall]
            await feeds.sync([card_of("b")])
            assert feeds.states() == {"b": FeedState(FeedMode.OWN_DECISIONS)}
            modes.append(feeds.overall)
            await feeds.sync([card_of("b"), card_for(publisher)])
            await until(lambda: feeds.mode("a") is FeedMode.EVENTS)
            assert feeds.mode("b") is FeedMode.OWN_DECISIONS
            modes.append(feeds.overall)
            assert modes == [FeedMode.OWN_DECISIONS, FeedMode.OWN_DECISIONS, FeedMode.DEGRADED]


@pytest.mark.asyncio
async def test_an_address_that_is_none_is_degraded_and_harms_nobody() -> None:
    async with listening() as (feeds, _):
        await feeds.sync([card_of("a", events_url="nonsense", replay_url="nonsense")])
        await asyncio.sleep(0)
        assert feeds.mode("a") is FeedMode.DEGRADED
        await feeds.sync([])


@pytest.mark.asyncio
async def test_closing_twice_is_closing_once() -> None:
    with publishing() as publisher:
        async with listening() as (feeds, _):
            await feeds.sync([card_for(publisher)])
            await feeds.close()
            await feeds.close()
            assert feeds.states() == {}


# a publisher with faults


class Station:
    """A publisher that may lose what it tells, fall silent on replays, or answer them with whatever it is told to."""

    def __init__(self) -> None:
        self._context = zmq.asyncio.Context()
        self._live = self._context.socket(zmq.PUB)
        self._replay = self._context.socket(zmq.ROUTER)
        for one in (self._live, self._replay):
            one.linger = 0
        self.events_url = f"tcp://127.0.0.1:{self._live.bind_to_random_port('tcp://127.0.0.1')}"
        self.replay_url = f"tcp://127.0.0.1:{self._replay.bind_to_random_port('tcp://127.0.0.1')}"
        self.told: list[bytes] = []
        self.deaf = False
        self.asked: list[int] = []
        self.topic = topic_of("first")
        self._task = asyncio.create_task(self._answer())

    def card(self, **more: str) -> WorkerCard:
        urls = {"events_url": self.events_url, "replay_url": self.replay_url}
        return card_of("a", **(urls | more))

    async def tell(self, *events: BlockEvent, lost: bool = False) -> None:
        await self.tell_raw(encode_batch(Batch(NOW_S, list(events))), lost)

    async def tell_raw(self, payload: bytes, lost: bool = False) -> None:
        self.told.append(payload)
        if not lost:
            await self._live.send_multipart([self.topic, pack_seq(len(self.told) - 1), payload])

    async def _answer(self) -> None:
        while True:
            reader, _, start, topic = await self._replay.recv_multipart()
            assert topic.startswith(topic_of(""))
            self.asked.append(unpack_seq(start))
            if self.deaf:
                continue
            for seq in range(self.asked[-1], len(self.told)):
                await self._replay.send_multipart([reader, b"", self.topic, pack_seq(seq), self.told[seq]])
            await self._replay.send_multipart([reader, b"", b"", pack_seq(END_SEQ), b""])

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._live.close()
        self._replay.close()
        self._context.term()


@asynccontextmanager
async def station() -> AsyncIterator[Station]:
    made = Station()
    try:
        yield made
    finally:
        await made.close()


def stored(*numbers: int) -> BlockStored:
    return BlockStored([page(number) for number in numbers], medium="GPU")


async def subscribed(told: Station, feeds: Feeds) -> None:
    """Until the live stream reaches the feed, which knows all that was told: what is lost from now on is lost on it."""
    while not feeds.states()["a"].messages:
        await told.tell(stored(0))
        await asyncio.sleep(0)
    await up_to_date(told, feeds.index)


async def up_to_date(told: Station, index: PrefixIndex) -> None:
    await until(lambda: index.next_seq("a") == len(told.told))


@pytest.mark.asyncio
async def test_what_is_lost_is_asked_for_from_where_it_is_missing() -> None:
    async with station() as told, listening(PATIENT) as (feeds, index):
        await feeds.sync([told.card()])
        await subscribed(told, feeds)
        missing, gaps = len(told.told), feeds.states()["a"].gaps
        await told.tell(stored(1, 2), lost=True)
        await told.tell(stored(3))
        await until(lambda: index.pages == 4)
        await until(lambda: index.synced("a"))
        assert told.asked[-1] == missing
        state = feeds.states()["a"]
        assert (state.gaps, state.mode) == (gaps + 1, FeedMode.EVENTS)
        assert state.lag_s == pytest.approx(0.25)


@pytest.mark.asyncio
async def test_a_lost_end_is_found_in_the_silence_after_it() -> None:
    async with station() as told, listening(QUICK) as (feeds, index):
        await feeds.sync([told.card()])
        await subscribed(told, feeds)
        await told.tell(stored(1), lost=True)
        await until(lambda: index.pages == 2)


@pytest.mark.asyncio
async def test_without_replays_it_is_degraded_until_one_is_answered() -> None:
    rules = FeedRules(silence_s=0.02, replay_s=0.5)
    async with station() as told, listening(rules) as (feeds, index):
        told.deaf = True
        await told.tell(stored(1))
        await feeds.sync([told.card()])
        await until(lambda: feeds.states()["a"].failed_replays)
        assert feeds.mode("a") is FeedMode.DEGRADED
        assert not index.synced("a")
        told.deaf = False
        await until(lambda: feeds.mode("a") is FeedMode.EVENTS)
        assert index.pages == 1


@pytest.mark.asyncio
async def test_a_publisher_without_replays_is_followed_as_far_as_that_goes() -> None:
    async with station() as told, listening(PATIENT) as (feeds, index):
        await feeds.sync([told.card(replay_url="")])
        await subscribed(told, feeds)
        await told.tell(stored(1), lost=True)
        await told.tell(stored(2))
        await up_to_date(told, index)
        assert index.pages == 1
        assert feeds.mode("a") is FeedMode.DEGRADED
        await told.tell(stored(3))
        await up_to_date(told, index)
        assert index.pages == 2


@pytest.mark.asyncio
async def test_garbage_is_counted_and_does_not_end_the_feed() -> None:
    async with station() as told, listening(PATIENT) as (feeds, index):
        await feeds.sync([told.card()])
        await subscribed(told, feeds)
        told.deaf = True
        await told.tell_raw(b"garbage")
        await until(lambda: feeds.states()["a"].unreadable)
        told.told[-1] = encode_batch(Batch(NOW_S, [stored(1)]))  # this one can be read when it comes again
        told.deaf = False
        await told.tell(AllBlocksCleared(), stored(2), stored(3))
        await up_to_date(told, index)
        assert index.pages == 2


@pytest.mark.asyncio
async def test_a_restart_at_the_same_address_is_noticed_before_its_card_is_known() -> None:
    """The worker's numbers begin again and its topic names another incarnation."""
    async with station() as told, listening(PATIENT) as (feeds, index):
        await feeds.sync([told.card()])
        await subscribed(told, feeds)
        await told.tell(stored(*range(9)))
        await until(lambda: index.pages == 9)
        told.told.clear()
        told.topic = topic_of("second")
        await told.tell(AllBlocksCleared())
        await told.tell(stored(4))
        await until(lambda: index.pages == 1 and index.next_seq("a") == 2)
