"""A file store opens, or says once and clearly what to do; it deletes nothing that is not its own."""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import lmdb
import pytest

from agentcache.errors import CacheError, Kind
from agentcache.keys import FORMAT_VERSION
from agentcache.tiers.api import Keep
from agentcache.tiers.stores.file import disk_limit_bytes, open_file_store
from agentcache.tiers.stores.folder import LOCK, MARK, NEW_MARK, machine_boot_id

CAP = 1 << 20
NOBODY = 65534


def refused(folder: Path, *words: str, capacity_bytes: int = CAP, boot_id: str | None = None) -> None:
    """Opening fails with one BAD_CONFIG that has these words in it, and changes nothing."""
    before = contents(folder)
    with pytest.raises(CacheError) as caught:
        open_file_store(folder, capacity_bytes, boot_id=boot_id)
    assert caught.value.kind is Kind.BAD_CONFIG
    for word in words:
        assert word in str(caught.value)
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    if not os.path.isdir(folder):
        return {}
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name not in (LOCK, "lock.mdb")}


def written(folder: Path, *, boot_id: str | None = None) -> None:
    """A store with one object, closed."""
    with closing(open_file_store(folder, CAP, boot_id=boot_id)) as store:
        assert store.put([("object", b"data")], Keep.LOOSE) == [True]


def found(folder: Path, *, capacity_bytes: int = CAP, boot_id: str | None = None) -> bytes | None:
    with closing(open_file_store(folder, capacity_bytes, boot_id=boot_id)) as store:
        return store.get(["object"])[0]


