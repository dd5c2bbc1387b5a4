"""What is said to a benchmark, and what is looked at before it works."""

import argparse
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from agentcache.bench import multiturn_plot, options, swebench_plot
from agentcache.bench.options import (
    add_answers,
    answer,
    chosen_by,
    natural,
    need_folder,
    need_place,
    parser_of,
    plotter,
    positive,
)
from agentcache.errors import CacheError, Kind

DRAWER = "agentcache.bench.swebench_plot:plot"


@pytest.mark.parametrize("said", ["0", "-3", "two", "1.5", "", "\N{SUPERSCRIPT TWO}"])
def test_a_count_that_is_none_is_refused_in_words(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = parser_of("test", None)
    parser.add_argument("--rounds", type=positive)
    with pytest.raises(SystemExit):
        parser.parse_args([f"--rounds={said}"])
    assert f"argument --rounds: {said!r} is not a whole number from 1 on" in capsys.readouterr().err


def test_a_count_may_be_zero_where_that_means_something() -> None:
    assert [natural("0"), natural("12"), positive("12")] == [0, 12, 12]
    with pytest.raises(argparse.ArgumentTypeError, match="from 0 on"):
        natural("-1")


@dataclass(frozen=True)
class Size:
    sessions: int = 5
    turns: int = 6
    room: float = 2.0


def test_what_was_said_takes_the_place_of_what_is_usual() -> None:
    said = argparse.Namespace(sessions=7, turns=None, engine_turns=3)
    assert chosen_by(said, Size()) == Size(sessions=7)
    assert chosen_by(said, Size(sessions=8), prefix="engine_") == Size(sessions=8, turns=3)


@pytest.mark.parametrize("name", ["result.pdf", "nowhere/result.svg", "folder.svg"])
def test_a_picture_that_cannot_be_drawn_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(CacheError) as refused:
        plotter(tmp_path / name, DRAWER)
    assert refused.value.kind is Kind.BAD_CONFIG
    assert name in refused.value.message


def test_a_picture_without_matplotlib_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(options, "find_spec", lambda _: None)
    with pytest.raises(CacheError, match=r"pip install 'agentcache\[plots\]'"):
        plotter(tmp_path / "result.svg", DRAWER)


def test_what_draws_is_found_by_name(tmp_path: Path) -> None:
    assert plotter(tmp_path / "result.svg", DRAWER).__module__ == "agentcache.bench.swebench_plot"


@pytest.mark.parametrize("text", ["", "[1]", '{"lab": {}}', "{}"])
def test_a_kept_file_that_is_no_result_is_named(tmp_path: Path, text: str) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(text)
    for draws in (multiturn_plot, swebench_plot):
        with pytest.raises(CacheError, match=r"kept\.json") as refused:
            draws.main([str(tmp_path / "out.svg"), str(kept)])
        assert refused.value.kind is Kind.BAD_REQUEST
    assert not (tmp_path / "out.svg").exists()


def test_a_folder_is_made_and_a_file_in_its_place_refused(tmp_path: Path) -> None:
    need_folder(tmp_path / "new" / "one")
    assert (tmp_path / "new" / "one").is_dir()
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CacheError, match="is no folder to write to"):
            need_folder(place)


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    need_place(tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()
    with pytest.raises(CacheError, match="is no file that can be written"):
        need_place(tmp_path)


def test_an_answer_is_one_json_object_or_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    found = {"rate": 0.5}
    shown: list[Console] = []
    answer(found, True, shown.append)
    assert (json.loads(capsys.readouterr().out), shown) == (found, [])
    answer(found, False, shown.append)
    assert [console.width for console in shown] == [options.WIDE]
    assert capsys.readouterr().out == ""


def test_only_what_draws_has_a_plot() -> None:
    for plots in (True, False):
        parser = parser_of("test", "As it is written.\n\n    a table")
        add_answers(parser, plots)
        out = io.StringIO()
        parser.print_help(out)
        assert ("--plot" in out.getvalue()) == plots
        assert "\n    a table" in out.getvalue()
