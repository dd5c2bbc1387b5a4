"""Medians, spans and verdicts of `bench tree --ttft`, without an engine."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from agentcache.bench.tree_ttft import MODELS, QUICK, main
from agentcache.bench.tree_ttft_kept import open_book, terms_of
from agentcache.bench.tree_ttft_report import report, show
from agentcache.bench.tree_ttft_run import BASELINE, OURS, Talk, Trial, Turn
from agentcache.errors import CacheError, Kind

TALK = Talk(rounds=30, trials=3)


def trial(slow_ms: float, logits: str = "same") -> Trial:
    """The reference's residual is `slow_ms` and 4 ms more in the last 25 rounds; the native core's is 2 ms."""
    turns = [Turn(10 + slow_ms + (4 if at >= 5 else 0), 10, 64 * at, logits) for at in range(30)]
    return {BASELINE: turns, OURS: [Turn(12, 10, 64 * at, "same") for at in range(30)]}


def test_rounds_are_medians_of_trials_and_spans_are_means_of_rounds() -> None:
    result = report("tiny-full", TALK, 1, [trial(6), trial(8), trial(100)])
    assert result["rounds"][0][BASELINE] == {"total_ms": 18, "prefill_ms": 10, "residual_ms": 8}
    assert (result["rounds"][1]["prompt_tokens"], result["rounds"][1]["cached_tokens"]) == (300, 64)
    whole, late = result["spans"]
    assert [(span["first"], span["last"]) for span in (whole, late)] == [(1, 30), (6, 30)]
    assert late[BASELINE]["residual_ms"] == 12
    assert late["ratio"] == {"total_ms": pytest.approx(22 / 12, abs=1e-4), "prefill_ms": 1, "residual_ms": 6}
    assert [one["residual_ms"] for one in late["trials"]] == [5, 6, 52]
    assert whole[BASELINE]["total_ms"] == pytest.approx((5 * 18 + 25 * 22) / 30, abs=1e-4)


def test_cores_that_differ_are_counted_and_named() -> None:
    same, other = (report("tiny-full", TALK, 1, [trial(6), trial(6, logits)]) for logits in ("same", "other"))
    assert (same["differences"], other["differences"]) == (0, 30)
    assert "bit for bit" in shown(same)
    assert "DIFFER in so many rounds: {'tiny-full': 30}" in shown(other)
    assert "40.0%" in shown(same)  # 12 ms in place of 20, in the last 25 rounds
    assert "6-30" in shown(same)


def shown(result: dict[str, object]) -> str:
    out = io.StringIO()
    show([result], Console(file=out, width=150))
    return out.getvalue()


def test_the_default_is_the_conversation_that_the_cores_are_known_by() -> None:
    default = Talk()
    assert (default.rounds, default.asked, default.answered, default.page_tokens) == (200, 100, 100, 1)
    assert default.trials >= 5
    assert default.prompt_tokens(200) == 39_900
    assert MODELS == ("tiny-full", "tiny-swa", "tiny-hybrid")
    assert QUICK.rounds < default.rounds


@pytest.mark.parametrize("said", [["--rounds", "0"], ["--core", "native"]])
def test_a_wrong_word_is_refused(said: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(said)
    assert refused.value.code == 2


TERMS = terms_of(TALK, 1)


def test_kept_trials_come_back_as_they_were_held(tmp_path: Path) -> None:
    path = tmp_path / "trials.json"
    book = open_book(path, TERMS)
    assert not path.exists()
    book.add("tiny-full", trial(6))
    book.add("tiny-swa", trial(8))
    again = open_book(path, terms_of(Talk(rounds=30, trials=5), 1))
    assert again.of("tiny-full") == [trial(6)]
    assert again.of("tiny-swa") == [trial(8)]
    assert again.of("tiny-hybrid") == []
    assert [one.name for one in tmp_path.iterdir()] == ["trials.json"]


@pytest.mark.parametrize("terms", [terms_of(Talk(rounds=31), 1), terms_of(TALK, 2)])
def test_trials_of_another_conversation_are_not_mixed_in(tmp_path: Path, terms: dict[str, int]) -> None:
    open_book(tmp_path / "trials.json", TERMS).add("tiny-full", trial(6))
    with pytest.raises(CacheError, match=r"holds trials with (rounds 30|threads 1);") as refused:
        open_book(tmp_path / "trials.json", terms)
    assert refused.value.kind is Kind.BAD_CONFIG


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"terms": 1, "trials": {"a": [{"native": [{}]}]}}'])
def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trials.json"
    path.write_text(text)
    with pytest.raises(CacheError, match="holds no trials of this benchmark"):
        main(["--keep", str(path)])
    assert path.read_text() == text


def test_what_is_kept_is_shown_without_holding_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trials.json"
    book = open_book(path, terms_of(TALK, 1))
    for slow_ms in (6, 8, 100):
        book.add("tiny-full", trial(slow_ms))
    said = ["--model", "tiny-full", "--rounds", "30", "--trials", "2", "--keep", str(path)]
    assert main([*said, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result == report("tiny-full", Talk(rounds=30, trials=2), 1, [trial(6), trial(8)])
