"""Trace files: packed or not, one document or one a line, read no further than asked."""

import gzip
import lzma
from pathlib import Path

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.sources import Source, sources

LINES = b'{"n": 1}\n\n  \n{"n": 2}\n{"n": 3}\n'


def values(source: Source) -> list[tuple[int, int]]:
    return [(document.line, document.value["n"]) for document in source.documents()]


@pytest.mark.parametrize(
    ("name", "pack"), [("t.jsonl", bytes), ("t.jsonl.xz", lzma.compress), ("t.jsonl.gz", gzip.compress)]
)
def test_lines_are_documents_whatever_packs_them(tmp_path: Path, name: str, pack: type) -> None:
    path = tmp_path / name
    path.write_bytes(pack(LINES))
    assert values(Source(path)) == [(1, 1), (4, 2), (5, 3)]
    assert Source(path).count() == 3
    assert Source(path).stem == "t"


def test_a_json_file_is_one_document(tmp_path: Path) -> None:
    path = tmp_path / "one.traj.json"
    path.write_bytes(b'{\n  "n": 7\n}\n')
    assert values(Source(path)) == [(0, 7)]
    assert (Source(path).count(), Source(path).stem) == (1, "one")


def test_reading_stops_where_the_reader_does(tmp_path: Path) -> None:
    """The second half of the archive is missing: the first document is there before anybody notices."""
    path = tmp_path / "cut.jsonl.xz"
    many = b"".join(b'{"n": %d, "pad": "%s"}\n' % (n, bytes(str(n), "ascii") * 2000) for n in range(200))
    packed = lzma.compress(many)
    path.write_bytes(packed[: len(packed) // 2])
    documents = Source(path).documents()
    assert next(documents).value["n"] == 0
    with pytest.raises(CacheError) as caught:
        list(documents)
    assert caught.value.kind is Kind.BAD_TRACE
    assert "cut.jsonl.xz, line " in caught.value.message


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n": \n{"n": 3}\n')
    documents = Source(path).documents()
    assert next(documents).value == {"n": 1}
    with pytest.raises(CacheError, match=r"bad\.jsonl, line 2 is not JSON") as caught:
        next(documents)
    assert caught.value.kind is Kind.BAD_TRACE


@pytest.mark.parametrize("text", [b"\xff\xfe\x00", b"[" * 100_000, b""])
def test_a_file_that_is_not_json_is_named(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "bad.traj.json"
    path.write_bytes(text)
    with pytest.raises(CacheError, match=r"bad\.traj\.json") as caught:
        list(Source(path).documents())
    assert caught.value.kind is Kind.BAD_TRACE


def test_a_file_that_is_not_what_its_name_says(tmp_path: Path) -> None:
    path = tmp_path / "plain.jsonl.gz"
    path.write_bytes(b'{"n": 1}\n')
    with pytest.raises(CacheError, match="cannot read") as caught:
        list(Source(path).documents())
    assert caught.value.kind is Kind.BAD_TRACE


def test_a_directory_is_its_traces_in_name_order(tmp_path: Path) -> None:
    for name in ("b/2.traj.json", "a/1.traj.json", "c.jsonl.xz", "notes.txt", "config.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [str(source.path.relative_to(tmp_path)) for source in sources(tmp_path)]
    assert found == ["a/1.traj.json", "b/2.traj.json", "c.jsonl.xz"]


def test_nothing_to_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.jsonl"):
        with pytest.raises(CacheError) as caught:
            sources(path)
        assert caught.value.kind is Kind.BAD_TRACE
        assert str(path) in caught.value.message
