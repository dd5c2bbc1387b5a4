"""`agentcache bench policies`: its traces, its conditions, its lines, and what it leaves behind."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from agentcache import cli
from agentcache.bench import policies_report
from agentcache.bench.policies import Bench, TraceFile, main, policies
from agentcache.errors import CacheError, Kind
from agentcache.replay.cli import replay_trace
from agentcache.replay.formats.agentcache import told
from agentcache.replay.lab.options import LabOptions
from agentcache.replay.lab.table import ARMS
from agentcache.replay.paged import Workload, page
from agentcache.replay.sample import SAMPLE
from agentcache.replay.synth import synthesize
from agentcache.replay.trace import Call, Facts, Origin, Session
from tests.traces import written

OWN = ["--trace", f"own={SAMPLE}", "--live", "2", "--processes", "1", "--seeds", "2"]
ROOMS = ["--capacity", "2", "--capacity", "3"]


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one JSON object on stdout."""
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def made() -> Workload:
    return page(synthesize("swe-agent", 5, seed=1), encode=lambda _: [])


def test_it_makes_its_table_of_a_trace_of_ones_own_and_writes_a_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "report"
    assert main([*OWN, *ROOMS, "--json", "--out", str(out)]) == 0
    answer = said(capsys)
    assert {row["trace"] for row in answer["rows"]} == {"own"}
    assert len(answer["rows"]) == 2 * len(ARMS)
    assert answer["traces"][0]["name"] == "own"
    assert (answer["options"]["capacities"], answer["options"]["live"]) == ([2.0, 3.0], 2.0)
    assert json.loads((out / "policies.json").read_text()) == answer
    report = (out / "policies.html").read_text()
    assert report.count("data:image/png;base64,") == 1
    assert "http" not in report.replace("http-equiv", "")
    assert (out / "policies-1.png").read_bytes().startswith(b"\x89PNG")
    again = tmp_path / "again"
    assert policies_report.main([str(out / "policies.json"), str(again)]) == 0
    assert {file.name: file.read_bytes() for file in again.iterdir()} == {
        file.name: file.read_bytes() for file in out.iterdir()
    }


def test_without_options_it_is_two_synthetic_traces_two_rooms_three_seeds() -> None:
    bench = Bench(LabOptions())
    assert list(bench.sessions()) == ["claude-code", "swe-agent"]
    plan = bench.plan({"claude-code": made(), "swe-agent": made()})
    assert [[cell.device for cell in cells] for cells in plan.conditions.values()] == [[4.0, 12.0]] * 2
    assert (list(plan.seeds), plan.arms) == ([1, 2, 3], ARMS)
    assert bench.told()["synthetic"] == {"claude-code": 80, "swe-agent": 150, "seed": 1}


def test_full_has_more_rooms_a_host_tier_and_every_queue() -> None:
    cells = Bench(LabOptions(), full=True).plan({"own": made()}).conditions["own"]
    plain = [cell.device for cell in cells if not cell.host and not cell.machine.queue]
    assert plain == [4.0, 6.0, 8.0, 12.0, 16.0]
    assert [(cell.device, cell.host) for cell in cells if cell.host] == [(3.0, 6.0), (6.0, 12.0)]
    queued = [(cell.machine.turns.value, cell.device, cell.live) for cell in cells if cell.machine.queue]
    orders = ("fcfs", "longest_prefix", "least_uncached")
    assert queued == [(turns, room, 20.0) for turns in orders for room in (8.0, 12.0)]


def test_full_keeps_to_the_rooms_and_sessions_that_are_asked_for() -> None:
    asked = LabOptions.of(capacities=(5.0,), live=3.0)
    cells = Bench(asked, full=True).plan({"own": made()}).conditions["own"]
    assert [cell.device for cell in cells if not cell.host and not cell.machine.queue] == [5.0]
    assert {cell.live for cell in cells} == {3.0}


def test_full_ends_with_the_mean_shares_by_trace(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--full", *OWN, "--seeds", "1", "--sessions", "2", "--policy", "session"]
    assert main(words) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "share of the gap closed, mean over rooms" in shown


def test_what_clients_say_makes_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*OWN, "--capacity", "2", "--json", "--policy", "session", "--policy", "ert", "--no-close"]
    assert main([*words, "--hints", "noisy", "--superseded"]) == 0
    arms = [row["arm"] for row in said(capsys)["rows"]]
    assert arms == ["lru", "session-noclose+superseded", "ert+hint~-noclose+superseded", "clairvoyant"]


