"""What stands in the way of a Mooncake, and what becomes of one that dies: on real processes."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentcache.clock import SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import Keep
from agentcache.tiers.stores import mooncake_servers as module
from agentcache.tiers.stores.mooncake import MooncakeStore, open_mooncake_store
from agentcache.tiers.stores.mooncake_servers import SMALLEST_BYTES
from tests.stores import data_of, name_of

NAMES = [name_of(number) for number in range(50)]
CLOCK = SystemClock()
PATIENCE_NS = 60_000_000_000

on_mooncake = pytest.mark.system


def until(happened: Callable[[], bool]) -> None:
    deadline = CLOCK.now_ns() + PATIENCE_NS
    while not happened():
        assert CLOCK.now_ns() < deadline, "it did not happen in time"


def refusal(address: str, capacity_bytes: int, folder: Path) -> str:
    with pytest.raises(CacheError) as refused:
        open_mooncake_store(address, capacity_bytes, folder).close()
    assert refused.value.kind is Kind.BAD_CONFIG
    return refused.value.message


def failure(act: Callable[[], object]) -> str:
    with pytest.raises(CacheError) as failed:
        act()
    assert failed.value.kind is Kind.STORE_FAILED
    return failed.value.message


def processes(word: str) -> list[int]:
    """Numbers of the processes with this word in their command line, other than shells."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in b" ".join(words) and b"sh" not in words[0].rpartition(b"/")[2]:
            found.append(int(entry.parent.name))
    return found


def is_whole(store: MooncakeStore, *names: str, size: int = 1000) -> bool:
    return store.get(names) == [data_of(name, size) for name in names]


def is_empty(store: MooncakeStore) -> bool:
    """Not before somebody has noticed that a process is gone."""
    try:
        return store.get(NAMES[:1]) == [None]
    except CacheError:
        return False


