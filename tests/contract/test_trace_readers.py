"""Every reader of traces: golden files are read whole and come back equal, damaged ones are named, nothing is guessed.

What is golden and what is damaged is told in `trace_damages.py`; a reader that is not there fails here.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.formats.agentcache import told
from agentcache.replay.readers import READERS, Reader, open_trace, reader_of
from agentcache.replay.sources import Document, Source, sources
from agentcache.replay.trace import Link, Session
from agentcache.replay.tracing import named
from tests.contract.trace_damages import DAMAGES, NO_ORDER, OUT_OF_ORDER, Damage
from tests.contract.trace_lookalikes import LOOKALIKES
from tests.traces import GOLDEN, block_prompts, complaint, golden_lines, written

FILES = list(DAMAGES)
ENDING = ". Repair or remove it"
STRANGE: tuple[Any, ...] = (None, True, -1, 1.5, 10**400, float("nan"), "", "x", [], [5], [[]], {}, {"a": 1})
STEP = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")
"""A step of a way as errors tell it: `[3]` or `.name`."""

SAID = re.compile(r"(, line \d+)?(: \S+)? (is|has|holds|names|begin|goes|fits?) ")
"""A place, a field where it is one, and what is wrong."""


def documents(name: str) -> list[Any]:
    """What a golden file says: the objects of its lines, of its table, or of all of it."""
    if name.endswith(".jsonl"):
        return golden_lines(name)
    text = (GOLDEN / name).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text))) if name.endswith(".csv") else [json.loads(text)]


def text_of(name: str, values: Sequence[Any]) -> bytes:
    """A file of that name that says this."""
    if name.endswith(".csv"):
        columns = list(values[0])
        rows = [columns, *([row[column] for column in columns] for row in values)]
        return "".join(",".join(row) + "\n" for row in rows).encode()
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def place(line: int) -> str:
    return f", line {line}" if line else ""


def row(name: str, line: int) -> int:
    """Where a line is among the documents."""
    return max(0, line - 1 - name.endswith(".csv"))


def changed(value: Any, way: Sequence[Any], to: Any) -> Any:
    if not way:
        return to
    copy = value.copy()
    inside = copy[way[0]] if isinstance(copy, list) else copy.get(way[0])
    copy[way[0]] = changed(inside, way[1:], to)
    return copy


def steps(field: str) -> list[Any]:
    return [int(number) if number else name for number, name in STEP.findall(field)]


def damages(table: Mapping[str, Sequence[Damage]]) -> list[Any]:
    return [
        pytest.param(name, damage, id=f"{name} {damage.line} {damage.field} {damage.to!r:.20}")
        for name, of_file in table.items()
        for damage in of_file
    ]


EVERY = {name: [*of_file, *filter(None, [OUT_OF_ORDER.get(name)])] for name, of_file in DAMAGES.items()}


@pytest.mark.parametrize(("name", "damage"), damages(EVERY))
def test_a_wrong_field_is_named_with_its_place(tmp_path: Path, name: str, damage: Damage) -> None:
    values = documents(name)
    at = row(name, damage.line)
    values[at] = changed(values[at], steps(damage.field), damage.to)
    path = tmp_path / Path(name).name
    path.write_bytes(text_of(name, values))
    line, field = damage.of if damage.of[1] else (damage.line, damage.field)
    assert complaint(path) == f"{place(line)}: {field} {damage.said}{ENDING}"


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".jsonl")])
def test_a_line_that_is_no_object_is_named(tmp_path: Path, name: str) -> None:
    values = [*documents(name), 5]
    path = written(tmp_path, Path(name).name, *values)
    assert complaint(path) == f", line {len(values)} is not an object{ENDING}"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "not UTF-8"])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, damage: str) -> None:
    """A file that ends in the middle of its last document, and one with a byte that is no text."""
    table, lines = name.endswith(".csv"), name.endswith(".jsonl")
    whole = (GOLDEN / name).read_bytes().rstrip()
    end = len(whole) - (5 if table else 1)
    path = tmp_path / Path(name).name
    path.write_bytes(whole[:end] if damage == "cut" else whole[:end] + b"\xff" + whole[end + 1 :])
    at = place(len(whole.splitlines()) if table or lines else 0)
    said = complaint(path)
    assert said.startswith(f"{at} is not {'CSV' if table else 'JSON'}: ")
    assert said.endswith(ENDING)


class Memory:
    """A home of one file."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    def open(self, path: Path) -> BinaryIO:
        return io.BytesIO(self._text)


