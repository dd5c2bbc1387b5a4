"""The options of the lab: the same words and checks for `agentcache replay` and `agentcache bench policies`."""

import os
import subprocess
import sys
from typing import Any

import click
import pytest
from click.testing import CliRunner

from agentcache import cli
from agentcache.bench.policies import main, policies
from agentcache.engine.scheduler import PrefillOrder
from agentcache.replay import flags
from agentcache.replay.lab import options, parts, scripts, selecting
from agentcache.replay.lab.cells import Hints, Policy
from agentcache.replay.sample import SAMPLE

WRONG = [
    ("--policy", "belady"),
    ("--capacity", "nan"),
    ("--capacity", "inf"),
    ("--capacity", "1e10"),
    ("--capacity", "0"),
    ("--capacity", "-3"),
    ("--host", "nan"),
    ("--external", "-1"),
    ("--window-share", "1e9"),
    ("--live", "nan"),
    ("--live", "-2"),
    ("--live", "1e-300"),
    ("--live", "1e300"),
    ("--scheduler", "random"),
    ("--hints", "all"),
    ("--parts", "swa"),
    ("--window", "1"),
    ("--window-share", "nan"),
    ("--state-tokens", "0"),
    ("--chunk", "-1"),
    ("--seeds", "0"),
    ("--seeds", "-1"),
    ("--seeds", "1000000"),
    ("--sessions", "0"),
    ("--sessions", "-3"),
    ("--sessions", "1" + 30 * "0"),
    ("--longest-tokens", "0"),
    ("--longest-h", "nan"),
    ("--longest-h", "0"),
    ("--processes", "-1"),
    ("--processes", "many"),
]


@pytest.mark.parametrize(("flag", "value"), WRONG)
def test_a_value_that_cannot_be_is_refused_in_one_line_that_names_the_flag(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    replayed = CliRunner().invoke(cli.cli, ["replay", str(SAMPLE), flag, value])
    assert (replayed.exit_code, replayed.stdout) == (2, "")
    assert main([flag, value]) == 2
    measured = capsys.readouterr()
    assert measured.out == ""
    for said in (replayed.stderr, measured.err):
        (line,) = [line for line in said.splitlines() if line.startswith("Error: ")]
        assert f"Invalid value for '{flag}'" in line


@pytest.mark.parametrize(
    "words", [["--sessions", "0"], ["--sessions", "nan"], ["--sessions", "1" + 30 * "0"], ["--seed", "-1"]]
)
def test_so_are_those_of_trace_synth(words: list[str]) -> None:
    asked = CliRunner().invoke(cli.cli, ["trace", "synth", "swe-agent", *words])
    assert (asked.exit_code, asked.stdout) == (2, "")
    assert f"Invalid value for '{words[0]}'" in asked.stderr


def test_both_commands_have_all_of_them() -> None:
    def asked(command: click.Command) -> dict[str, tuple[Any, ...]]:
        known = {option.name: option for option in command.params if isinstance(option, click.Option)}
        return {name: (known[name].opts, repr(known[name].type), known[name].multiple) for name in lab}

    lab = [names[-1].partition("/")[0].removeprefix("--").replace("-", "_") for names, _ in flags.LAB]
    assert asked(cli.replay) == asked(policies)
    beside = {"sessions", "as_json"}
    assert options.flag_names() == {*lab, *beside}


def test_what_is_copied_is_as_in_the_lab() -> None:
    assert list(flags.POLICIES) == list(Policy)
    assert list(flags.SCHEDULERS) == list(PrefillOrder)
    assert list(flags.HINTS) == list(Hints)
    usual = options.LabOptions()
    assert (flags.LONGEST_TOKENS, flags.LONGEST_H) == (selecting.LONGEST_TOKENS, selecting.LONGEST_H)
    assert usual.selection.longest_tokens == flags.LONGEST_TOKENS
    assert usual.clients.hints == flags.HINTS[0]
    assert flags.PARTS == parts.NAMES
    usual_parts = parts.Parts()
    assert flags.WINDOW == parts.ATTENTION_WINDOW
    assert usual_parts.window_share == flags.WINDOW_SHARE
    assert usual_parts.state_tokens == flags.STATE_TOKENS
    assert usual_parts.chunk == flags.CHUNK
    assert flags.USUAL["--live"].startswith(f"{scripts.LIVE:g}; {scripts.LIVE_QUEUED:g} with --queue")
    assert flags.USUAL["--capacity"].startswith("{:g} and {:g}".format(*options.ROOMS))


@pytest.mark.parametrize("command", [cli.replay, policies])
def test_help_tells_every_default(command: click.Command) -> None:
    shown = CliRunner().invoke(command, ["--help"], terminal_width=200).output
    for flag in ("--policy", "--capacity", "--seeds", *flags.USUAL):
        (line,) = [
            line for line in shown.splitlines() if line.strip().startswith(flag.replace("/", " / ") + " ")
        ]
        assert "[default: " in shown[shown.index(line) :].split("\n  --")[0]


def test_help_waits_for_nothing_of_the_lab() -> None:
    code = (
        "import sys, agentcache.cli; sys.exit(any('numpy' in name or '.lab' in name for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False).returncode == 0
