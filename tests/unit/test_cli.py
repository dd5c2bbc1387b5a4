"""The command: what goes to stdout, what to stderr, and the exit codes."""

import inspect
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pytest

from agentcache import cli
from agentcache.config import Settings
from agentcache.engine.models import BUILT_IN
from agentcache.replay import cli as replay_cli
from agentcache.worker import serve as worker_serve

Streams = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _clean_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings but those that a test gives."""
    monkeypatch.chdir(tmp_path)
    for variable in ("AGENTCACHE_CONFIG", *(f"AGENTCACHE_{name.upper()}" for name in Settings.model_fields)):
        monkeypatch.delenv(variable, raising=False)


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["agentcache", *words])
    try:
        cli.main()
    except SystemExit as exit_:
        return int(exit_.code or 0)
    return 0


def test_version_is_one_line_or_one_object(monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> None:
    assert run(monkeypatch, "version") == 0
    assert capsys.readouterr().out.startswith("agentcache 0.")
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("agentcache 0.")
    assert run(monkeypatch, "version", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out).keys() == {"version"}
    assert err == ""


def test_config_prints_every_setting_with_its_origin(
    monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    monkeypatch.setenv("AGENTCACHE_TTL_S", "60")
    assert run(monkeypatch, "config", "--port", "1", "--prompt-only") == 0
    lines = {line.split()[0]: line.split(maxsplit=2)[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines.keys() == Settings.model_fields.keys()
    assert lines["port"] == ["1", "flag --port"]
    assert lines["prompt_only"] == ["True", "flag --prompt-only"]
    assert lines["ttl_s"] == ["60.0", "env AGENTCACHE_TTL_S"]
    assert lines["host"] == ["127.0.0.1", "default"]


def test_config_as_json_is_one_object_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: Streams, tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text("port = 5\n")
    assert run(monkeypatch, "config", "--json", "--config", "other.toml") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["port"] == {"value": 5, "origin": "file other.toml"}
    assert err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("config", "--port", "x"), "port (flag --port)"),
        (("config", "--core", "fast"), "core (flag --core)"),
        (("config", "--config", "gone.toml"), "cannot read the settings file gone.toml"),
        (("config", "--prot", "1"), "No such option '--prot'"),
        (("swerve",), "No such command 'swerve'"),
    ],
)
def test_wrong_command_line_is_exit_2_with_a_reason_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: Streams, words: tuple[str, ...], said: str
) -> None:
    assert run(monkeypatch, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_help_shows_every_setting_and_its_default(monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> None:
    assert run(monkeypatch, "serve", "--help") == 0
    out = capsys.readouterr().out
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in out
        assert field.description
    assert "8100" in out
    assert "--dtype float32|bfloat16|float16" in out
    assert "--threads INTEGER" in out


def test_help_names_every_built_in_model(monkeypatch: pytest.MonkeyPatch, capsys: Streams) -> None:
    assert run(monkeypatch, "serve", "--help") == 0
    out = capsys.readouterr().out
    assert {name for name in BUILT_IN if name in out} == BUILT_IN.keys()


@pytest.mark.parametrize("command", sorted(cli.cli.commands))
def test_every_command_explains_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: Streams, command: str
) -> None:
    assert run(monkeypatch, command, "--help") == 0
    assert capsys.readouterr().out.startswith(f"Usage: agentcache {command}")


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (worker_serve, "serve", ("serve",)),
        (replay_cli, "replay_trace", ("replay", "trace.jsonl")),
        (replay_cli, "demo", ("demo",)),
    ],
)
def test_command_hands_its_function_what_it_takes_and_answers_its_code(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, words: tuple[str, ...]
) -> None:
    taken = inspect.signature(getattr(module, name))
    options = get_type_hints(replay_cli.DemoOptions)
    called: list[inspect.BoundArguments] = []

    def instead(*arguments: object, **named: object) -> int:
        called.append(taken.bind(*arguments, **named))
        return 7

    monkeypatch.setattr(module, name, instead)
    assert run(monkeypatch, *words) == 7
    (bound,) = called
    assert bound.arguments.get("options", options).keys() == options.keys()


def test_interruption_is_exit_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: object, **_options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(replay_cli, "demo", interrupted)
    assert run(monkeypatch, "demo") == 130
