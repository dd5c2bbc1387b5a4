"""Trace files as streams of documents, each with the place to name when it is wrong.

A `.json` or `.traj` file is one JSON document, a `.jsonl` file one a line, a `.csv` file one a line after its first,
which names the columns. All may be packed (`.xz`, `.gz`, `.zst`) or in an archive (`.tar`, packed or not). Nothing
is read before it is asked for, and only one document is in memory at a time.

A directory of events, each in a file of its own or many in a page, is one trace file in pieces:

    conversation/events/0.json, 1.json …                   conversation/event_cache/0-25.json …
    conversation/events/event-00000-<id>.json …            anywhere/event_000000_<id>.json …
"""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from agentcache.errors import CacheError, Kind
from agentcache.replay.packing import DISK, UNREADABLE, Archive, Home, is_archive, unpacked_name

TRACES = (".traj.json", ".traj", ".jsonl", ".csv")
"""What is taken for a trace in a directory."""

_EVENTS = ("events", "event_cache")
_NUMBERED = re.compile(r"(?:event[-_])?(\d+)(?:[-_].*)?\.json")
_ENDINGS = (".json", ".jsonl", ".traj", ".csv")
_MALFORMED = (ValueError, RecursionError, csv.Error)
_BOM = b"\xef\xbb\xbf"
_HALVES = (b"\\ud", b"\\uD", b"\xed")
"""Where one of these is, there may be half a surrogate pair, as in tool output that was cut."""


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON value of a trace file, or one line of a table as column -> text.

    `line` counts from 1 and is 0 in a file that is one document. A file in an archive has the archive's path and its
    own below that.
    """

    value: Any
    path: Path
    line: int

    @property
    def place(self) -> str:
        return _place(self.path, self.line)


@dataclass(frozen=True, slots=True)
class Source:
    """One trace file, or one in pieces: `parts`, in order, below the directory that `path` is then."""

    path: Path
    home: Home = DISK
    parts: tuple[Path, ...] = ()

    @property
    def stem(self) -> str:
        """The file's name without the endings that say how it is written."""
        return _stem(self.path)

    def documents(self) -> Iterator[Document]:
        """Every document of the file, one at a time.

        Errors  CacheError(BAD_TRACE) at the document that cannot be read, naming file and line
        """
        if self.parts:
            yield from chain.from_iterable(piece.documents() for piece in self._pieces())
        elif self._is_table():
            yield from self._rows()
        elif self._is_lines():
            yield from (self._parsed(text, line) for line, text in self._lines())
        else:
            text = b"".join(text for _, text in self._lines())
            if not text:
                raise self.empty()
            yield self._parsed(text, 0)

    def count(self) -> int:
        """How many documents the file holds; reads it to its end and parses none of it."""
        if self.parts:
            return sum(piece.count() for piece in self._pieces())
        if not self._is_lines() and not self._is_table():
            return 1
        return max(0, sum(1 for _ in self._lines()) - self._is_table())

    def empty(self) -> CacheError:
        """The error to raise for a file without documents."""
        return CacheError(
            Kind.BAD_TRACE, f"{self.path} is empty: there is no record in it. Repair or remove it"
        )

    def _pieces(self) -> "Iterator[Source]":
        return (Source(part, self.home) for part in self.parts)

    def _is_lines(self) -> bool:
        return unpacked_name(self.path.name).endswith(".jsonl")

    def _is_table(self) -> bool:
        return unpacked_name(self.path.name).endswith(".csv")

    def _parsed(self, text: bytes, line: int) -> Document:
        try:
            value = json.loads(text)
            if any(mark in text for mark in _HALVES):
                value = _whole(value)
            return Document(value, self.path, line)
        except _MALFORMED as error:
            raise self._malformed("JSON", line, error) from None

    def _rows(self) -> Iterator[Document]:
        columns: list[str] = []
        for line, text in self._lines():
            try:
                (cells,) = csv.reader([text.removeprefix(_BOM).decode()], strict=True)
                if columns and len(cells) != len(columns):
                    raise ValueError(f"{len(cells)} columns where the first line names {len(columns)}")
            except _MALFORMED as error:
                raise self._malformed("CSV", line, error) from None
            if columns:
                yield Document(dict(zip(columns, cells, strict=True)), self.path, line)
            columns = columns or cells

    def _malformed(self, what: str, line: int, error: Exception) -> CacheError:
        message = f"{_place(self.path, line)} is not {what}: {error}. Repair or remove it"
        return CacheError(Kind.BAD_TRACE, message)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Lines that are not blank, with their numbers."""
        number = 0
        try:
            with self.home.open(self.path) as file:
                for number, text in enumerate(file, 1):
                    if text.strip():
                        yield number, text
        except UNREADABLE as error:
            message = f"cannot read {_place(self.path, number + 1)}: {error}. Is the file whole?"
            raise CacheError(Kind.BAD_TRACE, message) from None


def sources(path: Path) -> list[Source]:
    """The trace files at `path`: itself, or every one below it in name order if it is a directory or an archive.

    Of a directory and an archive that is what TRACES says, and directories of events.

    A name sorts before those in a directory of that name. One file of an archive has the archive's path and its own.

    Errors  CacheError(BAD_TRACE): no such path, an archive that cannot be read, nothing in it that is a trace
    """
    try:
        found = _found(path)
    except UNREADABLE as error:
        message = f"cannot read {path}: {error}. Is the file whole?"
        raise CacheError(Kind.BAD_TRACE, message) from None
    if found:
        return sorted(found, key=_rank)
    if path.exists():
        endings = ", ".join(TRACES)
        message = f"no trace below {path}: no file whose name ends with {endings}, and no directory of events"
        raise CacheError(Kind.BAD_TRACE, message)
    raise CacheError(
        Kind.BAD_TRACE, f"there is no trace at {path}; name a trace file, a directory or an archive"
    )


def _rank(source: Source) -> tuple[tuple[str, ...], str]:
    return (*source.path.parts[:-1], source.stem), source.path.name


def _found(path: Path) -> list[Source]:
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
        inside = [source for file in files if is_archive(file) for source in _found(file)]
        return [*_traces(files, DISK), *inside]
    for outer in (path, *path.parents):
        if is_archive(outer) and outer.is_file():
            archive = Archive(outer)
            members = archive.paths()
            if path in members:
                return [Source(path, archive)]
            return list(_traces([member for member in members if path in member.parents], archive))
    return [Source(path)] if path.exists() else []


def _traces(files: Iterable[Path], home: Home) -> Iterator[Source]:
    """What of these files is a trace, and what of them together is one."""
    pieces: dict[Path, list[tuple[int, Path]]] = {}
    for file in files:
        number = _NUMBERED.fullmatch(unpacked_name(file.name))
        named = file.parent.name in _EVENTS
        if _is_trace(file):
            yield Source(file, home)
        elif number and (named or file.name.startswith("event")):
            folder = file.parent.parent if named and file.parent.parent.name else file.parent
            pieces.setdefault(folder, []).append((int(number[1]), file))
    for folder, found in pieces.items():
        yield Source(folder, home, tuple(file for _, file in sorted(found)))


def _is_trace(path: Path) -> bool:
    return unpacked_name(path.name).endswith(TRACES)


def _stem(path: Path) -> str:
    name = unpacked_name(path.name)
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return name.removesuffix(".traj")


def _place(path: Path, line: int) -> str:
    return f"{path}, line {line}" if line else str(path)


def _whole(value: Any) -> Any:
    """The same JSON with U+FFFD for half surrogate pairs, which no tokenizer, terminal or request takes."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_whole(one) for one in value]
        case dict():
            return {_whole(name): _whole(one) for name, one in value.items()}
    return value
