"""A store on this machine's disk: lmdb in a folder, under a cap.

Safe against the death of any process that uses it, at any moment: what was answered is there when it is opened again.
It is not written through to the disk, so after an unclean end of the machine it starts empty. Workers of one machine
may share a folder. Not for network file systems; not for use across a fork.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import lmdb

from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import Keep
from agentcache.tiers.stores.api import StoreStatus
from agentcache.tiers.stores.catalogue import TABLES, Catalogue, Change, footprint_bytes, key_of
from agentcache.tiers.stores.folder import DATA, StoreFolder, machine_boot_id

LEAST_OBJECTS = 8
BATCH_BYTES = 8 << 20
MAX_READERS = 512  # reads at one time, of all processes
MAX_TOUCHED = 1 << 16
CLOSE_WAIT_S = 5.0
SLACK_BYTES = 8 << 20
TRIES = 20
READERS_WAIT_S = 0.05
PAGE_BYTES = 4096


def disk_limit_bytes(capacity_bytes: int) -> int:
    """What a store of this capacity takes up on the disk at most: a quarter and 8 MiB more.

    lmdb leaves gaps, and does not use again at once what it frees. What was taken is not given back, but used again.
    """
    return (capacity_bytes + capacity_bytes // 4 + SLACK_BYTES) // PAGE_BYTES * PAGE_BYTES


def open_file_store(
    folder: Path, capacity_bytes: int, *, largest_bytes: int = 1, boot_id: str | None = None
) -> "FileStore":
    """A store in `folder`, which is made if need be. `largest_bytes` is the largest object that it is for.

    It holds at least LEAST_OBJECTS of those: then each finds room, whatever gaps the others left. A larger one may not.

    What another boot of the machine left without closing is dropped, and so is what takes more than the cap allows.
    With no other process in it, all objects start as LOOSE: whoever referenced them has gone.

    Errors  CacheError(BAD_CONFIG): too little room for objects; a file; a folder that is not ours, another format's,
            open in this process, in use with another cap, out of reach, or on a disk that is too small
    """
    want_bytes = LEAST_OBJECTS * footprint_bytes(largest_bytes, PAGE_BYTES)
    if capacity_bytes < want_bytes:
        raise CacheError(
            Kind.BAD_CONFIG,
            f"an external store has to hold at least {LEAST_OBJECTS} objects: give it {want_bytes} bytes or more",
            capacity_bytes=capacity_bytes,
        )
    home = StoreFolder(folder.absolute(), machine_boot_id() if boot_id is None else boot_id)
    limit_bytes = disk_limit_bytes(capacity_bytes)
    with home.enter(capacity_bytes, limit_bytes):
        environment = _open(home, limit_bytes)
        try:
            return FileStore(home, environment, capacity_bytes)
        except lmdb.Error as bad:
            environment.close()
            raise home.unreadable(bad) from bad


def _open(home: StoreFolder, limit_bytes: int) -> lmdb.Environment:
    """The environment; one that is damaged starts empty."""
    try:
        environment = _environment(home, limit_bytes)
        if _is_whole(home, environment):
            return environment
        environment.close()
    except lmdb.InvalidError:
        pass
    if not home.alone:
        raise home.refusal(
            "this external store is damaged and in use: stop the workers that use it, then start again"
        )
    home.empty()
    return _environment(home, limit_bytes)


def _environment(home: StoreFolder, limit_bytes: int) -> lmdb.Environment:
    try:
        return lmdb.open(
            str(home.path),
            map_size=limit_bytes,
            max_dbs=len(TABLES),
            max_readers=MAX_READERS,
            mode=0o600,
            sync=False,
            metasync=False,
        )
    except lmdb.InvalidError:
        raise
    except lmdb.Error as bad:
        if "already open" in str(bad):
            raise home.refusal(
                "this external store is open in this process already: share that one, or name another folder"
            ) from bad
        raise home.unreadable(bad) from bad


def _is_whole(home: StoreFolder, environment: lmdb.Environment) -> bool:
    """Whether the file reaches as far as its pages do; beyond its end a read would end the process."""
    pages = environment.info()["last_pgno"] + 1
    return (home.path / DATA).stat().st_size >= pages * environment.stat()["psize"]


class FileStore:
    """Objects in lmdb, under a cap that counts what they take up on the disk. Made by `open_file_store`.

    Reads and writes come from several threads; writes take turns. A read takes its place in the order of use with the
    next write of this process; reads after the last write are forgotten at its end.
    """

    name = "file"

    def __init__(self, home: StoreFolder, environment: lmdb.Environment, capacity_bytes: int) -> None:
        self._home = home
        self._environment = environment
        self._capacity_bytes = capacity_bytes
        self._tables = Catalogue(environment)
        self._turn = threading.Lock()  # one write at a time
        self._quiet = threading.Condition()  # guards the three below
        self._calls = 0
        self._closed = False
        self._touched: dict[bytes, None] = {}
        environment.reader_check()  # those of processes that died
        if home.alone:
            self._start_over()

    def exists(self, names: Sequence[str]) -> list[bool]:
        with self._call(), self._environment.begin() as reading:
            return [self._tables.has(reading, key_of(name)) for name in names]

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        """Errors  CacheError(STORE_FAILED). Cost: one copy an object; a cold page is read without the GIL."""
        keys = [key_of(name) for name in names]
        with self._call(), self._environment.begin() as reading:
            found = [reading.get(key, db=self._tables.objects) for key in keys]
        self._touch([key for key, data in zip(keys, found, strict=True) if data is not None])
        return found

    def put(self, objects: Sequence[tuple[str, bytes]], keep: Keep) -> list[bool]:
        """Write in batches, each whole or not at all, letting older objects go first.

        Cost  one write of lmdb a batch of 8 MiB (less under a small cap); a full disk costs a False
        """
        answers: list[bool] = []
        with self._call(), self._turn:
            for batch in self._batches(objects):
                answers += self._put(batch, keep)
        return answers

    def retain(self, names: Sequence[str], keep: Keep | None) -> None:
        keys = [key_of(name) for name in names]
        self._write(lambda change: change.retain(keys, keep) if keep else change.touch(keys))

    def remove(self, names: Sequence[str]) -> None:
        keys = [key_of(name) for name in names]
        self._write(lambda change: change.remove(keys))

    def status(self) -> StoreStatus:
        with self._call(), self._environment.begin() as reading:
            objects, used_bytes = self._tables.figures(reading)
        return StoreStatus(str(self._home.path), objects, used_bytes, self._capacity_bytes)

    def close(self) -> None:
        """Write everything to the disk, so that it is there after the machine's end, too.

        Calls that hang in the disk are left behind after 5 s; the store then counts as not closed.
        """
        with self._quiet:
            first, self._closed = not self._closed, True
            ended = self._quiet.wait_for(lambda: not self._calls, CLOSE_WAIT_S)
        if first and ended:
            synced = self._sync()
            self._environment.close()
            self._home.leave(synced)

    def _sync(self) -> bool:
        try:
            self._environment.sync(True)
        except lmdb.Error:
            return False
        return True

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self._quiet:
            if self._closed:
                raise CacheError(Kind.STORE_FAILED, "this external store is closed")
            self._calls += 1
        try:
            yield
        except lmdb.Error as bad:
            raise CacheError(Kind.STORE_FAILED, f"the external store failed: {bad}") from bad
        finally:
            with self._quiet:
                self._calls -= 1
                self._quiet.notify_all()

    @contextmanager
    def _change(self) -> Iterator[Change]:
        """A write that first catches up with the reads before it."""
        with self._quiet:
            touched, self._touched = self._touched, {}
        with self._tables.change() as change:
            change.touch(touched)
            yield change

    def _write(self, work: Callable[[Change], None]) -> None:
        """A write that needs next to no room, but some."""
        with self._call(), self._turn:
            for tries_left in reversed(range(TRIES)):
                try:
                    with self._change() as change:
                        work(change)
                    return
                except lmdb.MapFullError:
                    if not tries_left:
                        raise
                    self._await_readers()

    def _await_readers(self) -> None:
        """Reads keep what was freed since they began: forget those of dead processes, and let ours end."""
        self._environment.reader_check()
        with self._quiet:
            self._quiet.wait_for(lambda: self._calls <= 1, READERS_WAIT_S)

    def _touch(self, keys: Sequence[bytes]) -> None:
        with self._quiet:
            for key in keys:
                self._touched.pop(key, None)
                self._touched[key] = None
            while len(self._touched) > MAX_TOUCHED:
                del self._touched[next(iter(self._touched))]

    def _batches(self, objects: Sequence[tuple[str, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
        """What is freed by one write is free only two writes later, so a write is small beside the slack."""
        limit_bytes = min(BATCH_BYTES, self._capacity_bytes // 16)
        batch: list[tuple[bytes, bytes]] = []
        size_bytes = 0
        for name, data in objects:
            if batch and size_bytes + len(data) > limit_bytes:
                yield batch
                batch, size_bytes = [], 0
            batch.append((key_of(name), data))
            size_bytes += len(data)
        if batch:
            yield batch

    def _put(self, batch: Sequence[tuple[bytes, bytes]], keep: Keep) -> list[bool]:
        """Try twice: gaps may leave no room for an object in a map that is not full; fewer objects have fewer gaps."""
        wanted_bytes = sum(self._footprint(data) for _, data in batch)
        for room_bytes in (0, max(self._capacity_bytes // 4, wanted_bytes)):
            try:
                self._clear(room_bytes)
                with self._change() as change:
                    return [self._add(change, key, data, keep) for key, data in batch]
            except lmdb.MapFullError:
                self._await_readers()
            except lmdb.Error:
                if not self._home.lacks(wanted_bytes):
                    raise
                break  # lmdb calls a full disk an input/output error if a part was written
        return [False] * len(batch)

    def _clear(self, room_bytes: int) -> None:
        """Free so much, usably: with one more write between, the next can use it."""
        if room_bytes:
            with self._change() as change:
                change.evict_to(max(0, self._capacity_bytes - room_bytes))
            with self._change():
                pass

    def _add(self, change: Change, key: bytes, data: bytes, keep: Keep) -> bool:
        footprint = self._footprint(data)
        if change.has(key):
            change.touch([key])
            return True
        if footprint > self._capacity_bytes:
            return False
        change.evict_to(self._capacity_bytes - footprint)
        change.add(key, data, keep)
        return True

    def _footprint(self, data: bytes) -> int:
        return footprint_bytes(len(data), self._tables.page_bytes)

    def _start_over(self) -> None:
        """Nobody references anything any more, and a smaller cap than before holds from now on."""
        left = True
        while left:
            with self._change() as change:
                left = change.forget_references(10_000)
        with self._change() as change:
            change.evict_to(self._capacity_bytes)