def fill(store: MooncakeStore, *names: str, size: int = 1000) -> None:
    assert all(store.put([(name, data_of(name, size)) for name in names], Keep.LOOSE))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MooncakeStore]:
    with closing(open_mooncake_store("", SMALLEST_BYTES, tmp_path)) as made:
        yield made


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    assert "make mooncake" in refusal("", SMALLEST_BYTES, tmp_path)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package whose master says what it says without the system library."""
    package = tmp_path / "mooncake"
    package.mkdir()
    (package / "__init__.py").touch()
    master = package / "mooncake_master"
    master.write_text(
        "#!/bin/sh\necho 'mooncake_master: error while loading shared libraries: libibverbs.so.1: cannot'\n"
    )
    master.chmod(0o700)
    monkeypatch.setattr(module, "master_binary", lambda: master)
    monkeypatch.setattr(module, "find_spec", lambda _: object())
    return master


@pytest.mark.usefixtures("installed")
def test_without_the_system_library_it_says_how_to_install_it(tmp_path: Path) -> None:
    assert "apt-get install libibverbs1" in refusal("", SMALLEST_BYTES, tmp_path)


def test_a_master_that_dies_is_reported_with_its_last_words(tmp_path: Path, installed: Path) -> None:
    installed.write_text("#!/bin/sh\necho 'F no such port'\n")
    assert "F no such port" in refusal("", SMALLEST_BYTES, tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_size_it_does_not_take_is_refused(tmp_path: Path) -> None:
    assert "memory of this machine" in refusal("", 0, tmp_path)
    assert "memory of this machine" in refusal("", 1 << 60, tmp_path)
    assert "no less than 16777216" in refusal("", 1 << 20, tmp_path)
    assert "no less than 16777216" in refusal("127.0.0.1:1", 1 << 20, tmp_path)


@pytest.mark.usefixtures("installed")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "name a folder" in refusal("", SMALLEST_BYTES, tmp_path / "file")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("address", ["here", ":50051", "127.0.0.1:", "127.0.0.1:port"])
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    assert "it is HOST:PORT" in refusal(address, 0, tmp_path)


@pytest.mark.usefixtures("installed")
def test_nobody_there_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    for nobody in (address, "127.0.0.1:99999"):
        assert f"no Mooncake master answers at {nobody}" in refusal(nobody, 0, tmp_path)


@on_mooncake
def test_somebody_else_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert "does not answer as a Mooncake master does" in refusal(address, 0, tmp_path)
    assert processes(address) == []


@on_mooncake
def test_everything_is_gone_after_close(tmp_path: Path) -> None:
    store = open_mooncake_store("", SMALLEST_BYTES, tmp_path)
    address = store.status().address
    port = address.rpartition(":")[2]
    assert len(processes(port)) == 2
    fill(store, NAMES[0])
    store.close()
    store.close()
    assert processes(port) == []
    assert "it is closed" in failure(lambda: store.get(NAMES[:1]))


@on_mooncake
def test_two_stores_with_one_master_see_each_other(store: MooncakeStore, tmp_path: Path) -> None:
    with closing(open_mooncake_store(store.status().address, 0, tmp_path / "other")) as other:
        fill(other, *NAMES[:20])
        assert is_whole(store, *NAMES[:20])
        assert other.exists(NAMES[:21]) == [True] * 20 + [False]
        assert other.status().capacity_bytes is None


@on_mooncake
def test_objects_of_any_size_come_back_whole_in_any_order(store: MooncakeStore) -> None:
    sizes = [1, 70_000, 3, 1_000_000, 65_536, 65_537, 300_000]
    objects = [(name, data_of(name, size)) for name, size in zip(NAMES, sizes, strict=False)]
    assert all(store.put(objects, Keep.REFERENCED))
    for order in (objects, objects[::-1]):
        names = [name for name, _ in order]
        assert store.get([NAMES[40], *names, NAMES[41]]) == [None, *(data for _, data in order), None]


@on_mooncake
@pytest.mark.parametrize("word", ["mooncake_master", "mooncake_process"])
def test_a_process_that_died_is_started_again_with_an_empty_store(store: MooncakeStore, word: str) -> None:
    fill(store, NAMES[0])
    port = store.status().address.rpartition(":")[2]
    (victim,) = set(processes(port)) & set(processes(word))
    os.kill(victim, signal.SIGKILL)
    until(lambda: victim not in processes(port))
    until(lambda: is_empty(store))
    fill(store, NAMES[1])
    assert is_whole(store, NAMES[1])


@on_mooncake
def test_a_process_that_hangs_fails_in_time_and_mixes_up_no_answers(
    store: MooncakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 3.0)
    fill(store, *NAMES[:2])
    port = store.status().address.rpartition(":")[2]
    (victim,) = set(processes(port)) & set(processes("mooncake_process"))
    os.kill(victim, signal.SIGSTOP)
    try:
        assert "timed out" in failure(lambda: store.get(NAMES[:1]))
    finally:
        os.kill(victim, signal.SIGCONT)
    monkeypatch.setattr(module, "ANSWER_S", 60.0)
    assert is_whole(store, NAMES[1])
    assert store.exists(NAMES[:3]) == [True, True, False]


@on_mooncake
def test_a_full_store_makes_room_and_removes_what_was_just_read(store: MooncakeStore) -> None:
    fill(store, *NAMES[:30], size=500_000)
    there = [name for name, found in zip(NAMES, store.exists(NAMES[:30]), strict=False) if found]
    assert 20 < len(there) <= 30
    store.remove(there)
    assert not any(store.exists(there))


@on_mooncake
def test_lent_memory_is_taken_back_at_close(store: MooncakeStore, tmp_path: Path) -> None:
    other = open_mooncake_store(store.status().address, SMALLEST_BYTES, tmp_path / "other")
    fill(store, *NAMES, size=100_000)
    assert all(store.exists(NAMES))
    other.close()
    left = store.exists(NAMES)
    assert 0 < sum(left) < len(NAMES)
    assert [data is not None for data in store.get(NAMES)] == left
