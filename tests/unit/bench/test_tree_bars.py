"""Bars are judged by the figures of one run: met, missed and by how much, or not measured."""

import io
from typing import Any

import pytest
from rich.console import Console

from agentcache.bench.tree_bars import (
    BARS,
    FIFTH,
    FLAT,
    IN_RUST,
    OURS,
    PEER,
    PEER_WITH_SESSIONS,
    Bar,
    Where,
    judge,
    markdown,
    show,
    times_comparing,
)
from agentcache.bench.tree_rows import REFERENCED, UNREFERENCED, Row

ROUND = Bar("a round", Where("round", "FULL", 1), (FIFTH,))
MATCH = Bar("a match", Where("match", "FULL", 64, 1_000), (FIFTH, times_comparing(1.3)), either=True)
EVICT = Bar("an eviction", Where("evict_1", "FULL", 16, leaves=100_000, sessions=REFERENCED), FLAT)


def figure(op: str, core: str, best: float, **where: Any) -> Row:
    """A row of FULL, page 1, referenced, if `where` says nothing else."""
    place = {"page": 1, "tokens": None, "leaves": None, "sessions": REFERENCED} | where
    return Row(op=op, components="FULL", core=core, best_us=best, median_us=best * 2, n=5, **place)


def verdict(bar: Bar, *rows: Row) -> tuple[str, float | None]:
    (found,) = judge(rows, [bar])
    return str(found), found.allowed.limit if found.allowed else None


@pytest.mark.parametrize(("ours", "said"), [(10, "met (0.50 of it)"), (20, "met (1.00 of it)")])
def test_a_part_of_the_peer_is_met(ours: float, said: str) -> None:
    rows = figure("round", OURS, ours), figure("round", PEER, 100, sessions=UNREFERENCED)
    assert verdict(ROUND, *rows) == (said, 20)


def test_a_bar_is_missed_by_so_much() -> None:
    rows = figure("round", OURS, 30), figure("round", PEER, 100), figure("round", OURS, 1, page=64)
    assert verdict(ROUND, *rows) == ("missed (1.50 times it)", 20)


def test_without_the_peer_nothing_is_said() -> None:
    assert verdict(ROUND, figure("round", OURS, 1)) == ("not measured", None)
    assert verdict(ROUND, figure("round", PEER, 1)) == ("not measured", 0.2)


def test_of_two_conditions_the_easier_is_enough_where_the_bar_says_so() -> None:
    ours = figure("match", OURS, 12, page=64, tokens=1_000)
    floor = Row("memcmp", "-", None, 1_000, None, "-", "libc", 10, 10, 5)
    assert verdict(MATCH, ours, floor) == ("met (0.92 of it)", 13)
    assert verdict(MATCH, ours, floor, figure("match", PEER, 50, page=64, tokens=1_000))[1] == 13
    assert verdict(MATCH, ours, floor, figure("match", PEER, 100, page=64, tokens=1_000))[1] == 20


def test_of_two_conditions_both_count_elsewhere() -> None:
    ours = figure("evict_1", OURS, 2.5, page=16, leaves=100_000)
    fewer = figure("evict_1", OURS, 1, page=16, leaves=10_000)
    others = figure("evict_1", OURS, 9, page=16, leaves=100_000, sessions=UNREFERENCED)
    assert verdict(EVICT, others, ours, fewer) == ("missed (1.67 times it)", 1.5)
    assert verdict(EVICT, others, ours, figure("evict_1", OURS, 2.4, page=16, leaves=10_000))[1] == 3
    assert verdict(EVICT, others, ours) == ("not measured", None)


def test_tables_have_a_line_for_each_bar() -> None:
    cores = {OURS: 10, IN_RUST: 7, PEER: 124, PEER_WITH_SESSIONS: 1_630}
    rows = [figure("round", core, best, tokens=40_000) for core, best in cores.items()]
    text = markdown(judge(rows))
    assert len(text.splitlines()) == 2 + len(BARS)
    line = "| round, FULL, page 1 | 124 | 1,630 | 10 | 20 | 7 | 12.4 |"
    assert f"{line} 24.8: 1/5 of its 124 | met (0.40 of it) |" in text
    console = Console(width=200, record=True, file=io.StringIO())
    show(judge(rows), console)
    cells = [cell.strip() for cell in console.export_text().splitlines()[4].strip("│").split("│")]
    assert cells[:8] == ["round, FULL, page 1", "124", "1,630", "10", "20", "7", "12.4", "163"]


def test_the_bars_are_those_of_the_design() -> None:
    assert len(BARS) == 11
    assert {bar.where.op for bar in BARS} == {
        "round",
        "round_last20",
        "match",
        "evict_1",
        "close",
        "bytes_per_node",
    }
