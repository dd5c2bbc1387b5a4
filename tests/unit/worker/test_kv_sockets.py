"""Who can read a worker's events: by default its routers alone, and everybody where the operator names an address."""

import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import zmq

from agentcache.clock import SystemClock
from agentcache.config import Settings
from agentcache.errors import CacheError, Kind
from agentcache.kv_events import OPEN, AllBlocksCleared, Seal, Sealed, pack_seq
from agentcache.types import full_spec
from agentcache.wire import TagSigner
from agentcache.worker.kv_publisher import KvPublisher, Publisher, open_publisher
from agentcache.worker.kv_sockets import open_sockets
from tests.subscribing import DEADLINE_MS, subscribed

SEALED = Sealed(TagSigner(b"s" * 32))
ELSEWHERE = Settings(redis_url="redis://h:1", secret_file="/s")
LATE_MS = 300


@contextmanager
def publishing(settings: Settings, name: str = "life") -> Iterator[Publisher]:
    with closing(open_publisher(settings, name, lambda: 0.0, seal=SEALED)) as publisher:
        publisher.start((full_spec(),), 2)
        yield publisher


def replayed(publisher: Publisher, seal: Seal) -> bool:
    """Whether somebody who has that gets a replay."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as asking:
        asking.linger = 0
        seal.reader(asking)
        asking.connect(publisher.replay_url.removeprefix(SEALED.mark))
        asking.send_multipart([b"", pack_seq(0)])
        return bool(asking.poll(DEADLINE_MS if seal is SEALED else LATE_MS))


def test_on_a_network_only_holders_of_the_secret_can_read() -> None:
    with publishing(ELSEWHERE) as publisher:
        assert publisher.events_url.startswith("curve+tcp://127.0.0.1:")
        assert not replayed(publisher, OPEN)
        assert not replayed(publisher, Sealed(TagSigner(b"t" * 32)))
        assert replayed(publisher, SEALED)


def test_where_the_library_cannot_seal_nothing_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq, "has", lambda _: False)
    with closing(open_publisher(ELSEWHERE, "life", lambda: 0.0, seal=SEALED)) as publisher:
        assert (publisher.listening, publisher.events_url) == (False, "")


def test_an_address_that_was_asked_for_is_open_to_all() -> None:
    with publishing(Settings(**{**ELSEWHERE.model_dump(), "kv_events": "tcp://127.0.0.1:*"})) as publisher:
        assert publisher.events_url.startswith("tcp://127.0.0.1:")
        with subscribed(publisher.events_url, publisher.replay_url) as subscriber:
            assert subscriber.replay(0)[0].batch.events == [AllBlocksCleared()]


def test_with_a_router_on_this_machine_events_are_in_its_folder(tmp_path: Path) -> None:
    home = Settings(router_dir=str(tmp_path))
    with publishing(home, "one-of-two") as one, publishing(home, "another") as other:
        assert one.events_url.startswith(f"ipc://{tmp_path}/")
        assert len({one.events_url, one.replay_url, other.events_url, other.replay_url}) == 4
        for url in (one.events_url, one.replay_url):
            assert stat.S_IMODE(Path(url.removeprefix("ipc://")).stat().st_mode) == 0o600
        with subscribed(one.events_url, one.replay_url) as subscriber:
            assert subscriber.replay(0)
    assert [path.name for path in tmp_path.iterdir()] == ["events.lock"]


def test_what_a_killed_worker_left_in_the_folder_is_removed_and_the_living_stay(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "ev-000000"))
    home = Settings(router_dir=str(tmp_path))
    with publishing(home, "one") as one, publishing(home, "two"):
        assert not (tmp_path / "ev-000000").exists()
        with subscribed(one.events_url, one.replay_url) as subscriber:
            assert subscriber.replay(0)


def test_a_folder_with_a_long_name_has_its_events_elsewhere_and_private(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with publishing(Settings(router_dir=str(folder))) as publisher:
        place = Path(publisher.events_url.removeprefix("ipc://")).parent
        assert place != folder
        assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="kv_events") as refused:
        open_sockets(Settings(router_dir=str(tmp_path / "none")), SEALED, "life")
    assert refused.value.kind is Kind.BAD_CONFIG


def test_a_sealed_publisher_tells_its_readers_what_happens() -> None:
    publisher = KvPublisher(open_sockets(ELSEWHERE, SEALED), "life", lambda: 0.0, SystemClock())
    with closing(publisher), zmq.Context() as context, context.socket(zmq.SUB) as reader:
        reader.linger = 0
        SEALED.reader(reader)
        reader.subscribe(b"")
        reader.connect(publisher.events_url.removeprefix(SEALED.mark))
        with context.socket(zmq.SUB) as stranger:
            stranger.linger = 0
            stranger.subscribe(b"")
            stranger.connect(publisher.events_url.removeprefix(SEALED.mark))
            sockets = publisher._sockets.events
            while not reader.poll(20):
                sockets.send_multipart([b"t", b"s", b"p"])
            assert reader.recv_multipart() == [b"t", b"s", b"p"]
            assert not stranger.poll(LATE_MS)
