"""What is in a trace, counted by hand on the golden ones."""

import io
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from agentcache import cli
from agentcache.errors import CacheError, Kind
from agentcache.replay.inspecting import NOTHING, Contents, Spread, contents, inspect, spread
from agentcache.replay.readers import READERS
from tests.traces import GOLDEN


def shown(found: Contents) -> list[str]:
    out = io.StringIO()
    found.show(Console(file=out, width=60))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_a_spread_is_told_by_values_that_were_there() -> None:
    assert spread([]) == NOTHING
    assert spread([7]) == Spread(1, 7, 7, 7)
    assert spread([4, 1, 3, 2]) == Spread(4, 2, 4, 4)
    assert spread(range(1, 11)) == Spread(10, 5, 9, 10)


def test_an_agent_in_blocks_with_sub_agents() -> None:
    """Four calls, of which three go on or not, and two and one of sub-agents."""
    found = contents(GOLDEN / "weka.jsonl").as_json()
    assert found.pop("path").endswith("weka.jsonl")
    assert found == {
        "formats": ["Weka kv-cache-tester (AgentX)"],
        "sessions": 3,
        "sub_agents": {"spawned": 2, "forked": 0},
        "groups": 0,
        "sessions_with_hidden_prefix": 2,
        "calls": 7,
        "calls_per_session": {"count": 3, "p50": 2, "p90": 4, "max": 4},
        "prompt_tokens": {"count": 7, "p50": 12, "p90": 25, "max": 25, "estimated": 0},
        "output_tokens": {"count": 7, "p50": 2, "p90": 100, "max": 100},
        "extending_share": 0.75,
        "waits_s": {
            "tool": {"count": 2, "recorded": 2, "measured": 2, "p50": 1.0, "p90": 2.5, "max": 2.5},
            "human": {"count": 1, "recorded": 1, "measured": 1, "p50": 94.0, "p90": 94.0, "max": 94.0},
            "unknown": {"count": 1, "recorded": 1, "measured": 0, "p50": 2.05, "p90": 2.05, "max": 2.05},
        },
    }


def test_what_is_not_recorded_is_estimated_and_said_so() -> None:
    """A flat prompt that begins with the one before it goes on from it."""
    found = contents(GOLDEN / "lmcache.jsonl")
    assert (found.extending, found.later, found.estimated) == (1, 2, 4)
    assert sorted(found.prompt_tokens) == [1, 1, 2, 2]
    assert shown(found)[-4:] == [
        "2 sessions; 4 calls.",
        "50.0% of the later calls go on from all of the prompt before them.",
        "Prompt tokens of 4 calls are estimated: 4 characters each.",
        "Of 2 waits 0 are not recorded, 2 only together with an answer.",
    ]


def test_a_table_for_people() -> None:
    lines = shown(contents(GOLDEN / "tau.json"))
    assert lines[0].endswith("tau.json: tau-bench")
    assert "│ calls a session │ 2 │ 1 │ 3 │ 3 │" in lines
    assert "│ waits (human), s │ 1 │ │ │ │" in lines
    assert "2 sessions, of 1 tasks; 4 calls." in lines
    assert "Of 2 waits 2 are not recorded, 0 only together with an answer." in lines


def test_sub_agents_and_forks_are_counted() -> None:
    found = contents(GOLDEN / "claude")
    assert found.as_json()["sub_agents"] == {"spawned": 1, "forked": 1}
    assert "3 sessions, 2 of them sub-agents; 7 calls." in shown(found)


def test_the_command_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(GOLDEN / "mooncake.jsonl", sessions=2, as_json=True) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["sessions"], json.loads(out)["extending_share"], err) == (2, 0.0, "")
    assert inspect(GOLDEN / "mooncake.jsonl", sessions=None, as_json=False) == 0
    assert "6 sessions; 6 calls." in capsys.readouterr().out


def test_a_path_that_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(CacheError) as caught:
        contents(tmp_path)
    assert caught.value.kind is Kind.BAD_TRACE


def command(*words: str) -> str:
    answer = CliRunner().invoke(cli.cli, ["trace", *words])
    assert answer.exit_code == 0
    return answer.output


def test_the_command_line_knows_every_format() -> None:
    shown_formats = command("formats").splitlines()
    assert len(shown_formats) == len(READERS)
    for reader, line in zip(READERS, shown_formats, strict=True):
        assert line.startswith(f"{reader.format} ")
        assert line.endswith(f"  {reader.description}")
    assert json.loads(command("formats", "--json"))["formats"].keys() == {reader.format for reader in READERS}


def test_the_command_line_inspects() -> None:
    told = json.loads(command("inspect", str(GOLDEN / "tau.json"), "--sessions", "1", "--json"))
    assert told["sessions"] == 1
