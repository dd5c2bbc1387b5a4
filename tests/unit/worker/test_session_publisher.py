"""Session events over real sockets: in order, replayed, sealed, and never in anybody's way."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from agentcache.config import Settings
from agentcache.errors import CacheError, Kind
from agentcache.kv_events import END_SEQ, Seal, Sealed, decode_batch, pack_seq, unpack_seq
from agentcache.session_events import Happening, SessionEvent
from agentcache.session_feed import (
    SessionBatch,
    SessionClosed,
    SessionEventsLost,
    SessionEvicted,
    SessionExpired,
    SessionMoved,
    SessionOpened,
    SessionPaused,
    SessionResumed,
    SessionTold,
    decode_sessions,
    session_topic,
)
from agentcache.types import FULL, SessionId, TierName
from agentcache.wire import TagSigner
from agentcache.worker.kv_sockets import open_sockets
from agentcache.worker.kv_telling import Limits
from agentcache.worker.session_publisher import (
    MOST_TOLD,
    NoSessionPublisher,
    ToldSessions,
    open_session_publisher,
)

AT_ONCE = Limits(gather_s=0)
ANYWHERE = "tcp://127.0.0.1:*"
NOW_S = 1_700_000_000.5
DEADLINE_MS = 60_000
SEALED = Sealed(TagSigner(b"s" * 32))


def event(what: Happening, session: str = "s", **said: object) -> SessionEvent:
    return SessionEvent(what, SessionId(session), 1, **said)  # type: ignore[arg-type]


@contextmanager
def publishing(limits: Limits = AT_ONCE, routed: bool = False) -> Iterator[ToldSessions]:
    sockets = open_sockets(Settings(), asked=ANYWHERE)
    with closing(ToldSessions(sockets, "life-1", lambda: NOW_S, routed, limits)) as publisher:
        yield publisher


class Reader:
    """A real reader: what is published, and replays."""

    def __init__(self, publisher: ToldSessions) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.live = self.context.socket(zmq.SUB)
        self.live.subscribe(b"")
        self.live.connect(publisher.events_url)
        self.asking = self.context.socket(zmq.DEALER)
        self.asking.connect(publisher.replay_url)

    def heard(self, within_ms: int = DEADLINE_MS) -> tuple[bytes, int, SessionBatch] | None:
        if not self.live.poll(within_ms):
            return None
        topic, seq, payload = self.live.recv_multipart()
        return topic, unpack_seq(seq), decode_sessions(payload)

    def replay(self, start: int) -> list[tuple[int, list[SessionTold]]]:
        self.asking.send_multipart([b"", pack_seq(start)])
        said: list[tuple[int, list[SessionTold]]] = []
        while True:
            assert self.asking.poll(DEADLINE_MS)
            _, _, seq, payload = self.asking.recv_multipart()
            if unpack_seq(seq) == END_SEQ:
                return said
            said.append((unpack_seq(seq), decode_sessions(payload).events))

    def until(self, last: SessionTold) -> list[SessionTold]:
        """Replays from the beginning until this was told; everything told by then."""
        while last not in (told := [one for _, events in self.replay(0) for one in events]):
            pass
        return told

    def close(self) -> None:
        self.live.close(linger=0)
        self.asking.close(linger=0)
        self.context.term()


def test_a_reader_hears_in_order_what_happens_to_a_session() -> None:
    said = [
        event(Happening.OPENED, parent=SessionId("root")),
        event(Happening.PAUSED, tool="tests", expected_s=30.0),
        event(Happening.RESUMED),
        event(Happening.EVICTED, component=FULL, lost=(TierName.DEVICE, TierName.HOST)),
        event(Happening.EXPIRED),
        event(Happening.MOVED),
        event(Happening.CLOSED),
    ]
    named: dict[str, Any] = {"session_id": "s", "generation": 1}
    with publishing() as publisher, closing(Reader(publisher)) as reader:
        publisher.start()
        for one in said:
            publisher.happened(one)
        assert reader.until(SessionClosed(**named)) == [
            SessionOpened(**named, parent_session_id="root"),
            SessionPaused(**named, tool="tests", expected_s=30.0),
            SessionResumed(**named),
            SessionEvicted(**named, component="FULL", lost=("device", "host")),
            SessionExpired(**named),
            SessionMoved(**named),
            SessionClosed(**named),
        ]
        assert reader.replay(0)[0] == (0, []), "an incarnation begins with an empty batch"


def test_a_subscriber_hears_live_what_happens() -> None:
    with publishing() as publisher, closing(Reader(publisher)) as reader:
        publisher.start()
        while (first := reader.heard(20)) is None:  # until the subscription has arrived
            publisher.happened(event(Happening.OPENED))
        publisher.happened(event(Happening.CLOSED))
        topic, seq, batch = first
        closed = SessionClosed(session_id="s", generation=1)
        while closed not in batch.events:
            later = reader.heard()
            assert later is not None
            assert later[1] == seq + 1
            _, seq, batch = later
    assert (topic, batch.ts) == (session_topic("life-1"), NOW_S)


def test_behind_a_router_an_event_names_tenant_and_session() -> None:
    with publishing(routed=True) as publisher, closing(Reader(publisher)) as reader:
        publisher.start()
        publisher.happened(event(Happening.OPENED, "acme/a/b", parent=SessionId("acme/root")))
        publisher.happened(event(Happening.CLOSED, "acme/a/b"))
        named: dict[str, Any] = {"session_id": "a/b", "generation": 1, "tenant": "acme"}
        assert reader.until(SessionClosed(**named)) == [
            SessionOpened(**named, parent_session_id="root"),
            SessionClosed(**named),
        ]


def test_a_replay_from_before_the_journal_has_all_that_is_left_under_its_own_numbers() -> None:
    with publishing(Limits(gather_s=0, journal_batches=2)) as publisher, closing(Reader(publisher)) as reader:
        publisher.start()
        for number in range(4):
            publisher.happened(event(Happening.OPENED, str(number)))
            reader.until(SessionOpened(session_id=str(number), generation=1))
        for start in (0, -5, 99):
            assert [seq for seq, _ in reader.replay(start)] == [3, 4]
        assert [seq for seq, _ in reader.replay(4)] == [4]
        assert reader.replay(5) == []


def test_a_reader_that_never_reads_holds_nobody_up() -> None:
    """Its queue fills, and it loses; whoever tells of things does not notice."""
    limits = Limits(gather_s=0, journal_batches=20_001)  # nothing leaves the journal, even if each is a batch
    with (
        publishing(limits) as publisher,
        closing(Reader(publisher)) as dead,
        closing(Reader(publisher)) as reader,
    ):
        publisher.start()
        dead.asking.send_multipart([b"", pack_seq(0)])
        for number in range(20_000):
            publisher.happened(event(Happening.OPENED, f"session-{number}"))
        told = reader.until(SessionOpened(session_id="session-19999", generation=1))
        assert len(told) == 20_000


def test_what_is_too_much_is_dropped_and_counted() -> None:
    with publishing(Limits(gather_s=0, queue=3)) as publisher, closing(Reader(publisher)) as reader:
        for number in range(10):
            publisher.happened(event(Happening.OPENED, str(number)))
        publisher.start()
        assert reader.until(SessionEventsLost(10)) == [SessionEventsLost(10)]
        publisher.happened(event(Happening.CLOSED))
        assert reader.until(SessionClosed(session_id="s", generation=1))[0] == SessionEventsLost(10)
        assert publisher.counts().dropped == 10


def test_strict_readers_of_placement_events_would_refuse_these() -> None:
    """Which is why they have a socket of their own; a tolerant one counts them."""
    said = SessionBatch(NOW_S, [SessionClosed(session_id="s", generation=1)])
    decoded = decode_batch(msgspec.msgpack.encode(said))
    assert (decoded.batch.events, decoded.ignored) == ([], 1)
    with pytest.raises(CacheError) as refused:
        decode_sessions(b"nonsense")
    assert refused.value.kind is Kind.BAD_REQUEST


@pytest.mark.parametrize("started", [True, False])
def test_an_end_leaves_no_thread_and_no_socket(tmp_path: Path, started: bool) -> None:
    settings = Settings(session_events=f"ipc://{tmp_path}/sessions")
    publisher = open_session_publisher(settings, "life-1", lambda: NOW_S)
    if started:
        publisher.start()
    publisher.close()
    publisher.close()
    assert "agentcache-session-events" not in [thread.name for thread in threading.enumerate()]
    assert not list(tmp_path.iterdir())


def test_without_an_address_and_a_router_nobody_is_told() -> None:
    publisher = open_session_publisher(Settings(), "life-1", lambda: NOW_S)
    assert isinstance(publisher, NoSessionPublisher)
    assert (publisher.listening, publisher.events_url) == (False, "")


@pytest.mark.parametrize("seal", [SEALED, Sealed(TagSigner(b"t" * 32))])
def test_on_a_network_only_holders_of_the_routers_secret_can_read(seal: Seal) -> None:
    settings = Settings(redis_url="redis://h:1", secret_file="/s")
    with closing(open_session_publisher(settings, "life-1", lambda: NOW_S, seal=SEALED)) as publisher:
        publisher.start()
        assert publisher.events_url.startswith("curve+tcp://127.0.0.1:")
        with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
            asking.linger = 0
            seal.reader(asking)
            asking.connect(publisher.replay_url.removeprefix(SEALED.mark))
            asking.send_multipart([b"", pack_seq(0)])
            assert bool(asking.poll(DEADLINE_MS if seal is SEALED else 300)) == (seal is SEALED)


def test_the_close_of_a_huge_tree_is_many_messages() -> None:
    """All of it in one would not fit into the journal, and whoever asked for a replay then ended the thread."""
    limits = Limits(gather_s=0, journal_bytes=2**18)
    with publishing(limits) as publisher, closing(Reader(publisher)) as reader:
        for number in range(8_000):
            publisher.happened(event(Happening.CLOSED, f"child-{number:030d}"))
        publisher.start()
        told = reader.until(SessionClosed(session_id=f"child-{7999:030d}", generation=1))
        assert MOST_TOLD < len(told) < 8_000, "as much as the journal holds"
        assert len(reader.replay(0)[-1][1]) == MOST_TOLD
