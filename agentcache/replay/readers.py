"""Which reader knows a trace file: by looking at its first document, never by asking the user.

A new format is one reader and one entry of READERS.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Protocol

from agentcache.errors import CacheError, Kind
from agentcache.replay.formats.agentcache import AgentcacheReader
from agentcache.replay.formats.aiperf import AiperfReader
from agentcache.replay.formats.azure import AzureReader
from agentcache.replay.formats.claude import ClaudeCodeReader
from agentcache.replay.formats.codex import CodexReader
from agentcache.replay.formats.dynamo import DynamoReader
from agentcache.replay.formats.lmcache import LmCacheReader
from agentcache.replay.formats.miniswe import MiniSweReader
from agentcache.replay.formats.mooncake import MooncakeReader
from agentcache.replay.formats.openhands import OpenHandsReader
from agentcache.replay.formats.sweagent import SweAgentReader
from agentcache.replay.formats.tau import TauBenchReader
from agentcache.replay.formats.tracelab import TraceLabReader
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

    @property
    def format(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def document_is_session(self) -> bool: ...

    def accepts(self, first: Document) -> bool: ...

    def sessions(self, files: Iterable[Source]) -> Iterator[Session]: ...


READERS: tuple[Reader, ...] = (
    AgentcacheReader(),
    WekaReader(),
    ClaudeCodeReader(),
    TauBenchReader(),
    SweAgentReader(),
    LmCacheReader(),
    TraceLabReader(),
    DynamoReader(),
    MooncakeReader(),
    AzureReader(),
    CodexReader(),
    OpenHandsReader(),
    AiperfReader(),
    MiniSweReader(),
)


@dataclass(frozen=True, slots=True)
class Trace:
    """The sessions at one path, in file order; each iteration reads again from the start."""

    path: Path
    files: tuple[Source, ...]
    readers: tuple[Reader, ...] = READERS

    def sessions(self) -> Iterator[Session]:
        for reader, files in self._by_reader():
            yield from reader.sessions(files)

    def conversations(self) -> Iterator[Session]:
        """The sessions, of a trace that a worker can be sent.

        Errors  CacheError(BAD_TRACE) also for a session that is told without text
        """
        for session in self.sessions():
            if not session.has_text:
                message = f"{session.place} tells no text, so nothing can be sent to a worker"
                raise CacheError(Kind.BAD_TRACE, f"{message}; `agentcache trace inspect` says what is in it")
            yield session

    def count(self) -> int:
        """How many sessions there are; reads every file to its end, without parsing it where it need not be."""
        return sum(_count(reader, files) for reader, files in self._by_reader())

    def formats(self) -> list[str]:
        """The formats of its files, in file order."""
        return list(dict.fromkeys(reader.format for reader, _ in self._by_reader()))

    def _by_reader(self) -> Iterator[tuple[Reader, Iterator[Source]]]:
        return groupby(self.files, key=lambda source: reader_of(source, self.readers))


def open_trace(path: Path, readers: tuple[Reader, ...] = READERS) -> Trace:
    """The trace at `path`: a file in a known format, or a directory or archive of such files.

    Errors  CacheError(BAD_TRACE): nothing there, an empty file, or a first file that no reader knows
    """
    files = tuple(sources(path))
    reader_of(files[0], readers)
    return Trace(path, files, readers)


def reader_of(source: Source, readers: tuple[Reader, ...] = READERS) -> Reader:
    """The first reader that accepts the file's first document; reads no further than that."""
    first = next(source.documents(), None)
    if first is None:
        raise source.empty()
    for reader in readers:
        if reader.accepts(first):
            return reader
    known = ", ".join(reader.format for reader in readers)
    message = f"{first.place} is not a trace that agentcache can read (it reads: {known})"
    raise CacheError(Kind.BAD_TRACE, message)


def _count(reader: Reader, files: Iterable[Source]) -> int:
    if reader.document_is_session:
        return sum(source.count() for source in files)
    return sum(1 for _ in reader.sessions(files))
