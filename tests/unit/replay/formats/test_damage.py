"""Every field of every golden trace, replaced by what does not belong there: read, or refused with its place."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.readers import READERS, reader_of
from agentcache.replay.sources import Source, sources
from tests.traces import GOLDEN

STRANGE: tuple[Any, ...] = (None, True, -1, 1.5, 10**400, float("nan"), "", "x", [], [5], [[]], {}, {"a": 1})
FILES = [
    source.path
    for source in (*sources(GOLDEN), *sources(GOLDEN / "tau.json"))
    if source.path.suffix != ".csv"
]


class Memory:
    """A home of one file."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def open(self, path: Path) -> BinaryIO:
        return io.BytesIO(self._text)


def read(path: Path, text: bytes) -> None:
    """Look at it, and read it to the end with the reader of the golden file, whatever it looks like now."""
    reader = reader_of(Source(path))
    damaged = Source(Path("damaged") / path.name, Memory(text))

    def whole() -> None:
        for session in reader.sessions([damaged]):
            list(session.prompts())
            list(session.block_prompts())

    for error in refusals(whole, lambda: reader_of(damaged)):
        assert error.kind is Kind.BAD_TRACE
        assert str(damaged.path) in error.message


def refusals(*works: Callable[[], object]) -> Iterator[CacheError]:
    for work in works:
        try:
            work()
        except CacheError as error:
            yield error


def ways(value: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside of this one."""
    steps = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for step, inner in steps:
        yield (step,)
        yield from ((step, *way) for way in ways(inner))


def changed(value: Any, way: tuple[Any, ...], to: Any) -> Any:
    if not way:
        return to
    copy = value.copy()
    copy[way[0]] = changed(value[way[0]], way[1:], to)
    return copy


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_strange_field_is_read_or_named(path: Path) -> None:
    lines = path.suffix == ".jsonl"
    text = path.read_text(encoding="utf-8")
    documents = [json.loads(line) for line in text.splitlines()] if lines else [json.loads(text)]
    for way in ways(documents):
        for strange in STRANGE:
            damaged = changed(documents, way, strange)
            read(path, "\n".join(json.dumps(document) for document in damaged).encode())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_that_was_cut_is_read_or_named(path: Path) -> None:
    whole = path.read_bytes()
    for end in range(0, len(whole), 97):
        read(path, whole[:end])
        read(path, whole[:end] + b"\xff" + whole[end + 1 :])


def test_every_reader_has_a_golden_trace() -> None:
    golden = [*FILES, GOLDEN / "azure.csv"]
    assert {reader_of(Source(path)).format for path in golden} == {reader.format for reader in READERS}
