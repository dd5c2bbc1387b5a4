"""Which reader knows a trace file: by looking at its first document, never by asking the user.

A new format is one reader and one entry of READERS.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agentcache.errors import CacheError, Kind
from agentcache.replay.miniswe import MiniSweReader
from agentcache.replay.sources import Document, Source, sources
from agentcache.replay.trace import Session


class Reader(Protocol):
    """Turns one file format into sessions.

    Caller       asks `sessions` only of a source whose first document the reader accepts
    Implementer  reads lazily: a session is parsed when it is asked for; never guesses at a document that it does
                 not understand
    Errors       CacheError(BAD_TRACE) naming file and line, from the iterator
    """

    format: str

    def accepts(self, first: Document) -> bool: ...

    def sessions(self, source: Source) -> Iterator[Session]: ...


READERS: tuple[Reader, ...] = (MiniSweReader(),)


@dataclass(frozen=True, slots=True)
class Trace:
    """The sessions at one path, in file order; each iteration reads again from the start."""

    path: Path
    files: tuple[Source, ...]

    def sessions(self) -> Iterator[Session]:
        for source in self.files:
            yield from reader_of(source).sessions(source)

    def count(self) -> int:
        """How many sessions there are; reads every file to its end without parsing it."""
        return sum(source.count() for source in self.files)


def open_trace(path: Path) -> Trace:
    """The trace at `path`: a file in a known format or a directory of such files.

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
    message = f"{first.place} is not a trajectory that agentcache can read (it reads: {known})"
    raise CacheError(Kind.BAD_TRACE, message)
