"""Trace files as streams of JSON documents, each with the place to name when it is wrong.

A `.json` file is one document; a `.jsonl` file one a line. Both may be packed (`.xz`, `.gz`). Nothing is read
before it is asked for, and only one document is in memory at a time.
"""

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from agentcache.errors import CacheError, Kind

ENDINGS = (".json", ".jsonl")
PACKED = (".xz", ".gz")
_UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)
_MALFORMED = (ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON value of a trace file. `line` counts from 1 and is 0 in a file that is one document."""

    value: Any
    path: Path
    line: int

    @property
    def place(self) -> str:
        return _place(self.path, self.line)


@dataclass(frozen=True, slots=True)
class Source:
    """One trace file."""

    path: Path

    @property
    def stem(self) -> str:
        """The file's name without the endings that say how it is written."""
        name = _unpacked(self.path.name)
        for ending in (*ENDINGS, ".traj"):
            name = name.removesuffix(ending)
        return name

    def documents(self) -> Iterator[Document]:
        """Every document of the file, one at a time.

        Errors  CacheError(BAD_TRACE) at the document that cannot be read, naming file and line
        """
        if self._is_lines():
            yield from (self._parsed(text, line) for line, text in self._lines())
        else:
            yield self._parsed(b"".join(text for _, text in self._lines()), 0)

    def count(self) -> int:
        """How many documents the file holds; reads it to its end and parses none of it."""
        return sum(1 for _ in self._lines()) if self._is_lines() else 1

    def _is_lines(self) -> bool:
        return _unpacked(self.path.name).endswith(".jsonl")

    def _parsed(self, text: bytes, line: int) -> Document:
        try:
            return Document(json.loads(text), self.path, line)
        except _MALFORMED as error:
            message = f"{_place(self.path, line)} is not JSON: {error}. Repair or remove it"
            raise CacheError(Kind.BAD_TRACE, message) from None

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Lines that are not blank, with their numbers."""
        number = 0
        try:
            with _open(self.path) as file:
                for number, text in enumerate(file, 1):
                    if text.strip():
                        yield number, text
        except _UNREADABLE as error:
            message = f"cannot read {_place(self.path, number + 1)}: {error}. Is the file whole?"
            raise CacheError(Kind.BAD_TRACE, message) from None


def sources(path: Path) -> list[Source]:
    """The trace files at `path`: itself, or every one below it in name order if it is a directory.

    Errors  CacheError(BAD_TRACE): no such path, or a directory without a trace file
    """
    if path.is_dir():
        found = [Source(file) for file in sorted(path.rglob("*")) if file.is_file() and _is_trace(file)]
        if not found:
            raise CacheError(Kind.BAD_TRACE, f"no .traj.json or .jsonl file below the directory {path}")
        return found
    if not path.exists():
        raise CacheError(
            Kind.BAD_TRACE, f"there is no trace at {path}; name a trajectory file or a directory"
        )
    return [Source(path)]


def _is_trace(path: Path) -> bool:
    return _unpacked(path.name).endswith((".traj.json", ".jsonl"))


def _unpacked(name: str) -> str:
    for ending in PACKED:
        name = name.removesuffix(ending)
    return name


def _place(path: Path, line: int) -> str:
    return f"{path}, line {line}" if line else str(path)


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")
