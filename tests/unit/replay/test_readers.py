"""Opening a trace: the reader is found by looking, sessions come one at a time."""

import json
from pathlib import Path

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.formats.tau import TauBenchReader
from agentcache.replay.readers import READERS, open_trace
from agentcache.replay.trace import Call, Session
from tests.traces import GOLDEN

MESSAGES = [{"role": "user", "content": "T"}, {"role": "assistant", "content": "A"}]


def line(name: str) -> str:
    return json.dumps({"instance_id": name, "messages": MESSAGES}) + "\n"


def test_sessions_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    """The third line is broken; opening, and the first two sessions, do not read it."""
    path = tmp_path / "t.jsonl"
    path.write_text(line("one") + line("two") + "{broken\n" + line("four"))
    trace = open_trace(path)
    sessions = trace.sessions()
    assert [next(sessions).name, next(sessions).name] == ["one", "two"]
    with pytest.raises(CacheError, match=r"t\.jsonl, line 3 is not JSON"):
        next(sessions)
    assert trace.count() == 4


def test_a_directory_is_one_trace(tmp_path: Path) -> None:
    (tmp_path / "a.traj.json").write_text(line("one"))
    (tmp_path / "b.jsonl").write_text(line("two") + line("three"))
    trace = open_trace(tmp_path)
    assert [session.name for session in trace.sessions()] == ["one", "two", "three"]
    assert [session.name for session in trace.sessions()] == ["one", "two", "three"]
    assert trace.count() == 3


@pytest.mark.parametrize(("name", "text"), [("t.json", "{}"), ("t.jsonl", '{"rows": 1}\n')])
def test_a_file_that_no_reader_knows(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CacheError, match=r"it reads: .*mini-swe-agent") as caught:
        open_trace(path)
    assert caught.value.kind is Kind.BAD_TRACE


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.jsonl", ""),
        ("t.jsonl", "\n \n\n"),
        ("t.csv", ""),
        ("t.csv", "a,b\n"),
        ("t.json", " \n"),
        ("t.traj", ""),
    ],
)
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CacheError) as caught:
        open_trace(path)
    assert caught.value.kind is Kind.BAD_TRACE
    assert caught.value.message == f"{path} is empty: there is no record in it. Repair or remove it"


@pytest.mark.parametrize("name", ["weka.jsonl", "azure.csv"])
def test_a_trace_without_text_is_none_to_send(name: str) -> None:
    with pytest.raises(CacheError, match=f"{name}, line . tells no text") as caught:
        next(open_trace(GOLDEN / name).conversations())
    assert caught.value.kind is Kind.BAD_TRACE
    assert [session.name for session in open_trace(GOLDEN / "tau.json").conversations()] == ["3-1", "3-1+2"]


def test_files_of_several_formats_are_one_trace() -> None:
    """All but tau-bench's: a `.json` in a directory may be anything."""
    trace = open_trace(GOLDEN)
    assert set(trace.formats()) == {reader.format for reader in READERS} - {"tau-bench"}
    assert trace.count() == len(list(trace.sessions())) == 44


def test_readers_can_be_chosen() -> None:
    with pytest.raises(CacheError, match=r"it reads: tau-bench\)"):
        open_trace(GOLDEN / "weka.jsonl", readers=(TauBenchReader(),))


def test_a_call_may_cut_the_history() -> None:
    """What readers of other formats need: `[0, keep) of before | added`."""

    def message(text: str) -> dict[str, str]:
        return {"role": "user", "content": text}

    calls = (
        Call(0, (message("a"), message("b")), message("x")),
        Call(2, (message("c"),), message("y")),
        Call(1, (message("d"),), message("z")),
    )
    texts = [[one["content"] for one in prompt] for prompt in Session("s", calls, "here").prompts()]
    assert texts == [["a", "b"], ["a", "b", "c"], ["a", "d"]]
