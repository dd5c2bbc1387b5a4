"""When the demo fails, and that it says why: every fault is provoked by a result made for it."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from agentcache.replay.demo_result import DemoResult, Size
from agentcache.replay.outcome import Answer, Outcome, Refused
from agentcache.replay.passes import Identity, Together
from agentcache.replay.references import References
from agentcache.replay.run import Played

COLD = Answer("a", (1, 2), "d1", 1000, 0, 2, 800_000_000)
WARM = Answer("a", (1, 2), "d1", 1000, 900, 2, 40_000_000)
HELD = References(frozenset({"run-s"}), 1, 7, 0)
SIZE = Size("t.jsonl", 1, 4, 2, 12, 16)
NOT_FIT = Refused(400, "over_pool", "needs more pages than there are")


def result(
    warm: tuple[Outcome, ...] = (WARM, WARM),
    together: tuple[Outcome, ...] = (WARM, WARM),
    left: tuple[int, int] = (0, 0),
    held: References = HELD,
) -> DemoResult:
    cold = Played("s", "", (COLD, COLD), 12)
    identity = Identity([cold], [replace(cold, turns=warm)], left[0])
    return DemoResult("m", SIZE, identity, Together([replace(cold, turns=together)], held, left[1]), 61.4)


def shown(found: DemoResult) -> str:
    console = Console(file=io.StringIO(), width=80)
    found.show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_good_demo() -> None:
    found = result()
    assert found.faults() == []
    said = found.as_json()
    assert (said["prompt_tokens"], said["cached_tokens"], said["hit_rate"]) == (2000, 1800, 0.9)
    assert (said["ttft_cold_ms"], said["ttft_warm_ms"]) == (800.0, 40.0)
    assert (said["turns"], said["outputs_identical"], said["open_references_after_close"]) == (2, True, 0)
    text = shown(found)
    assert "Failed" not in text
    assert "90% of the prompt tokens" in text
    assert "20.0 times sooner (40 ms instead of 800 ms" in text


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (result(warm=(WARM, replace(WARM, first_logits="d2"))), "the cache changed an answer"),
        (result(warm=(WARM, replace(WARM, tokens=(1, 3)))), "the cache changed an answer"),
        (result(together=(WARM, replace(WARM, first_logits="d2"))), "when all sessions ran at once"),
        (result(left=(2, 0)), "2 references left"),
        (result(left=(0, 3)), "3 references left"),
        (result(held=replace(HELD, markers=0)), "no reference was seen"),
        (result(warm=(WARM, NOT_FIT)), "1 turns were not answered"),
        (result(together=(NOT_FIT, NOT_FIT)), "2 turns were not answered"),
    ],
)
def test_a_fault_fails_the_demo_and_is_told(found: DemoResult, fault: str) -> None:
    (told,) = found.faults()
    assert fault in told
    assert f"Failed: {told}." in " ".join(shown(found).split())


def test_tokens_that_batching_rounds_are_reported_and_no_fault() -> None:
    found = result(together=(WARM, replace(WARM, tokens=(1, 3))))
    assert found.faults() == []
    assert found.as_json()["concurrent"]["greedy_tokens_identical"] == 1


def test_differing_answers_are_never_called_the_same() -> None:
    found = result(warm=(WARM, replace(WARM, tokens=(1, 3))))
    assert found.as_json()["outputs_identical"] is False
    assert found.as_json()["differences"] == ["s turn 2: tokens"]
    assert "were NOT the same" in " ".join(shown(found).split())
    assert "differs: s turn 2: tokens" in shown(found)


def test_a_turn_that_was_not_answered_is_named() -> None:
    assert "skipped: s, turn 2: needs more pages" in shown(result(warm=(WARM, NOT_FIT)))
