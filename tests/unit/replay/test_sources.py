"""Trace files: packed or not, one document or one a line, read no further than asked."""

import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from agentcache.errors import CacheError, Kind
from agentcache.replay.sources import Source, sources

LINES = b'{"n": 1}\n\n  \n{"n": 2}\n{"n": 3}\n'
Pack = Callable[[bytes], bytes]


def tarred(**members: bytes) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(name.replace("__", "/").replace("_", "."))
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return whole.getvalue()


def frames(text: bytes) -> bytes:
    """Two frames, as of two files put together; the first is empty."""
    return zstandard.compress(b"") + zstandard.compress(text)


def values(source: Source) -> list[tuple[int, int]]:
    return [(document.line, document.value["n"]) for document in source.documents()]


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("t.jsonl", bytes),
        ("t.jsonl.xz", lzma.compress),
        ("t.jsonl.gz", gzip.compress),
        ("t.jsonl.zst", zstandard.compress),
        ("t.jsonl.zst", frames),
    ],
)
def test_lines_are_documents_whatever_packs_them(tmp_path: Path, name: str, pack: Pack) -> None:
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


@pytest.mark.parametrize(
    ("ending", "pack"), [("xz", lzma.compress), ("gz", gzip.compress), ("zst", zstandard.compress)]
)
def test_reading_stops_where_the_reader_does(tmp_path: Path, ending: str, pack: Pack) -> None:
    """The second half of the file is missing: the first document is there before anybody notices."""
    path = tmp_path / f"cut.jsonl.{ending}"
    many = b"".join(
        b'{"n": %d, "pad": "%s"}\n' % (n, bytes(str(n * 7919), "ascii") * 2000) for n in range(200)
    )
    packed = pack(many)
    path.write_bytes(packed[: len(packed) // 2])
    documents = Source(path).documents()
    assert next(documents).value["n"] == 0
    with pytest.raises(CacheError) as caught:
        list(documents)
    assert caught.value.kind is Kind.BAD_TRACE
    assert f"cut.jsonl.{ending}, line " in caught.value.message


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


@pytest.mark.parametrize("name", ["plain.jsonl.gz", "plain.jsonl.xz", "plain.jsonl.zst"])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b'{"n": 1}\n')
    with pytest.raises(CacheError, match="cannot read") as caught:
        list(Source(path).documents())
    assert caught.value.kind is Kind.BAD_TRACE


@pytest.mark.parametrize(
    ("ending", "pack"), [("xz", lzma.compress), ("gz", gzip.compress), ("zst", zstandard.compress)]
)
@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.csv", "t.traj", "t.tar"])
def test_what_is_packed_and_not_named_so(tmp_path: Path, name: str, ending: str, pack: Pack) -> None:
    path = tmp_path / name
    path.write_bytes(pack(LINES))
    with pytest.raises(CacheError) as caught:
        list(sources(path)[0].documents())
    assert caught.value.kind is Kind.BAD_TRACE
    assert caught.value.message == f"{path} is packed, and is not named so: rename it to {name}.{ending}"


def test_what_is_packed_in_an_archive_and_not_named_so(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(tarred(x_jsonl=gzip.compress(LINES)))
    (source,) = sources(path)
    with pytest.raises(CacheError, match=r"a\.tar/x\.jsonl is packed, .* rename it to x\.jsonl\.gz$"):
        source.count()


def test_a_directory_is_its_traces_in_name_order(tmp_path: Path) -> None:
    for name in ("b/2.traj.json", "a/1.traj.json", "c.jsonl.xz", "notes.txt", "config.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [str(source.path.relative_to(tmp_path)) for source in sources(tmp_path)]
    assert found == ["a/1.traj.json", "b/2.traj.json", "c.jsonl.xz"]


EVENTS = ("c1/events/10.json", "c1/events/9.json", "c1/event_cache/0-5.json", "c2/event_000000_3f.json")


def test_numbered_files_of_events_are_one_trace(tmp_path: Path) -> None:
    """In the order of their numbers, a page before what begins with it. What is not numbered is none of them."""
    beside = ("c1/base_state.json", "c1/events/notes.json", "c2/meta.json", "c3/1.json", "c2/a.jsonl")
    for name in (*EVENTS, "c1/events/2.traj.json", *beside):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b'{"n": 1}')
    found = {str(one.path.relative_to(tmp_path)): one for one in sources(tmp_path)}
    assert list(found) == ["c1", "c1/events/2.traj.json", "c2", "c2/a.jsonl"]
    parts = [str(part.relative_to(tmp_path)) for part in found["c1"].parts]
    assert parts == ["c1/event_cache/0-5.json", "c1/events/9.json", "c1/events/10.json"]
    assert (found["c1"].stem, found["c1"].count(), values(found["c1"])) == ("c1", 3, [(0, 1)] * 3)
    (alone,) = sources(tmp_path / "c1" / "event_cache")
    assert (alone.path, alone.count()) == (tmp_path / "c1", 1)


def test_events_in_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    path.write_bytes(tarred(**{name.replace("/", "__"): b'{"n": 1}' for name in EVENTS[:2]}))
    for asked in (path, path / "c1", path / "c1" / "events"):
        (source,) = sources(asked)
        assert (source.path, [part.name for part in source.parts]) == (path / "c1", ["9.json", "10.json"])
        assert values(source) == [(0, 1), (0, 1)]


def test_nothing_to_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.jsonl"):
        with pytest.raises(CacheError) as caught:
            sources(path)
        assert caught.value.kind is Kind.BAD_TRACE
        assert str(path) in caught.value.message


def test_a_table_is_a_document_a_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.xz"
    path.write_bytes(lzma.compress(b'\xef\xbb\xbfn,said\r\n1,"a,b"\r\n\r\n2,caf\xc3\xa9\r\n'))
    found = [(document.line, document.value) for document in Source(path).documents()]
    assert found == [(2, {"n": "1", "said": "a,b"}), (4, {"n": "2", "said": "café"})]
    assert (Source(path).count(), Source(path).stem) == (2, "t")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"a,b\n1,2\n1\n", "line 3 is not CSV: 1 columns where the first line names 2"),
        (b'a,b\n"1,2\n', "line 2 is not CSV: unexpected end of data"),
        (b"a,b\n1,\xff\n", "line 2 is not CSV: 'utf-8' codec"),
    ],
)
def test_a_broken_table_is_named(tmp_path: Path, text: bytes, complaint: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text)
    with pytest.raises(CacheError, match=complaint) as caught:
        list(Source(path).documents())
    assert caught.value.kind is Kind.BAD_TRACE
    assert caught.value.message.startswith(f"{path}, line ")


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.tar", bytes),
        ("a.tar.xz", lzma.compress),
        ("a.txz", lzma.compress),
        ("a.tar.gz", gzip.compress),
        ("a.tgz", gzip.compress),
        ("a.tar.zst", zstandard.compress),
    ],
)
def test_an_archive_is_the_traces_in_it(tmp_path: Path, name: str, pack: Pack) -> None:
    """Members are files of a directory: sorted, packed or not, and each can be named alone."""
    path = tmp_path / name
    path.write_bytes(
        pack(tarred(b_jsonl_gz=gzip.compress(LINES), b__c_jsonl=LINES, README_md=b"#", b__d_json=b'{"n": 9}'))
    )
    assert [source.path for source in sources(path)] == [path / "b.jsonl.gz", path / "b" / "c.jsonl"]
    assert [values(source) for source in sources(path)] == [[(1, 1), (4, 2), (5, 3)]] * 2
    assert [source.path for source in sources(tmp_path)] == [path / "b.jsonl.gz", path / "b" / "c.jsonl"]
    assert [source.path.name for source in sources(path / "b")] == ["c.jsonl"]
    (alone,) = sources(path / "b" / "d.json")
    assert values(alone) == [(0, 9)]


