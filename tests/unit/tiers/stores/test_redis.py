"""What a Redis can be that is not for us, and what it does while we use it: on real servers."""

import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from agentcache.clock import ManualClock, SystemClock
from agentcache.embedded import GuardedProcess, valkey_binary
from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import Keep
from agentcache.tiers.stores import batches
from agentcache.tiers.stores import redis as module
from agentcache.tiers.stores.redis import AHEAD_MS, DAY_MS, MARKER, Lives, Place, RedisStore, open_redis_store
from tests.stores import data_of, name_of

MIB = 1 << 20
NAMES = [name_of(number) for number in range(100)]
HERE = Path()
CLOCK = SystemClock()
PATIENCE_NS = 60_000_000_000


def until(happened: Callable[[], bool]) -> None:
    deadline = CLOCK.now_ns() + PATIENCE_NS
    while not happened():
        assert CLOCK.now_ns() < deadline, "it did not happen in time"


class Server:
    """A server that is not ours, on a socket in `folder`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.socket = folder / "other.sock"
        self.url = f"unix://{self.socket}"
        self.options = options
        self.start()

    def start(self) -> None:
        place = ("--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder), "--save", "")
        self.process = GuardedProcess(
            [str(valkey_binary()), *place, *self.options], self.folder / "other.log"
        )
        until(lambda: self.says("PING").startswith(b"+PONG") or self.says("PING").startswith(b"-NOAUTH"))

    def says(self, command: str) -> bytes:
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(self.socket))
                line.sendall(command.encode() + b"\r\n")
                return line.recv(1000)
        except OSError:
            return b""

    def client(self, db: int = 0) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.socket), protocol=2, db=db)

    @property
    def number(self) -> int:
        with self.client() as line:
            found: dict[str, int] = line.info("server")
        return found["process_id"]


MakeServer = Callable[..., Server]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[MakeServer]:
    started: list[Server] = []

    def make(*options: str) -> Server:
        started.append(Server(tmp_path, *options))
        return started[-1]

    yield make
    for server in started:
        server.process.stop()


def refusal(url: str, capacity_bytes: int = 0, folder: Path = HERE) -> str:
    with pytest.raises(CacheError) as refused:
        open_redis_store(url, capacity_bytes, folder).close()
    assert refused.value.kind is Kind.BAD_CONFIG
    return str(refused.value)


def failure(act: Callable[[], object]) -> str:
    with pytest.raises(CacheError) as failed:
        act()
    assert failed.value.kind is Kind.STORE_FAILED
    return failed.value.message


def is_whole(store: RedisStore, *names: str) -> bool:
    return store.get(names) == [data_of(name, 100) for name in names]


def fill(store: RedisStore, *names: str) -> None:
    assert all(store.put([(name, data_of(name, 100)) for name in names], Keep.LOOSE))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1",
        "127.0.0.1:6379",
        "redis://127.0.0.1/0?socket_timeout=9",
        "redis://:pa/ss@127.0.0.1",
    ],
)
def test_what_is_no_url_of_a_redis_is_refused(url: str) -> None:
    said = refusal(url)
    assert "no URL of a Redis" in said
    assert "pa" not in said.replace("PATH", "")


def test_nobody_there_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    for url in (f"redis://127.0.0.1:{port}/0", f"unix://{tmp_path}/nothing.sock"):
        said = refusal(url)
        assert "start it, or correct the URL" in said
        assert url in said


def test_somebody_else_there_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            while True:
                try:
                    with listening.accept()[0] as line:
                        line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                except OSError:
                    return

        thread = threading.Thread(target=answer)
        thread.start()
        said = refusal(f"redis://127.0.0.1:{listening.getsockname()[1]}")
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "no Redis" in said


@pytest.mark.parametrize("user", ["", ":wrong-secret@", "nobody:wrong-secret@"])
def test_wrong_credentials_are_refused_and_not_repeated(serve: MakeServer, user: str) -> None:
    server = serve("--requirepass", "right-secret")
    said = refusal(f"unix://{user}{server.socket}")
    assert "wrong user or password" in said
    assert "secret" not in said
    open_redis_store(f"unix://:right-secret@{server.socket}", 0, HERE).close()


def test_a_user_who_may_not_write_is_refused(serve: MakeServer) -> None:
    server = serve()
    with server.client() as line:
        line.acl_setuser("reader", enabled=True, nopass=True, keys=["*"], categories=["+@read"])
    assert "allow it INFO" in refusal(f"unix://reader:any@{server.socket}")


def test_a_password_where_there_is_none_is_refused(serve: MakeServer) -> None:
    assert "wrong user or password" in refusal(f"unix://:some@{serve().socket}")


def test_a_replica_is_refused(serve: MakeServer) -> None:
    assert "name its master, 127.0.0.1:1" in refusal(serve("--replicaof", "127.0.0.1", "1").url)


def test_a_node_of_a_cluster_is_refused(serve: MakeServer) -> None:
    assert "a Redis that stands alone" in refusal(
        serve("--port", "0", "--cluster-enabled", "yes", "--cluster-port", "1").url
    )


def test_an_old_redis_is_refused() -> None:
    with pytest.raises(CacheError, match="too old") as refused:
        Place.of("redis://127.0.0.1").check({"redis_version": "6.2.14", "role": "master"})
    assert refused.value.kind is Kind.BAD_CONFIG


def test_a_database_of_somebody_else_is_refused_and_another_one_is_not(serve: MakeServer) -> None:
    server = serve()
    with server.client() as line:
        line.set("ac:{0}:gen", 7)
        assert "ac:{0}:gen" in refusal(server.url)
        assert line.keys() == [b"ac:{0}:gen"]
    with closing(open_redis_store(f"{server.url}?db=1", 0, HERE)) as store:
        fill(store, NAMES[0])
    assert "DB index is out of range" in refusal(f"{server.url}?db=99")


def test_a_database_of_another_format_is_refused(serve: MakeServer) -> None:
    server = serve()
    with server.client() as line:
        line.hset(MARKER, "format", "99")
    assert "FLUSHDB" in refusal(server.url)
    with server.client() as line:
        line.delete(MARKER)
        line.set(f"agentcache/99/{'0' * 64}/FULL", b"data")
    assert "holds what is not ours" in refusal(server.url)


def test_a_server_that_dropped_our_mark_is_still_ours(serve: MakeServer) -> None:
    server = serve()
    with closing(open_redis_store(server.url, 0, HERE)) as store:
        fill(store, NAMES[0])
    with server.client() as line:
        line.delete(MARKER)
    with closing(open_redis_store(server.url, 0, HERE)) as store:
        assert is_whole(store, NAMES[0])
        assert store.status().objects == 1


def test_two_stores_on_one_server_see_each_other(serve: MakeServer) -> None:
    server = serve("--maxmemory", str(64 * MIB), "--maxmemory-policy", "allkeys-lru")
    with (
        closing(open_redis_store(server.url, 0, HERE)) as one,
        closing(open_redis_store(server.url, 0, HERE)) as two,
    ):
        fill(one, *NAMES[:50])
        assert is_whole(two, *NAMES[:50])
        assert one.status().objects == two.status().objects == 50
        assert one.status().capacity_bytes == 64 * MIB


def test_a_full_server_that_drops_nothing_refuses_new_objects(serve: MakeServer) -> None:
    server = serve("--maxmemory", str(4 * MIB), "--maxmemory-policy", "noeviction")
    with closing(open_redis_store(server.url, 0, HERE)) as store:
        answers = store.put([(name, bytes(200_000)) for name in NAMES[:40]], Keep.LOOSE)
        assert answers[0] is True
        assert answers[-1] is False
        assert store.exists(NAMES[:40]) == answers


def test_a_server_without_a_cap_takes_objects_up_to_the_limit(
    serve: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LARGEST_BYTES", 1000)
    with closing(open_redis_store(serve().url, 0, HERE)) as store:
        assert store.put([(NAMES[0], bytes(1001)), (NAMES[1], bytes(1000))], Keep.LOOSE) == [False, True]
        assert store.status().capacity_bytes is None


def test_batches_are_bounded_and_answers_stay_in_order(
    serve: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "WRITE_BYTES", 350)
    monkeypatch.setattr(module, "READ_OBJECTS", 3)
    monkeypatch.setattr(module, "COMMANDS", 7)
    with closing(open_redis_store(serve().url, 0, HERE)) as store:
        fill(store, *NAMES[:20])
        store.remove([NAMES[7], NAMES[19]])
        assert store.exists(NAMES[:21]) == [number not in (7, 19, 20) for number in range(21)]
        assert [data is None for data in store.get(NAMES[:21])] == [
            number in (7, 19, 20) for number in range(21)
        ]
        assert is_whole(store, *NAMES[:7], *NAMES[8:19])


def test_a_late_answer_is_never_taken_for_another(serve: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 1.0)
    server = serve()
    with closing(open_redis_store(server.url, 0, HERE)) as store:
        fill(store, *NAMES[:2])
        number = server.number
        os.kill(number, signal.SIGSTOP)
        try:
            for call in (
                lambda: store.get(NAMES[:1]),
                lambda: store.exists(NAMES),
                lambda: store.remove(NAMES[5:]),
            ):
                assert server.url in failure(call)
        finally:
            os.kill(number, signal.SIGCONT)
        assert is_whole(store, NAMES[1])
        assert store.exists(NAMES[:3]) == [True, True, False]


def test_a_server_that_is_gone_fails_until_it_is_back_empty(serve: MakeServer) -> None:
    server = serve()
    with closing(open_redis_store(server.url, 0, HERE)) as store:
        fill(store, NAMES[0])
        server.process.stop()
        for call in (
            lambda: store.get(NAMES[:1]),
            lambda: store.put([(NAMES[1], b"data")], Keep.LOOSE),
            lambda: store.retain(NAMES[:1], Keep.LOOSE),
            lambda: store.retain(NAMES[:1], None),
            store.status,
        ):
            assert server.url in failure(call)
        server.start()
        assert store.exists(NAMES[:1]) == [False]
        fill(store, NAMES[0])
        assert is_whole(store, NAMES[0])


def test_a_closed_store_says_so(serve: MakeServer) -> None:
    store = open_redis_store(serve().url, 0, HERE)
    store.close()
    assert "it is closed" in failure(lambda: store.get(NAMES[:1]))


@pytest.mark.parametrize("capacity_bytes", [0, -1, 1 << 60])
def test_an_embedded_server_needs_a_size_that_this_machine_has(tmp_path: Path, capacity_bytes: int) -> None:
    assert "between 1 byte and the memory of this machine" in refusal("", capacity_bytes, tmp_path)


def test_an_embedded_server_in_a_bad_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "name a folder that you may write to" in refusal("", 4 * MIB, tmp_path / "file")


def test_a_second_store_joins_with_the_cap_of_the_first(tmp_path: Path) -> None:
    with (
        closing(open_redis_store("", 4 * MIB, tmp_path)) as one,
        closing(open_redis_store("", MIB, tmp_path)) as two,
    ):
        fill(one, *NAMES[:3])
        assert is_whole(two, *NAMES[:3])
        assert two.status().capacity_bytes == 4 * MIB
        two.close()
        assert is_whole(one, *NAMES[:3])


def test_an_embedded_server_that_died_is_started_again(tmp_path: Path) -> None:
    with closing(open_redis_store("", 4 * MIB, tmp_path)) as store:
        fill(store, NAMES[0])
        with redis.Redis(unix_socket_path=str(tmp_path / "server.sock"), protocol=2) as line:
            os.kill(line.info("server")["process_id"], signal.SIGKILL)
        assert store.get(NAMES[:1]) == [None]
        fill(store, NAMES[0])
        assert is_whole(store, NAMES[0])
        assert store.status().capacity_bytes == 4 * MIB


def test_a_refused_database_leaves_no_server_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OLDEST", (99, 0))
    assert "too old" in refusal("", 4 * MIB, tmp_path)
    with (tmp_path / "owner.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_lives_rise_by_use_and_classes_never_meet() -> None:
    clock = ManualClock(start_ns=5_000_000_000)
    lives = Lives(clock)
    first, second = lives.next_ms(Keep.LOOSE), lives.next_ms(Keep.LOOSE)
    assert DAY_MS <= first < second
    clock.advance(10_000_000)
    assert second < lives.next_ms(Keep.LOOSE) + 10
    for _ in range(AHEAD_MS):
        last = lives.next_ms(Keep.LOOSE)
    assert last == DAY_MS + AHEAD_MS
    assert lives.next_ms(Keep.REFERENCED) > last + 6 * DAY_MS


def test_what_a_server_took_late_does_not_outlive_what_is_used_after_it() -> None:
    clock = ManualClock(start_ns=5_000_000_000)
    lives = Lives(clock)
    began_ms = lives.now_ms
    late = [lives.next_ms(Keep.LOOSE) for _ in range(3)]
    clock.advance(200_000_000)  # so late does the server take them
    expiries = [lives.now_ms + life for life in late]
    lives.answered(lives.last_ms, began_ms)
    clock.advance(1_000_000)
    assert lives.now_ms + lives.next_ms(Keep.LOOSE) > max(expiries)
    began_ms, last_ms = lives.now_ms, lives.last_ms
    for _ in range(1000):  # answers that overlap add nothing up
        lives.answered(last_ms, began_ms)
    assert lives.last_ms == last_ms


def test_reading_renews_a_loose_life_and_shortens_no_referenced_one(serve: MakeServer) -> None:
    server = serve()
    with closing(open_redis_store(server.url, 0, HERE)) as store, server.client() as line:
        store.put([(NAMES[0], b"referenced")], Keep.REFERENCED)
        store.put([(NAMES[1], b"loose")], Keep.LOOSE)
        line.pexpire(NAMES[1], 60_000)
        store.get(NAMES[:2])
        assert line.pttl(NAMES[0]) > 7 * DAY_MS
        assert line.pttl(NAMES[1]) > 60_000
