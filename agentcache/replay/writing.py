"""Trace files as they are written: JSON, one value a line, packed as the file's name says."""

import gzip
import json
import lzma
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import zstandard

from agentcache.errors import CacheError, Kind
from agentcache.replay.packing import PACKED, unpacked_name

_PART = ".part"
_PACK: dict[str, Callable[[BinaryIO], object]] = {
    ".xz": partial(lzma.LZMAFile, mode="wb"),
    ".gz": lambda file: gzip.GzipFile("", "wb", fileobj=file, mtime=0),
    ".zst": lambda file: zstandard.ZstdCompressor().stream_writer(file, closefd=False),
}
"""All leave out times and names, so that equal traces are equal files."""


def write_lines(values: Iterable[Any], out: Path) -> None:
    """Write the values to `out`, which is there only when all are written; until then `out.part` is.

    Errors  CacheError(BAD_REQUEST): a name that no trace file has, or that cannot be written
    """
    if not unpacked_name(out.name).endswith(".jsonl"):
        endings = ", ".join(f".jsonl{packed}" for packed in ("", *PACKED))
        raise CacheError(Kind.BAD_REQUEST, f"{out} would not be read as a trace: name it with {endings}")
    part = out.with_name(out.name + _PART)
    try:
        with part.open("wb") as file:
            _write(values, file, out.suffix)
        part.replace(out)
    except OSError as error:
        raise CacheError(Kind.BAD_REQUEST, f"cannot write {out}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            part.unlink()


def print_lines(values: Iterable[Any]) -> bool:
    """Write the values to stdout; False if its reader went away before the end."""
    try:
        for value in values:
            sys.stdout.write(_line(value))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def _write(values: Iterable[Any], file: BinaryIO, ending: str) -> None:
    pack = _PACK.get(ending)
    if not pack:
        file.writelines(_line(value).encode() for value in values)
        return
    with cast(BinaryIO, pack(file)) as packed:
        for value in values:
            packed.write(_line(value).encode())


def _line(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n"
