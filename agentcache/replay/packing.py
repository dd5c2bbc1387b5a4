"""Packed files as streams of bytes, and the files inside an archive. What is cut short is an error, never a short file.

name.jsonl.xz, .gz, .zst      one file
name.tar, .tar.xz, .tar.gz, .tar.zst, .tgz, .txz      files as below a directory
"""

import gzip
import io
import lzma
import shutil
import tarfile
import tempfile
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import zstandard

from agentcache.errors import CacheError, Kind

PACKED = (".xz", ".gz", ".zst")
ARCHIVES = (".tar", ".tgz", ".txz")
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError, tarfile.TarError)
"""What reading a damaged file may raise."""

_MAGIC = {b"\xfd7zXZ\0": ".xz", b"\x1f\x8b": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
"""What a packed file begins with, whatever its name is; no text does."""

_LONGEST_MAGIC = max(map(len, _MAGIC))

_IN_MEMORY_BYTES = 32 << 20
_PIECE_BYTES = 1 << 16
_END_OF_ARCHIVE = bytes(2 * tarfile.BLOCKSIZE)


class Home(Protocol):
    """Where files are.

    Errors  any of UNREADABLE, also while the stream is read; CacheError(BAD_TRACE): packed, and not named so
    """

    def open(self, path: Path) -> BinaryIO:
        """The file's bytes, unpacked as its name says."""


class Disk:
    """Files of the file system."""

    def open(self, path: Path) -> BinaryIO:
        return _unpacking(path.open("rb"), path)


DISK = Disk()


class Archive:
    """The files of a tar archive; a member is named by the archive's path and its own.

    Cost  unpacked once, when first asked; over 32 MiB into a temporary file that goes with this object
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tar: tarfile.TarFile | None = None

    def paths(self) -> list[Path]:
        """Every regular file. Errors: any of UNREADABLE."""
        return [self._path / member.name for member in self._opened().getmembers() if member.isfile()]

    def open(self, path: Path) -> BinaryIO:
        name = path.relative_to(self._path).as_posix()
        found = (member for member in self._opened().getmembers() if Path(member.name).as_posix() == name)
        member = self._opened().extractfile(next(found))
        return _unpacking(cast(BinaryIO, member), path)

    def _opened(self) -> tarfile.TarFile:
        if self._tar is None:
            whole = cast(BinaryIO, tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES))  # noqa: SIM115
            weakref.finalize(self, whole.close)
            with _unpacking(self._path.open("rb"), self._path) as packed:
                shutil.copyfileobj(packed, whole)
            _check_end(whole)
            self._tar = tarfile.open(fileobj=whole, mode="r:")  # noqa: SIM115
        return self._tar


def is_archive(path: Path) -> bool:
    return unpacked_name(path.name).endswith(ARCHIVES)


def unpacked_name(name: str) -> str:
    """The name without the endings of packing."""
    for ending in PACKED:
        name = name.removesuffix(ending)
    return name


def _unpacking(file: BinaryIO, path: Path) -> BinaryIO:
    """The unpacked bytes of `file`, which is closed with them. Errors: BAD_TRACE if it is packed and not named so."""
    if unpack := _UNPACK.get(Path(_with_packing(path.name)).suffix):
        return cast(BinaryIO, _Closing(unpack(file), file))
    begins = cast(io.BufferedReader, file).peek(_LONGEST_MAGIC)
    for magic, ending in _MAGIC.items():
        if begins.startswith(magic):
            file.close()
            message = f"{path} is packed, and is not named so: rename it to {path.name}{ending}"
            raise CacheError(Kind.BAD_TRACE, message)
    return file


def _with_packing(name: str) -> str:
    return name.replace(".tgz", ".tar.gz").replace(".txz", ".tar.xz")


def _check_end(tar: BinaryIO) -> None:
    """tarfile takes an archive that was cut between two members for a whole one."""
    size = tar.seek(0, io.SEEK_END)
    tar.seek(max(0, size - len(_END_OF_ARCHIVE)))
    if size % tarfile.BLOCKSIZE or tar.read() != _END_OF_ARCHIVE:
        raise EOFError("the archive has no end")
    tar.seek(0)


class _Closing(io.BufferedReader):
    """A stream whose end closes the file below it, too."""

    def __init__(self, stream: object, below: BinaryIO) -> None:
        super().__init__(cast(io.RawIOBase, stream))
        self._below = below

    def close(self) -> None:
        super().close()
        self._below.close()


class _Zstandard(io.RawIOBase):
    """Unpacks frame after frame; zstandard's own reader takes a file that was cut for one that ended."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._packed = self._out = b""
        self._inside = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._out:
            self._packed = self._packed or self._file.read(_PIECE_BYTES)
            if not self._packed:
                if self._inside:
                    raise EOFError("the file ended before the end of its last frame")
                return 0
            self._unpack()
        view = memoryview(buffer)
        count = min(len(view), len(self._out))
        view[:count], self._out = self._out[:count], self._out[count:]
        return count

    def _unpack(self) -> None:
        self._inside = True
        self._out, self._packed = self._frame.decompress(self._packed), b""
        if self._frame.eof:
            self._packed = self._frame.unused_data
            self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._inside = False


_UNPACK: dict[str, Callable[[BinaryIO], object]] = {
    ".xz": lzma.LZMAFile,
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".zst": _Zstandard,
}