@contextmanager
def unprivileged() -> Iterator[None]:
    """As a user who may not write everywhere, for tests that run as root."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(mine)


def test_open_makes_the_folder_for_its_user_only(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "store"
    written(folder)
    assert folder.stat().st_mode & 0o077 == 0
    assert found(folder) == b"data"


def test_open_takes_an_empty_folder_and_one_whose_first_start_was_cut_short(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    (tmp_path / NEW_MARK).write_text("{")
    written(tmp_path)
    assert found(tmp_path) == b"data"


def test_open_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not delete")
    refused(tmp_path, "not agentcache's", "empty folder", str(tmp_path))


def test_open_another_programs_lmdb_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path)) as other, other.begin(write=True) as writing:
        writing.put(b"do not", b"delete")
    refused(tmp_path, "not agentcache's", "empty folder")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "new"}', "\0"])
def test_open_a_mark_that_is_not_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / LOCK).touch()
    (tmp_path / MARK).write_text(text)
    refused(tmp_path, MARK, "not agentcache's")


@pytest.mark.parametrize("version", [FORMAT_VERSION - 1, FORMAT_VERSION + 1])
def test_open_another_format_is_refused_with_the_command(tmp_path: Path, version: int) -> None:
    written(tmp_path)
    mark = json.loads((tmp_path / MARK).read_text())
    (tmp_path / MARK).write_text(json.dumps(mark | {"format": version}))
    refused(tmp_path, f"format {version}", f"format {FORMAT_VERSION}", f"rm -r '{tmp_path}'")


def test_open_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("do not delete")
    refused(tmp_path / "file", "this is a file", "name another")
    refused(tmp_path / "file" / "store", "this is a file", "name another")
    assert (tmp_path / "file").read_text() == "do not delete"


def test_open_without_permission_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o555)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        if parent.stat().st_uid == os.geteuid():
            parent.chmod(0o755)
    with unprivileged():
        refused(folder, "no permission", "writable")
        refused(folder / "store", "no permission", "writable")


def test_open_a_name_that_the_system_refuses_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / ("x" * 300), "File name too long", "name another folder")


@pytest.mark.parametrize("capacity_bytes", [-1, 0, 1, 4096])
def test_open_without_room_for_objects_is_refused(tmp_path: Path, capacity_bytes: int) -> None:
    refused(tmp_path / "store", "at least 8 objects", capacity_bytes=capacity_bytes)
    assert not (tmp_path / "store").exists()


def test_open_under_eight_of_the_largest_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="at least 8 objects: give it 8425472 bytes or more") as caught:
        open_file_store(tmp_path, CAP, largest_bytes=1 << 20)
    assert caught.value.kind is Kind.BAD_CONFIG
    with closing(open_file_store(tmp_path, 8425472, largest_bytes=1 << 20)) as store:
        for number in range(60):
            assert store.put([(str(number), bytes(1 << 20))], Keep.LOOSE) == [True]
        assert store.exists([str(number) for number in range(52, 60)]) == [True] * 8


def test_open_beyond_the_disk_is_refused(tmp_path: Path) -> None:
    refused(tmp_path / "store", "too little room", "smaller one", capacity_bytes=1 << 55)
    written(tmp_path / "store")


def test_open_twice_in_one_process_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    with closing(open_file_store(tmp_path, CAP)) as store:
        refused(tmp_path, "open in this process already", "another folder")
        refused(tmp_path / ".." / tmp_path.name, "open in this process already")
        assert store.put([("object", b"data")], Keep.LOOSE) == [True]
    assert found(tmp_path) == b"data"


def test_open_with_another_capacity_while_in_use_is_refused(tmp_path: Path) -> None:
    with closing(open_file_store(tmp_path, CAP)):
        refused(tmp_path, "another capacity", f"in_use_with_bytes={CAP}", capacity_bytes=2 * CAP)


def test_open_in_use_by_another_machine_is_refused(tmp_path: Path) -> None:
    with closing(open_file_store(tmp_path, CAP, boot_id="here")):
        refused(tmp_path, "another machine", "own disk", boot_id="there")


def test_open_after_a_close_keeps_everything_whatever_the_boot(tmp_path: Path) -> None:
    written(tmp_path, boot_id="first")
    assert found(tmp_path, boot_id="second") == b"data"


def test_open_after_an_end_without_close_depends_on_the_boot(tmp_path: Path) -> None:
    written(tmp_path, boot_id="first")
    in_use = (tmp_path / MARK).read_text().replace('"boot": ""', '"boot": "first"')
    (tmp_path / MARK).write_text(in_use)
    assert found(tmp_path, boot_id="first") == b"data"  # only the process ended
    (tmp_path / MARK).write_text(in_use)
    (tmp_path / "notes.txt").write_text("do not delete")
    assert found(tmp_path, boot_id="second") is None  # the machine did
    assert (tmp_path / "notes.txt").exists()
    written(tmp_path)
    assert found(tmp_path) == b"data"


def test_open_with_more_room_keeps_what_is_there(tmp_path: Path) -> None:
    written(tmp_path)
    assert found(tmp_path, capacity_bytes=4 * CAP) == b"data"


def test_open_with_less_room_holds_to_it(tmp_path: Path) -> None:
    objects = [(f"object {number}", bytes(500_000)) for number in range(40)]
    with closing(open_file_store(tmp_path, 24 * CAP)) as store:
        store.put(objects, Keep.LOOSE)
    with closing(open_file_store(tmp_path, 10 * CAP)) as store:  # the file may stay as large as it is
        status = store.status()
        assert status.used_bytes is not None
        assert 8 * CAP < status.used_bytes <= 10 * CAP
        assert store.exists([objects[-1][0]]) == [True]
    with closing(open_file_store(tmp_path, 5 * CAP)) as store:  # it may not
        assert store.status().objects == 0
        store.put(objects, Keep.LOOSE)
    assert (tmp_path / "data.mdb").stat().st_size <= disk_limit_bytes(5 * CAP)


def test_open_damaged_store_starts_empty(tmp_path: Path) -> None:
    written(tmp_path)
    data = tmp_path / "data.mdb"
    data.write_bytes(b"noise" * 10_000)
    assert found(tmp_path) is None
    written(tmp_path)
    data.write_bytes(
        data.read_bytes()[: data.stat().st_size // 2]
    )  # reading beyond its end would end the process
    assert found(tmp_path) is None


def test_machine_boot_id_holds_while_the_machine_runs() -> None:
    assert machine_boot_id()
    assert machine_boot_id() == machine_boot_id()
