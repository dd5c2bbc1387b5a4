"""The publisher over real sockets: order, replays, snapshots, overflow, and an end that leaves nothing behind."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from agentcache.clock import SystemClock
from agentcache.config import Settings
from agentcache.errors import CacheError, Kind
from agentcache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, topic_of
from agentcache.types import Event, EventKind, TierName, full_spec
from agentcache.worker.kv_publisher import KvPublisher, NoPublisher, open_publisher
from agentcache.worker.kv_sockets import open_sockets, replay_address
from agentcache.worker.kv_telling import EventCounts, Limits
from tests.subscribing import Message, Subscriber, subscribed

AT_ONCE = Limits(gather_s=0)
ANYWHERE = Settings(kv_events="tcp://127.0.0.1:*")
NOW_S = 1_700_000_000.5


def page(number: int, kind: EventKind = EventKind.STORED) -> Event:
    tokens = (number, number) if kind is EventKind.STORED else ()
    return Event(kind, TierName.DEVICE, (number.to_bytes(32, "big"),), None, tokens)


def told(number: int) -> BlockStored:
    return BlockStored(
        [number.to_bytes(32, "big")],
        token_ids=[number, number],
        block_size=2,
        medium="GPU",
        group=0,
        kv_cache_spec_kind="full_attention",
    )


@contextmanager
def publishing(settings: Settings = ANYWHERE, limits: Limits = AT_ONCE) -> Iterator[KvPublisher]:
    publisher = KvPublisher(open_sockets(settings), "life-1", lambda: NOW_S, SystemClock(), limits)
    with closing(publisher):
        yield publisher


@contextmanager
def running(limits: Limits = AT_ONCE) -> Iterator[tuple[KvPublisher, Subscriber]]:
    with publishing(limits=limits) as publisher:
        publisher.start((full_spec(),), 2)
        with subscribed(publisher.events_url, publisher.replay_url) as subscriber:
            yield publisher, subscriber


def batches(publisher: KvPublisher, count: int) -> None:
    """Publish `count` pages, each a batch of its own: a replay answers once what came before is told."""
    with subscribed(publisher.events_url, publisher.replay_url) as witness:
        for number in range(count):
            publisher.publish(page(number))
            while not any(told(number) in message.batch.events for message in witness.replay(0)):
                pass


def numbers(messages: list[Message]) -> list[int]:
    return [message.seq for message in messages]


def test_a_subscriber_hears_in_order_what_happens() -> None:
    with running() as (publisher, subscriber):
        number = 0
        while (first := subscriber.heard(20)) is None:  # until the subscription has arrived
            publisher.publish(page(number := number + 1))
        publisher.publish(page(0))
        publisher.publish(page(0, EventKind.REMOVED))
        messages = [first]
        removed = BlockRemoved([bytes(32)], "GPU", 0)
        while removed not in messages[-1].batch.events:
            heard = subscriber.heard()
            assert heard is not None
            messages.append(heard)
    assert numbers(messages) == [*range(first.seq, first.seq + len(messages))]
    assert {message.topic for message in messages} == {topic_of("life-1")}
    assert {message.batch.ts for message in messages} == {NOW_S}
    events = [event for message in messages for event in message.batch.events]
    assert events[-2:] == [told(0), removed]


def test_an_incarnation_begins_with_a_clear() -> None:
    """Report R079: whatever a reader believes of the worker before is void."""
    with running() as (_, subscriber):
        (first,) = subscriber.replay(0)
        assert (first.seq, first.batch.events) == (0, [AllBlocksCleared()])


def test_what_happens_together_is_one_batch() -> None:
    with publishing() as publisher:
        for number in range(3):
            publisher.publish(page(number))
        publisher.start((full_spec(),), 2)
        with subscribed(publisher.events_url, publisher.replay_url) as subscriber:
            messages = subscriber.replay(0)
    assert [message.batch.events for message in messages] == [
        [AllBlocksCleared()],
        [told(0), told(1), told(2)],
    ]


def test_a_replay_begins_where_it_is_asked_to() -> None:
    with running() as (publisher, subscriber):
        batches(publisher, 3)
        assert numbers(subscriber.replay(0)) == [0, 1, 2, 3]
        assert numbers(subscriber.replay(2)) == [2, 3]
        assert [m.batch.events for m in subscriber.replay(3)] == [[told(2)]]
        assert subscriber.replay(4) == []


@pytest.mark.parametrize("start", [0, 1, -7, 9_431])
def test_who_asks_for_what_is_not_there_gets_all_there_is(start: int) -> None:
    """Reports R079, R194: older than the journal, or of another life; the number is that of the last batch."""
    with running(Limits(gather_s=0, journal_batches=2)) as (publisher, subscriber):
        batches(publisher, 4)
        publisher.publish(page(1, EventKind.REMOVED))
        while publisher.counts().batches < 6:
            subscriber.replay(5)
        (snapshot,) = subscriber.replay(start)
        assert (snapshot.topic, snapshot.seq) == (topic_of("life-1"), 5)
        assert snapshot.batch.events == [AllBlocksCleared(), told(0), told(2), told(3)]
        assert numbers(subscriber.replay(4)) == [4, 5]


def test_who_followed_another_life_gets_all_there_is() -> None:
    """Report R079: even where the numbers of both lives fit together."""
    with running() as (publisher, subscriber):
        batches(publisher, 2)
        assert numbers(subscriber.replay(2, topic_of("life-1"))) == [2]
        (snapshot,) = subscriber.replay(2, topic_of("life-0"))
        assert (snapshot.seq, snapshot.batch.events) == (2, [AllBlocksCleared(), told(0), told(1)])


def test_a_journal_is_bounded_in_bytes_too() -> None:
    with running(Limits(gather_s=0, journal_bytes=1)) as (publisher, subscriber):
        batches(publisher, 2)
        (snapshot,) = subscriber.replay(2)
        assert (snapshot.seq, snapshot.batch.events[1:]) == (2, [told(0), told(1)])


def test_several_readers_are_answered_at_the_same_time() -> None:
    with (
        running() as (publisher, subscriber),
        subscribed(publisher.events_url, publisher.replay_url) as other,
    ):
        batches(publisher, 2)
        subscriber.ask(0)
        other.ask(1)
        assert (numbers(other.answer()), numbers(subscriber.answer())) == ([1, 2], [0, 1, 2])


def test_requests_that_are_none_are_dropped() -> None:
    with running() as (publisher, subscriber):
        subscriber.requests.send_multipart([b"", b"from the start, please"])
        subscriber.requests.send_multipart([b""])
        subscriber.requests.send_multipart([b"", b"", b"", b""])
        assert numbers(subscriber.replay(0)) == [0]
        assert publisher.counts().replays == 1


def test_publishing_never_waits_and_never_fails() -> None:
    """Nobody reads, then too much waits, then it is over: the engine does not notice."""
    with publishing(limits=Limits(gather_s=0, queue=100)) as publisher:
        for number in range(1000):
            publisher.publish(page(number))
        assert publisher.counts().dropped == 998
    publisher.publish(page(0))


def test_an_overflow_tells_that_nothing_is_there_and_goes_on() -> None:
    """Readers may believe too little, never too much."""
    with publishing(limits=Limits(gather_s=0, queue=100)) as publisher:
        for number in range(5):
            publisher.publish(page(number))
        publisher.start((full_spec(),), 2)
        with subscribed(publisher.events_url, publisher.replay_url) as subscriber:
            subscriber.replay(0)
            publisher.publish(page(7))
            while told(7) not in (events := subscriber.replay(0)[-1].batch.events):
                pass
            (*_, last) = subscriber.replay(-1)
            assert last.batch.events == [AllBlocksCleared(), told(7)]
    assert events == [told(7)]
    assert publisher.counts().dropped == 5


def test_one_event_larger_than_the_queue_is_taken() -> None:
    with running(Limits(gather_s=0, queue=1)) as (publisher, subscriber):
        batches(publisher, 1)
        assert subscriber.replay(1)[0].batch.events == [told(0)]
        assert publisher.counts().dropped == 0


def test_counts() -> None:
    with running(Limits(gather_s=0, journal_batches=1)) as (publisher, subscriber):
        assert numbers(subscriber.replay(0)) == [0]
        publisher.publish(page(1))
        while publisher.counts().batches < 2:
            subscriber.replay(5)
        snapshots, replays = publisher.counts().snapshots, publisher.counts().replays
        subscriber.replay(0)
        assert publisher.counts() == EventCounts(2, 2, replays + 1, snapshots + 1, 0)


def test_what_waits_at_the_end_is_told() -> None:
    with publishing() as publisher:
        publisher.start((full_spec(),), 2)
        publisher.publish(page(1))
    assert publisher.counts().events == 2


@pytest.mark.parametrize("started", [True, False])
def test_an_end_leaves_no_thread_and_no_socket(tmp_path: Path, started: bool) -> None:
    address = f"ipc://{tmp_path}/events"
    with publishing(Settings(kv_events=address)) as publisher:
        if started:
            publisher.start((full_spec(),), 2)
    publisher.close()
    assert "agentcache-kv-events" not in [thread.name for thread in threading.enumerate()]
    assert not list(tmp_path.iterdir())
    with publishing(Settings(kv_events=address)) as again:
        assert again.events_url == address


def test_paths_are_addresses_too(tmp_path: Path) -> None:
    with publishing(Settings(kv_events=f"ipc://{tmp_path}/events")) as publisher:
        assert publisher.replay_url == f"ipc://{tmp_path}/events.replay"
        publisher.start((full_spec(),), 2)
        with subscribed(publisher.events_url, publisher.replay_url) as subscriber:
            assert numbers(subscriber.replay(0)) == [0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("events", "replay"),
    [
        ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558"),
        ("tcp://*:5557", "tcp://*:5558"),
        ("tcp://[::1]:5557", "tcp://[::1]:5558"),
        ("tcp://127.0.0.1:*", "tcp://127.0.0.1:*"),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:*"),
        ("ipc:///run/events", "ipc:///run/events.replay"),
    ],
)
def test_replays_are_beside_the_events(events: str, replay: str) -> None:
    assert replay_address(events) == replay


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0"])
def test_behind_a_router_a_free_port_of_the_workers_host(host: str) -> None:
    settings = Settings(redis_url="redis://h:1", secret_file="s", host=host)
    with closing(open_publisher(settings, "life", lambda: 0.0)) as publisher:
        assert publisher.events_url.startswith("tcp://127.0.0.1:")
        assert publisher.events_url != publisher.replay_url
        assert publisher.listening


def test_an_address_for_all_is_told_as_the_one_to_advertise() -> None:
    for host in ("worker-7", "[::1]"):
        settings = Settings(kv_events="tcp://*:*", router_dir="x", advertise_url=f"http://{host}:8100")
        with publishing(settings) as publisher:
            assert publisher.events_url.startswith(f"tcp://{host}:")
            assert publisher.replay_url.startswith(f"tcp://{host}:")


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:99999999", "here", "tcp://no-such-interface:5557"])
def test_an_address_that_cannot_be_had(address: str) -> None:
    with pytest.raises(CacheError, match="an address for events is tcp://IP:PORT") as refused:
        open_sockets(Settings(kv_events=address))
    assert refused.value.kind is Kind.BAD_CONFIG


def test_a_port_that_is_taken() -> None:
    with publishing() as publisher, pytest.raises(CacheError, match="cannot publish events at"):
        open_sockets(Settings(kv_events=publisher.events_url))


def test_a_host_that_nobody_knows() -> None:
    with pytest.raises(CacheError, match="choose another with --host"):
        open_sockets(Settings(redis_url="redis://h:1", secret_file="s", host="no such host"))


def test_without_anybody_who_wants_events_there_are_none() -> None:
    publisher = open_publisher(Settings(), "life", lambda: 0.0)
    assert isinstance(publisher, NoPublisher)
    assert not publisher.listening
    publisher.publish(page(1))
    publisher.start((full_spec(),), 2)
    publisher.close()
    assert publisher.counts() == EventCounts()
    assert (publisher.incarnation, publisher.events_url, publisher.replay_url) == ("life", "", "")
