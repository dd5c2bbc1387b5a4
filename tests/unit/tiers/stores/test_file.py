"""A file store under its cap, over restarts, and when the disk fails."""

import random
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import Keep
from agentcache.tiers.stores import file
from agentcache.tiers.stores.catalogue import Catalogue
from agentcache.tiers.stores.file import FileStore, disk_limit_bytes, open_file_store
from agentcache.tiers.stores.folder import MARK, StoreFolder
from tests.stores import data_of, name_of

CAP = 2 << 20
SIZE = 40_000
NAMES = [name_of(number) for number in range(400)]


def fill(store: FileStore, *names: str, keep: Keep = Keep.LOOSE) -> None:
    assert all(store.put([(name, data_of(name, SIZE)) for name in names], keep))


@pytest.mark.parametrize("sizes", [(3, 300), (1000, 5000), (3000, 200_000), (1, 250_000)])
def test_file_churn_of_all_sizes_stays_under_the_cap_on_disk(tmp_path: Path, sizes: tuple[int, int]) -> None:
    chance = random.Random(5)
    written_bytes, number = 0, 0
    with closing(open_file_store(tmp_path, CAP)) as store:
        while written_bytes < 5 * CAP and number < 6000:
            batch = [(f"{number} {i}", bytes(chance.randint(*sizes))) for i in range(chance.randint(1, 8))]
            assert all(store.put(batch, chance.choice(list(Keep))))
            assert store.get([batch[-1][0]]) == [batch[-1][1]]
            written_bytes += sum(len(data) for _, data in batch)
            number += 1
        used_bytes = store.status().used_bytes
    assert used_bytes is not None
    assert used_bytes <= CAP
    assert (tmp_path / "data.mdb").stat().st_size <= disk_limit_bytes(CAP)


def test_file_restart_keeps_objects_and_their_order(tmp_path: Path) -> None:
    with closing(open_file_store(tmp_path, CAP)) as store:
        fill(store, *NAMES[:40])
        store.get(NAMES[:5])
        fill(store, NAMES[40])
    with closing(open_file_store(tmp_path, CAP)) as store:
        assert store.get(NAMES[:41]) == [data_of(name, SIZE) for name in NAMES[:41]]
    with closing(open_file_store(tmp_path, CAP)) as store:  # reads after the last write are forgotten
        fill(store, *NAMES[100:120])
        assert store.exists(NAMES[:5]) == [True] * 5
        assert store.exists(NAMES[5:10]) == [False] * 5


def test_file_restart_forgets_references(tmp_path: Path) -> None:
    with closing(open_file_store(tmp_path, CAP)) as store:
        fill(store, *NAMES[:10], keep=Keep.REFERENCED)
        fill(store, *NAMES[10:20])
    with closing(open_file_store(tmp_path, CAP)) as store:
        fill(store, *NAMES[100:200])
        assert not any(store.exists(NAMES[:20]))


def test_file_reads_count_as_use_even_when_there_are_very_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "MAX_TOUCHED", 3)
    with closing(open_file_store(tmp_path, CAP)) as store:
        fill(store, *NAMES[:40])
        store.get(NAMES[:10])
        fill(store, *NAMES[100:120])
        assert store.exists(NAMES[:10]) == [False] * 7 + [True] * 3


def test_file_a_second_put_is_a_use(tmp_path: Path) -> None:
    with closing(open_file_store(tmp_path, CAP)) as store:
        fill(store, *NAMES[:40])
        fill(store, *NAMES[:5])
        fill(store, *NAMES[100:120])
        assert store.exists(NAMES[:10]) == [True] * 5 + [False] * 5


def test_file_objects_lie_in_the_folder_for_its_user_only(tmp_path: Path) -> None:
    with closing(open_file_store(tmp_path / "store", CAP)) as store:
        fill(store, NAMES[0])
        assert store.status().address == str(tmp_path / "store")
        for written in (tmp_path / "store").glob("*.mdb"):
            assert written.stat().st_mode & 0o077 == 0


def test_file_names_of_any_kind(tmp_path: Path) -> None:
    names = ["", "x" * 5000, "a/b", "\0", "é", "totals", "objects"]
    with closing(open_file_store(tmp_path, CAP)) as store:
        assert all(store.put([(name, name.encode()) for name in names], Keep.LOOSE))
        assert store.get(names) == [name.encode() for name in names]


