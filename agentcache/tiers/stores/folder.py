"""The folder of a file store: whether it is ours, who uses it, and whether what lies in it can be trusted.

    agentcache-store.json   the mark: {"agentcache": "store", "format", "capacity_bytes", "boot"}
    agentcache.lock         locked (shared) by every process that uses the store
    data.mdb, lock.mdb      lmdb's own

Objects are forced to the disk only by a close, so they survive the end of a process but not that of the machine.
`boot` is the machine's boot in which the store is used, empty when its last user closed it. Another boot's store was
not closed in time and is emptied: it is a cache. Nothing but the two files of lmdb is ever deleted.
"""

import fcntl
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from agentcache.errors import CacheError, Kind
from agentcache.keys import FORMAT_VERSION

MARK = "agentcache-store.json"
NEW_MARK = f"{MARK}.new"
LOCK = "agentcache.lock"
DATA = "data.mdb"
DATA_FILES = (DATA, "lock.mdb")
LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
CLOSED = ""


def machine_boot_id() -> str:
    """A name for the time since this machine started; a new one each time where the system does not tell."""
    with suppress(OSError):
        return LINUX_BOOT_ID.read_text().strip()
    with suppress(OSError, subprocess.SubprocessError):
        command = ("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")  # macOS
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=5).stdout.strip()
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class Mark:
    """What the mark says."""

    format: int
    capacity_bytes: int
    boot: str


class StoreFolder:
    """One process's use of a store's folder, from `enter` to `leave`.

    `alone` says that no other process used it on entering; only then may its contents be judged and emptied.
    """

    def __init__(self, path: Path, boot: str) -> None:
        self.path = path
        self.alone = False
        self._boot = boot
        self._users = -1

    @contextmanager
    def enter(self, capacity_bytes: int, limit_bytes: int) -> Iterator[None]:
        """Become a user; nobody else enters or leaves during the block. An exception in it undoes the entry.

        Errors  CacheError(BAD_CONFIG) for a folder that is not a store, another format's, in use with another cap or
                by another machine, out of reach, or on a disk that is too small
        """
        with self._reachable():
            self._require_ours()
            with self._gate():
                try:
                    self._join(capacity_bytes, limit_bytes)
                    yield
                except BaseException:
                    self._part()
                    raise

    def leave(self, synced: bool) -> None:
        """End the use. The last user marks the store as closed if everything is on the disk."""
        # A mark that cannot be written stays at "in use", which is the safe side.
        with suppress(OSError, CacheError), self._gate():
            if synced and _locked(self._users, fcntl.LOCK_EX):
                self._write(replace(self._read(), boot=CLOSED))
        self._part()

    def empty(self) -> None:
        """Delete what lmdb keeps. Caller: is alone, and has closed it."""
        for name in DATA_FILES:
            (self.path / name).unlink(missing_ok=True)

    @property
    def held_bytes(self) -> int:
        """What the objects take up on the disk."""
        with suppress(FileNotFoundError):
            return (self.path / DATA).stat().st_blocks * 512
        return 0

    def lacks(self, want_bytes: int) -> bool:
        """Whether the disk has not got so much room left."""
        return shutil.disk_usage(self.path).free < want_bytes

    def refusal(self, message: str, **facts: object) -> CacheError:
        """The error that says what to do about this folder."""
        return CacheError(Kind.BAD_CONFIG, message, folder=str(self.path), **facts)

    def unreadable(self, bad: Exception) -> CacheError:
        """The error for what lmdb cannot open."""
        return self.refusal(
            f"cannot open this external store ({bad}): name another folder, or delete this one (it is only a cache) "
            f"with: rm -r '{self.path}'"
        )

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield
        except (FileExistsError, NotADirectoryError) as bad:
            raise self.refusal("an external store needs a folder, and this is a file: name another") from bad
        except PermissionError as bad:
            raise self.refusal(
                "no permission to keep an external store here: make the folder writable for this user, or name another"
            ) from bad
        except OSError as bad:
            raise self.refusal(
                f"cannot keep an external store here ({bad.strerror}): name another folder"
            ) from bad

    def _require_ours(self) -> None:
        """An empty folder is ours too, and one in which an earlier start stopped before its mark was written."""
        entries = {entry.name for entry in self.path.iterdir()}
        if MARK not in entries and entries - {LOCK, NEW_MARK}:
            raise self.refusal(
                "this folder holds files that are not agentcache's: name an empty folder or a new one"
            )

    @contextmanager
    def _gate(self) -> Iterator[None]:
        """One process at a time enters or leaves."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _join(self, capacity_bytes: int, limit_bytes: int) -> None:
        self._users = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        self.alone = _locked(self._users, fcntl.LOCK_EX)
        fcntl.flock(self._users, fcntl.LOCK_SH)  # never waits: nobody else is at the gate
        mark = Mark(FORMAT_VERSION, capacity_bytes, self._boot)
        before = self._read() if (self.path / MARK).exists() else replace(mark, boot=CLOSED)
        self._require_shareable(before, capacity_bytes)
        if self.alone and (before.boot not in (CLOSED, self._boot) or self.held_bytes > limit_bytes):
            self.empty()
        self._require_space(limit_bytes)
        self._write(mark)

    def _require_shareable(self, mark: Mark, capacity_bytes: int) -> None:
        if mark.format != FORMAT_VERSION:
            raise self.refusal(
                f"this external store is of format {mark.format}, and this agentcache reads format {FORMAT_VERSION}: "
                f"name another folder, or delete this one (it is only a cache) with: rm -r '{self.path}'"
            )
        if self.alone:
            return
        if mark.boot != self._boot:
            raise self.refusal(
                "another machine uses this external store: name a folder on this machine's own disk"
            )
        if mark.capacity_bytes != capacity_bytes:
            raise self.refusal(
                "this external store is in use with another capacity: give the same one to all that share it",
                capacity_bytes=capacity_bytes,
                in_use_with_bytes=mark.capacity_bytes,
            )

    def _require_space(self, limit_bytes: int) -> None:
        want_bytes = limit_bytes - self.held_bytes
        free_bytes = shutil.disk_usage(self.path).free
        if want_bytes > free_bytes:
            raise self.refusal(
                "the disk has too little room for an external store of this capacity: give a smaller one, or name a "
                "folder on another disk",
                needed_bytes=want_bytes,
                free_bytes=free_bytes,
            )

    def _read(self) -> Mark:
        try:
            said = json.loads((self.path / MARK).read_text())
            return Mark(int(said["format"]), int(said["capacity_bytes"]), str(said["boot"]))
        except (ValueError, KeyError, TypeError) as bad:
            raise self.refusal(
                f"this folder's {MARK} is not agentcache's: name an empty folder or a new one"
            ) from bad

    def _write(self, mark: Mark) -> None:
        """Replace the mark, on the disk before anything that relies on it."""
        new = self.path / NEW_MARK
        with new.open("w") as file:
            file.write(json.dumps({"agentcache": "store"} | asdict(mark)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path / MARK)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _part(self) -> None:
        if self._users >= 0:
            os.close(self._users)
            self._users = -1


def _locked(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