def test_a_member_of_an_archive_is_named_where_it_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.xz"
    path.write_bytes(lzma.compress(tarred(one_jsonl=b'{"n": 1}\n{"n"\n', two_jsonl_gz=b"not packed")))
    one, two = sources(path)
    with pytest.raises(CacheError, match=r"a\.tar\.xz/one\.jsonl, line 2 is not JSON"):
        list(one.documents())
    with pytest.raises(CacheError, match=r"cannot read .*a\.tar\.xz/two\.jsonl\.gz, line 1"):
        list(two.documents())


TAR = tarred(one_jsonl=LINES, two_jsonl=LINES)


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("a.tar.xz", lzma.compress(TAR)[:-40]),
        ("a.tar.xz", b"not packed"),
        ("a.tar", TAR[: 2 * tarfile.BLOCKSIZE]),
        ("a.tar", TAR[: 3 * tarfile.BLOCKSIZE - 100]),
        ("a.tar", b""),
        ("a.tar", b"x" * 2048),
        ("a.tar", b"x" * 1024 + bytes(1024)),
    ],
)
def test_a_damaged_archive_is_named(tmp_path: Path, name: str, damaged: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(damaged)
    with pytest.raises(CacheError, match=r"cannot read .*a\.tar") as caught:
        sources(path)
    assert caught.value.kind is Kind.BAD_TRACE


def test_an_archive_without_traces(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(tarred(README_md=b"#")))
    with pytest.raises(CacheError, match=r"no trace below .*a\.tar\.gz"):
        sources(path)
    with pytest.raises(CacheError, match=r"there is no trace at .*absent\.jsonl"):
        sources(path / "absent.jsonl")


def test_a_file_comes_before_those_in_the_directory_of_its_name(tmp_path: Path) -> None:
    for name in ("s/below/agent-1.jsonl", "s.jsonl", "r.jsonl", "t.traj", "u.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    found = [str(source.path.relative_to(tmp_path)) for source in sources(tmp_path)]
    assert found == ["r.jsonl", "s.jsonl", "s/below/agent-1.jsonl", "t.traj", "u.csv"]


@pytest.mark.parametrize("half", [rb"\ud83d", rb"\uDC00", b"\xed\xa0\xbd"])
def test_half_a_surrogate_pair_becomes_a_replacement_character(tmp_path: Path, half: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"a%s": ["caf%s e", {"b": "\\ud83d\\ude00"}, 1, null]}\n' % (half, half))
    (document,) = Source(path).documents()
    assert document.value == {"a\ufffd": ["caf\ufffd e", {"b": "\U0001f600"}, 1, None]}
