"""Trace files that are written: whole or not at all, packed as they are named, of equal bytes for equal traces."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agentcache import cli
from agentcache.errors import CacheError, Kind
from agentcache.replay.readers import READERS, open_trace
from agentcache.replay.synth import SHAPES
from agentcache.replay.trace import Link, Origin, Session
from agentcache.replay.tracing import FORMS, convert, named, synth
from agentcache.replay.writing import write_lines
from tests.traces import GOLDEN


def read(path: Path) -> list[Session]:
    return [replace(session, place="") for session in open_trace(path).sessions()]


@pytest.mark.parametrize("ending", ["", ".xz", ".gz", ".zst"])
@pytest.mark.parametrize("name", ["weka.jsonl", "claude", "tau.json", "azure.csv", "agentcache.jsonl"])
def test_a_converted_trace_is_the_same_trace(tmp_path: Path, name: str, ending: str) -> None:
    out = tmp_path / f"t.jsonl{ending}"
    assert convert(GOLDEN / name, "agentcache", out, None) == 0
    assert read(out) == read(GOLDEN / name)
    assert os.listdir(tmp_path) == [out.name]


@pytest.mark.parametrize("ending", ["", ".xz", ".gz", ".zst"])
def test_equal_traces_are_equal_files(tmp_path: Path, ending: str) -> None:
    first, second = tmp_path / f"a.jsonl{ending}", tmp_path / f"b.jsonl{ending}"
    synth("claude-code", 3, 5, first)
    synth("claude-code", 3, 5, second)
    assert first.read_bytes() == second.read_bytes()
    synth("claude-code", 3, 6, second)
    assert first.read_bytes() != second.read_bytes()


def test_a_file_may_be_converted_in_place(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes((GOLDEN / "weka.jsonl").read_bytes())
    convert(path, "agentcache", path, 2)
    assert read(path) == read(GOLDEN / "weka.jsonl")[:2]


def test_what_cannot_be_converted_leaves_nothing(tmp_path: Path) -> None:
    path, out = tmp_path / "t.jsonl", tmp_path / "out.jsonl.gz"
    path.write_bytes((GOLDEN / "weka.jsonl").read_bytes() + b"{")
    out.write_bytes(b"old")
    with pytest.raises(CacheError) as caught:
        convert(path, "agentcache", out, None)
    assert caught.value.kind is Kind.BAD_TRACE
    assert (sorted(os.listdir(tmp_path)), out.read_bytes()) == (["out.jsonl.gz", "t.jsonl"], b"old")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (
            "t.json",
            "t.json would not be read as a trace: name it with .jsonl, .jsonl.xz, .jsonl.gz, .jsonl.zst",
        ),
        ("t.jsonl.zip", "t.jsonl.zip would not be read as a trace"),
        ("no/t.jsonl", "no/t.jsonl: No such file or directory"),
        ("old/t.jsonl", "old/t.jsonl: Not a directory"),
    ],
)
def test_where_nothing_can_be_written(tmp_path: Path, name: str, wrong: str) -> None:
    (tmp_path / "old").write_bytes(b"")
    with pytest.raises(CacheError, match=wrong) as caught:
        write_lines([1], tmp_path / name)
    assert caught.value.kind is Kind.BAD_REQUEST
    assert os.listdir(tmp_path) == ["old"]


def test_several_files_become_one(tmp_path: Path) -> None:
    """Names that are taken get a number, and children follow their own parent."""

    def sessions() -> Iterator[Session]:
        for _ in range(2):
            yield Session("a", (), "")
            yield Session("a/b", (), "", origin=Origin("a", Link.SPAWN, 1))
        yield Session("c", (), "", origin=Origin("a", Link.FORK, 1))

    found = [(session.name, session.origin.parent) for session in named(sessions())]
    assert found == [("a", ""), ("a/b", "a"), ("a+2", ""), ("a/b+2", "a+2"), ("c", "a+2")]
    for copy in ("1.jsonl", "2.jsonl"):
        (tmp_path / copy).write_bytes((GOLDEN / "weka.jsonl").read_bytes())
    convert(tmp_path, "agentcache", tmp_path / "out.jsonl", None)
    assert len(read(tmp_path / "out.jsonl")) == 2 * len(read(GOLDEN / "weka.jsonl"))


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(cli.cli, ["trace", *map(str, arguments)])


def test_the_commands(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl.zst"
    asked = run("synth", "swe-agent", "--sessions", 2, "--seed", 7, "--out", out)
    assert (asked.exit_code, asked.stdout, asked.stderr) == (0, "", f"{out}: 2 lines\n")
    shown = run("convert", out, "--sessions", 1)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert json.loads(shown.stdout)["name"] == "swe-agent-7-0"
    assert run("synth", "swe-agent", "--sessions", 2, "--seed", 7).stdout.startswith(shown.stdout)


def test_a_reader_that_goes_away_is_no_fault() -> None:
    """As `| head` does."""
    command = "from agentcache.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", command, "trace", "synth", "claude-code"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 1)


def test_the_command_line_knows_every_form_and_kind() -> None:
    assert list(FORMS) == list(cli.FORMS)
    assert list(SHAPES) == list(cli.KINDS)


def test_the_page_about_traces_has_every_format() -> None:
    page = (Path(__file__).parents[3] / "docs" / "traces.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| ")]
    for reader in READERS:
        known = [source.strip() for name, source in rows if name.strip().startswith(reader.format)]
        told = "documentation" if "from documentation" in reader.description else "data"
        assert known == ["this page" if reader.format == "agentcache" else told]


def test_the_page_about_traces_shows_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "traces.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run("synth", "claude-code", "--sessions", 200, "--seed", 1, "--out", "made.jsonl.zst")
    printed = run("inspect", "made.jsonl.zst").stdout.splitlines()
    assert "\n".join(f"    {line}" for line in printed) in page
