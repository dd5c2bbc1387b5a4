"""Warm beside cold: what counts as the same, which turns the medians take."""

from dataclasses import replace
from typing import Any

import pytest

from agentcache.replay.compare import Comparison, compare, median_ms
from agentcache.replay.outcome import Answer, Outcome, Refused
from agentcache.replay.report import Asked, Report, hit_rate, refusal_lines
from agentcache.replay.run import Played
from agentcache.replay.trace import Link, Origin, Session

MS = 1_000_000
COLD = Answer("a", (1, 2), "d1", 100, 0, 2, 50 * MS)
WARM = Answer("a", (1, 2), "d1", 100, 64, 2, 5 * MS)
TOO_LONG = Refused(400, "context_length_exceeded", "too long")
BROKEN = Refused(500, "500", "oops")


def played(*turns: Outcome, name: str = "s", in_trace: int = 9) -> Played:
    return Played(name, f"run-{name}", turns, in_trace)


def test_medians_are_over_second_and_later_turns_answered_in_both() -> None:
    times = (900, 10, 20, 60)
    warm = played(*(replace(WARM, ttft_ns=ms * MS) for ms in times), WARM)
    cold = played(*(replace(COLD, ttft_ns=ms * 10 * MS) for ms in times), TOO_LONG)
    comparison = compare([warm], [cold])
    assert [pair.turn for pair in comparison.pairs] == [1, 2, 3, 4]
    assert (comparison.ttft_warm_ms, comparison.ttft_cold_ms) == (20.0, 200.0)
    assert comparison.identical


def test_median_of_nothing_is_zero() -> None:
    assert median_ms([]) == 0.0
    assert median_ms([1_250_000, 2_000_000]) == 1.6


@pytest.mark.parametrize(
    ("changed", "logits", "outputs"),
    [
        ({"first_logits": "d2"}, 1, 0),
        ({"tokens": (1, 3)}, 0, 1),
        ({"text": "b"}, 0, 1),
        ({"tokens": (1,)}, 0, 1),
        ({"first_logits": ""}, 1, 0),
    ],
)
def test_a_difference_is_seen(changed: dict[str, Any], logits: int, outputs: int) -> None:
    comparison = compare([played(WARM, replace(WARM, **changed))], [played(COLD, COLD)])
    assert (len(comparison.logits_differ), len(comparison.outputs_differ)) == (logits, outputs)
    assert not comparison.identical
    assert all(pair.turn == 2 for pair in comparison.logits_differ + comparison.outputs_differ)


def test_no_digest_on_either_side_proves_nothing() -> None:
    silent = compare([played(replace(WARM, first_logits=""))], [played(replace(COLD, first_logits=""))])
    assert silent.logits_differ
    assert not silent.identical
    assert not Comparison(()).identical


def test_report_counts_answers_skips_and_failures() -> None:
    one = played(COLD, WARM, TOO_LONG, TOO_LONG, name="one", in_trace=4)
    two = played(COLD, BROKEN, name="two", in_trace=3)
    report = Report("m", [one, two], in_file=7)
    assert (report.skipped, report.failed, report.complete) == (2, 1, False)
    said = report.as_json()
    assert said["totals"] == {
        "name": "total",
        "sessions": 2,
        "turns": 3,
        "turns_in_trace": 7,
        "skipped": 2,
        "failed": 1,
        "prompt_tokens": 300,
        "cached_tokens": 64,
        "completion_tokens": 6,
        "hit_rate": 0.2133,
        "ttft_first_turn_ms": 50.0,
        "ttft_later_turns_ms": 5.0,
    }
    assert said["sessions_in_file"] == 7
    assert [refused["turn"] for refused in said["sessions"][0]["refused"]] == [3, 4]
    assert said["sessions"][1]["refused"] == [{"turn": 2, "skipped": False, "code": "500", "message": "oops"}]


def test_refusals_are_one_line_for_each_reason() -> None:
    one = played(COLD, TOO_LONG, BROKEN, TOO_LONG, name="one")
    assert refusal_lines(one) == [
        "skipped: one, 2 turns from turn 2 on: too long",
        "failed: one, turn 3: oops",
    ]


def test_hit_rate_of_nothing_is_zero() -> None:
    assert hit_rate([]) == 0.0


@pytest.mark.parametrize(
    ("changed", "one_at_a_time", "several_at_once"),
    [({}, False, False), ({"first_logits": "d2"}, True, True), ({"tokens": (7,)}, True, False)],
)
def test_a_changed_answer_fails_the_run(
    changed: dict[str, Any], one_at_a_time: bool, several_at_once: bool
) -> None:
    """Batching may round: a later token that differs fails a run only if nothing else was running."""
    warm, cold = [played(WARM)], [played(replace(COLD, **changed))]
    for strict, differs in ((True, one_at_a_time), (False, several_at_once)):
        report = Report("m", warm, 1, compare(warm, cold), strict_tokens=strict)
        assert report.differs is differs
        assert report.complete is not differs


def test_a_server_without_digests_is_compared_by_its_text() -> None:
    warm = [played(replace(WARM, first_logits="", tokens=()))]
    same = [played(replace(COLD, first_logits="", tokens=()))]
    other = [played(replace(COLD, first_logits="", tokens=(), text="b"))]
    assert Report("m", warm, 1, compare(warm, same), strict_tokens=True).complete
    assert Report("m", warm, 1, compare(warm, other), strict_tokens=True).differs


def test_sub_agents_run_beside_their_parents_whatever_the_concurrency() -> None:
    asked = Asked()
    asked.add(Session("one", (), "here"), 3)
    assert (asked.turns, asked.one_by_one(1), asked.one_by_one(2)) == (3, True, False)
    asked.add(Session("child", (), "here", origin=Origin("one", Link.SPAWN)), 4)
    assert (asked.turns, asked.one_by_one(1)) == (7, False)