def read(name: str, reader: Reader, text: bytes) -> None:
    """Look at it, and read it to the end with the reader of the golden file, whatever it looks like now."""
    damaged = Source(Path("damaged") / Path(name).name, Memory(text))

    def whole() -> None:
        for session in reader.sessions([damaged]):
            list(session.prompts())
            block_prompts(session)

    for error in refusals(whole, lambda: reader_of(damaged)):
        assert error.kind is Kind.BAD_TRACE
        assert error.message.startswith(str(damaged.path))
        assert SAID.match(error.message.removeprefix(str(damaged.path)))


def refusals(*works: Callable[[], object]) -> Iterator[CacheError]:
    for work in works:
        try:
            work()
        except CacheError as error:
            yield error


def ways(value: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every value inside of this one."""
    found = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for step, inner in found:
        yield (step,)
        yield from ((step, *way) for way in ways(inner))


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith(".csv")])
def test_any_field_replaced_by_anything_is_read_or_named(name: str) -> None:
    values, reader = documents(name), reader_of(Source(GOLDEN / name))
    for way in ways(values):
        for strange in STRANGE:
            read(name, reader, text_of(name, changed(values, way, strange)))


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_anywhere_is_read_or_named(name: str) -> None:
    whole, reader = (GOLDEN / name).read_bytes(), reader_of(Source(GOLDEN / name))
    for end in range(0, len(whole), 97):
        read(name, reader, whole[:end])
        read(name, reader, whole[:end] + b"\xff" + whole[end + 1 :])


@pytest.mark.parametrize("name", FILES)
def test_a_golden_file_is_the_same_in_our_own_form(tmp_path: Path, name: str) -> None:
    """Nothing that a reader tells is lost when it is written and read again."""
    sessions = [replace(session, place="") for session in open_trace(GOLDEN / name).sessions()]
    assert sessions
    lines = [told(session) for session in named(sessions)]
    path = written(tmp_path, "t.jsonl", *lines)
    back = [replace(session, place="") for session in open_trace(path).sessions()]
    assert back == sessions
    assert [told(session) for session in back] == lines


@pytest.mark.parametrize("name", FILES)
def test_parents_come_before_their_children(name: str) -> None:
    """And names are unique in a file; a child begins at a call that its parent has."""
    before: dict[str, Session] = {}
    for session in open_trace(GOLDEN / name).sessions():
        parent = session.origin.parent
        assert session.name not in before
        assert (session.origin.link is Link.NONE) == (parent == "")
        assert session.origin.after_call <= (len(before[parent].calls) if parent else 0)
        before[session.name] = session


@pytest.mark.parametrize("name", FILES)
def test_counting_is_reading(name: str) -> None:
    trace = open_trace(GOLDEN / name)
    assert trace.count() == len(list(trace.sessions()))


@pytest.mark.parametrize(
    ("reader", "value", "accepted"),
    [
        pytest.param(reader, value, accepted, id=f"{reader.format} {value!r:.60} {accepted}")
        for reader in READERS
        for accepted, values in zip((True, False), LOOKALIKES[reader.format], strict=True)
        for value in values
    ],
)
def test_a_file_is_known_by_its_first_document(reader: Any, value: Any, accepted: bool) -> None:
    """What other formats made of one is left to readers of theirs."""
    assert reader.accepts(Document(value, Path("t"), 1)) is accepted


def test_every_reader_is_tested() -> None:
    """With damages and with times out of order, or a word on why it has none."""
    golden = [source.path for source in (*sources(GOLDEN), Source(GOLDEN / "tau.json"))]
    assert {GOLDEN / name for name in FILES} <= set(golden)
    assert {reader_of(Source(GOLDEN / name)).format for name in FILES} == {
        reader.format for reader in READERS
    }
    assert {path.parent.name for path in golden if path not in {GOLDEN / name for name in FILES}} == {
        "subagents"
    }
    assert all(DAMAGES.values())
    assert OUT_OF_ORDER.keys().isdisjoint(NO_ORDER)
    assert {*OUT_OF_ORDER, *NO_ORDER} == set(FILES)
    assert set(LOOKALIKES) == {reader.format for reader in READERS}
