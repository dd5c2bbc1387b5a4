"""Which reader knows a trace file: by looking at its first document, never by asking the user.

A new format is one reader and one entry of READERS.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Protocol

from agentcache.errors import CacheError, Kind
from agentcache.replay.formats.miniswe import MiniSweReader
from agentcache.replay.formats.weka import WekaReader
from agentcache.replay.sources import Document, Source, sources
from agentcache.replay.trace import Session


class Reader(Protocol):
    """Turns one file format into sessions. `description` is a line for people.

    Caller       asks `sessions` only of files whose first document the reader accepts
    Implementer  reads lazily: a session is parsed when it is asked for; never guesses at a document that it does
                 not understand; a parent comes before its children
    Errors       CacheError(BAD_TRACE) naming file, line and field, from the iterator
    """

    format: str
    description: str
    document_is_session: bool

    def accepts(self, first: Document) -> bool: ...

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]: ...


READERS: tuple[Reader, ...] = (WekaReader(), MiniSweReader())


@dataclass(frozen=True, slots=True)
class Trace:
    """The sessions at one path, in file order; each iteration reads again from the start."""

    path: Path
    files: tuple[Source, ...]

    def sessions(self) -> Iterator[Session]:
        for reader, files in groupby(self.files, key=reader_of):
            yield from reader.sessions(files)

    def count(self) -> int:
        """How many sessions there are; reads every file to its end, without parsing it where it need not be."""
        return sum(_count(reader, files) for reader, files in groupby(self.files, key=reader_of))


def open_trace(path: Path) -> Trace:
    """The trace at `path`: a file in a known format, or a directory or archive of such files.

    Errors  CacheError(BAD_TRACE): nothing there, an empty file, or a first file that no reader knows
    """
    files = tuple(sources(path))
    reader_of(files[0])
    return Trace(path, files)


def reader_of(source: Source) -> Reader:
    """The first reader that accepts the file's first document; reads no further than that."""
    first = next(source.documents(), Document({}, source.path, 0))
    for reader in READERS:
        if reader.accepts(first):
            return reader
    known = ", ".join(reader.format for reader in READERS)
    message = f"{first.place} is not a trace that agentcache can read (it reads: {known})"
    raise CacheError(Kind.BAD_TRACE, message)


def _count(reader: Reader, files: Iterable[Source]) -> int:
    if reader.document_is_session:
        return sum(source.count() for source in files)
    return sum(1 for _ in reader.sessions(files))
