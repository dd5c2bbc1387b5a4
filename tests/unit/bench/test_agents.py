"""`agentcache bench agents`: its arms, its table, and its sums."""

import json
from math import sqrt
from typing import Any

import pytest
from rich.console import Console

from agentcache.bench.agents import ARMS, Options, main
from agentcache.bench.agents_table import Found, Played, difference, rows_of, shown
from agentcache.errors import CacheError, Kind

SMALL = ["--sessions", "2", "--seeds", "1", "--live", "2", "--room", "2", "--arm", "ert"]


def found(arm: str, *hits: int, routed: bool = True) -> Found:
    return Found("t", 8.0, arm, routed, [Played(1000, hit) for hit in hits])


def table() -> list[dict[str, Any]]:
    return rows_of(
        [
            found("lru", 500, 510),
            found("ert", 520, 534),
            found("stated", 540, 542),
            found("lru in the lab", 505, 515, routed=False),
            found("ert in the lab", 525, 535, routed=False),
            found("clairvoyant", 550, 560, routed=False),
        ]
    )


def test_shares_are_of_the_gap_from_the_routers_own_lru() -> None:
    shares = {row["arm"]: row["gap_closed"] for row in table()}
    assert shares["ert"] == pytest.approx(22 / 50)
    assert shares["stated"] == pytest.approx(36 / 50)
    assert shares["ert in the lab"] == pytest.approx(20 / 45)
    assert (shares["lru"], shares["lru in the lab"], shares["clairvoyant"]) == pytest.approx((0, 0, 1))


def test_arms_are_held_against_ert_seed_by_seed() -> None:
    over = {row["arm"]: (row["over_ert"], row["over_ert_stderr"]) for row in table()}
    assert over["stated"] == pytest.approx((0.014, 0.006))
    assert over["ert"] == (0.0, 0.0)
    assert over["clairvoyant"] == (None, None)


def test_one_seed_has_no_error() -> None:
    assert difference([0.5], [0.25]).error is None
    assert difference([0.5, 0.25], [0.25, 0.25]).error == pytest.approx(0.125 * sqrt(2) / sqrt(2))


def test_the_table_names_every_arm_with_its_error() -> None:
    console = Console(width=120, record=True)
    shown(table(), console)
    text = console.export_text()
    assert "t: room 8, 2 seeds" in text
    assert "stated" in text
    assert "+0.0140 ± 0.0060" in text


def test_it_replays_what_it_makes_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [trace["name"] for trace in answer["traces"]] == ["swe-agent", "claude-code"]
    assert answer["options"] == {
        "seeds": 1,
        "rooms": [2.0],
        "live": 2.0,
        "speed": 1000.0,
        "arms": ["lru", "ert"],
    }
    arms = ["lru", "ert", "lru in the lab", "ert in the lab", "ert in the lab, exact hints", "clairvoyant"]
    assert [row["arm"] for row in answer["rows"]] == arms * 2
    assert all(row["seeds"] == 1 and 0 < row["hit_rate"] < 1 for row in answer["rows"])
    assert answer["rows"][0]["by_seed"][0]["told"]["closed"] == 2


def test_all_arms_are_replayed_unless_some_are_asked_for() -> None:
    assert tuple(Options().chosen()) == ARMS
    assert [arm.name for arm in Options(arms=("stated",)).chosen()] == ["lru", "stated"]


def test_the_machine_is_the_labs_so_many_times_faster() -> None:
    machine = Options(speed=2.0).condition(8.0).machine
    assert (machine.prefill, machine.decode, machine.queue) == (20_000.0, 100.0, True)


def test_words_it_does_not_know_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--arm", "nothing"]) == 2
    assert "'nothing' is not one of" in capsys.readouterr().err


def test_traces_of_one_name_are_refused() -> None:
    with pytest.raises(CacheError) as refused:
        main(["--trace", "a=/dev/null", "--trace", "a=/dev/null"])
    assert refused.value.kind is Kind.BAD_REQUEST