def test_replay_finds_the_same_on_a_stream_of_requests(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    requests = [
        Session(
            f"r{number}",
            (Call(0, blocks=(number % 7, number), facts=Facts(prompt_tokens=130, output_tokens=5)),),
            "",
            64,
            origin=Origin(start_s=10.0 * number),
        )
        for number in range(60)
    ]
    path = written(tmp_path, "own.jsonl", *map(told, requests))
    assert main(["--trace", f"own.jsonl={path}", "--json", "--processes", "1"]) == 0
    measured = said(capsys)
    assert replay_trace(path, {"as_json": True, "processes": 1}) == 0
    replayed = said(capsys)
    rows = [row for row in measured["rows"] if row["arm"] in ("lru", "session", "ert", "clairvoyant")]
    assert replayed["rows"] == rows
    assert {(row["live"], row["seeds"]) for row in rows} == {(0.0, 1)}
    assert replayed["trace"] == measured["traces"][0]


@pytest.mark.parametrize(
    ("value", "name", "path"),
    [
        ("a=b.jsonl", "a", "b.jsonl"),
        ("a=/x=y/ok.jsonl", "a", "/x=y/ok.jsonl"),
        ("/x=y/ok.jsonl.xz", "ok", "/x=y/ok.jsonl.xz"),
        ("ok.jsonl", "ok", "ok.jsonl"),
    ],
)
def test_a_trace_is_named(value: str, name: str, path: str) -> None:
    asked = policies.make_context("policies", ["--trace", value]).params["traces"]
    assert asked == (TraceFile(name, Path(path)),)


@pytest.mark.parametrize("value", ["=a.jsonl", "a="])
def test_a_trace_without_a_name_or_a_path_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trace", value]) == 2
    assert f"{value!r} is not NAME=PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (
            ["--trace", "a=x.jsonl", "--trace", "a=y.jsonl"],
            "two traces are called a; give each --trace a NAME=",
        ),
        (["--trace", "a=/nope.jsonl"], "there is no trace at /nope.jsonl"),
        (["--scheduler", "fcfs"], "add --queue"),
        ([*OWN, "--capacity", "1e-9"], "is less than a page"),
    ],
)
def test_what_cannot_be_asked_is_refused(words: list[str], wrong: str) -> None:
    with pytest.raises(CacheError, match=wrong) as refused:
        main(words)
    assert refused.value.kind in (Kind.BAD_REQUEST, Kind.BAD_TRACE)


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_where_no_report_can_be_written_nothing_is_replayed(
    place: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CacheError, match="no folder to write to"):
        main([*OWN, *ROOMS, "--out", str(tmp_path / place)])
    assert capsys.readouterr() == ("", "")


def test_what_was_found_is_printed_before_it_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "policies.json").mkdir()
    with pytest.raises(CacheError, match="the report cannot be written to") as refused:
        main([*OWN, "--capacity", "2", "--seeds", "1", "--json", "--out", str(tmp_path)])
    assert refused.value.kind is Kind.BAD_REQUEST
    assert len(said(capsys)["rows"]) == len(ARMS)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (None, "is not what `agentcache bench policies --json` prints"),
        ("{", "is not what `agentcache bench policies --json` prints"),
        ("[]", "is not what `agentcache bench policies --json` prints"),
        ('{"rows": [{"trace": "a"}]}', "have no arm, capacity"),
    ],
)
def test_a_page_is_drawn_of_nothing_else(content: str | None, wrong: str, tmp_path: Path) -> None:
    file = tmp_path / "policies.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(CacheError, match=wrong) as refused:
        policies_report.main([str(file), str(tmp_path / "out")])
    assert refused.value.kind is Kind.BAD_REQUEST


def test_help_names_the_lines_of_its_table() -> None:
    shown = CliRunner().invoke(cli.cli, ["bench", "policies", "--help"])
    assert shown.exit_code == 0
    text = " ".join(shown.output.split())
    for name in ("lru", "session", "ert", "-noclose", "+hint", "+hint~", "clairvoyant", "unbounded"):
        assert name in text
    assert "with --full 4, 6, 8, 12 and 16" in text