AFTER_CLOSE: list[Callable[[FileStore], object]] = [
    lambda store: store.exists(["a"]),
    lambda store: store.get(["a"]),
    lambda store: store.put([("a", b"a")], Keep.LOOSE),
    lambda store: store.retain(["a"], Keep.LOOSE),
    lambda store: store.retain(["a"], None),
    lambda store: store.remove(["a"]),
    lambda store: store.status(),
]


@pytest.mark.parametrize("call", AFTER_CLOSE)
def test_file_closed_store_fails(tmp_path: Path, call: Callable[[FileStore], object]) -> None:
    store = open_file_store(tmp_path, CAP)
    store.close()
    store.close()
    with pytest.raises(CacheError, match="closed") as caught:
        call(store)
    assert caught.value.kind is Kind.STORE_FAILED


def test_file_full_disk_finds_no_room_and_recovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(open_file_store(tmp_path, CAP)) as store:
        fill(store, NAMES[0])
        with monkeypatch.context() as patch:
            patch.setattr(Catalogue, "change", failing(lmdb.Error("input/output error")))
            patch.setattr(StoreFolder, "lacks", lambda _, want_bytes: want_bytes > 0)
            assert store.put([(NAMES[1], b"a"), (NAMES[2], b"b")], Keep.LOOSE) == [False, False]
        assert store.exists(NAMES[:3]) == [True, False, False]
        fill(store, NAMES[1])


def test_file_failing_disk_is_a_failed_store_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_file_store(tmp_path, CAP)) as store:
        with monkeypatch.context() as patch:
            patch.setattr(Catalogue, "change", failing(lmdb.Error("input/output error")))
            with pytest.raises(CacheError, match="input/output error") as caught:
                store.put([(NAMES[1], b"a")], Keep.LOOSE)
        assert caught.value.kind is Kind.STORE_FAILED
        fill(store, NAMES[1])


@pytest.mark.parametrize("times", [3, 100])
def test_file_small_writes_into_a_full_map_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    with closing(open_file_store(tmp_path, CAP)) as store:
        fill(store, *NAMES[:2])
        full = iter(range(times))
        change = Catalogue.change

        def sometimes(tables: Catalogue) -> object:
            for _ in full:
                raise lmdb.MapFullError("full")
            return change(tables)

        monkeypatch.setattr(Catalogue, "change", sometimes)
        if times > file.TRIES:
            with pytest.raises(CacheError) as caught:
                store.remove(NAMES[:1])
            assert caught.value.kind is Kind.STORE_FAILED
        else:
            store.remove(NAMES[:1])
        assert store.exists(NAMES[:2]) == [times > file.TRIES, True]


def failing(error: lmdb.Error) -> Callable[[Catalogue], object]:
    def change(_: Catalogue) -> object:
        raise error

    return change


def test_file_gaps_that_leave_no_room_are_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small objects between large ones: no run of free pages is long enough, though there is room."""
    cap = 16 << 20
    monkeypatch.setattr(file, "SLACK_BYTES", 1 << 20)
    cleared: list[int] = []
    with closing(open_file_store(tmp_path, cap, largest_bytes=cap // 9)) as store:
        clear = store._clear

        def counting(room_bytes: int) -> None:
            cleared.append(room_bytes)
            clear(room_bytes)

        monkeypatch.setattr(store, "_clear", counting)
        chance = random.Random(1)
        for number in range(300):
            size = chance.choice((5_000, cap // 27, cap // 9))
            assert store.put([(f"{number}", bytes(size))], Keep.LOOSE) == [True]
    assert any(cleared)


def test_file_an_object_beyond_the_slack_uses_what_it_has_just_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "SLACK_BYTES", 0)
    with closing(open_file_store(tmp_path, CAP)) as store:
        for number in range(20):
            assert store.put([(f"{number}", bytes(CAP * 2 // 5))], Keep.LOOSE) == [True]


def test_file_close_leaves_calls_behind_that_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "CLOSE_WAIT_S", 0.05)
    store = open_file_store(tmp_path, CAP)
    answers: list[bool] = []
    with store._turn:  # a write that hangs in the disk
        thread = threading.Thread(target=lambda: answers.extend(store.put([("a", b"a")], Keep.LOOSE)))
        thread.start()
        with store._quiet:
            store._quiet.wait_for(lambda: store._calls == 1, 60)
        store.close()
        assert '"boot": ""' not in (tmp_path / MARK).read_text()
    thread.join()
    assert answers == [True]
    store.close()
