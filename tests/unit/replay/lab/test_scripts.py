"""What is drawn from a seed: starts, gaps that nobody recorded, what clients say."""

import math
from dataclasses import replace
from itertools import pairwise
from statistics import fmean, stdev

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cells import Cell, Hints, Policy
from agentcache.replay.lab.scripts import draw_script, draw_tells
from agentcache.replay.lab.serving import NANOSECONDS, Machine
from agentcache.replay.paged import PAGE_TOKENS, Workload, page
from agentcache.replay.trace import Call, Facts, Gap, Place, Session
from agentcache.waits import WaitKind

CELL = Cell(Policy.ERT, 4, live=2, machine=Machine(decode=1.0))


def session(
    name: str, *gaps: tuple[WaitKind, float | None], finish: str = "tool_calls", parent: str = ""
) -> Session:
    calls = tuple(
        Call(
            at, blocks=(at,), facts=Facts(Gap(kind, seconds), None, (at + 1) * PAGE_TOKENS, 10, finish=finish)
        )
        for at, (kind, seconds) in enumerate(gaps)
    )
    return Session(name, calls, name, PAGE_TOKENS, name, among=Place(parent))


def paged(*sessions: Session) -> Workload:
    return page(sessions, encode=lambda _: [])


BUSY = paged(
    *(session(f"s{n}", (WaitKind.UNKNOWN, 5), (WaitKind.TOOL, 30), (WaitKind.HUMAN, 60)) for n in range(50))
)


def test_equal_seeds_are_equal_and_others_are_not() -> None:
    assert draw_script(BUSY, CELL, 1) == draw_script(BUSY, CELL, 1)
    assert draw_script(BUSY, CELL, 1).starts_ns != draw_script(BUSY, CELL, 2).starts_ns


@pytest.mark.parametrize("change", [{"policy": Policy.LRU}, {"device": 9.0}, {"hints": Hints.EXACT}])
def test_every_policy_and_room_sees_the_same_starts(change: dict[str, object]) -> None:
    assert draw_script(BUSY, replace(CELL, **change), 1) == draw_script(BUSY, CELL, 1)  # type: ignore[arg-type]


def test_as_many_sessions_live_as_were_asked_for() -> None:
    """A session lives 120 s (gaps of 90 s and 3 answers of 10 s): 50 of them, 2 at a time, take 3,000 s."""
    starts = [start / NANOSECONDS for start in draw_script(BUSY, CELL, 1).starts_ns.values()]
    assert 2_500 < max(starts) < 3_000
    assert 1_100 < fmean(starts) < 1_900


def test_a_session_begins_when_it_is_drawn_and_a_child_its_gap_later() -> None:
    workload = paged(session("p", (WaitKind.UNKNOWN, 99)), session("c", (WaitKind.UNKNOWN, 7), parent="p"))
    script = draw_script(workload, CELL, 1)
    assert script.gaps_ns == [[0], [7 * NANOSECONDS]]
    assert list(script.starts_ns) == [0]


def test_gaps_that_nobody_recorded_are_drawn_by_whom_the_session_waits_for() -> None:
    tools = paged(session("t", *[(WaitKind.TOOL, None)] * 400))
    people = paged(session("h", *[(WaitKind.HUMAN, None)] * 400))
    drawn = {
        kind: sorted(draw_script(workload, CELL, 1).gaps_ns[0][1:])[200] / NANOSECONDS
        for kind, workload in (("tool", tools), ("human", people))
    }
    assert 0.3 < drawn["tool"] < 0.8
    assert 14 < drawn["human"] < 28


def test_a_call_tells_whom_it_waits_for_and_hints_tell_how_long_tools_take() -> None:
    calls = BUSY.sessions[0].calls
    for hints, tool_s in ((Hints.NONE, None), (Hints.EXACT, 30.0)):
        cell = replace(CELL, hints=hints)
        tells = draw_tells(draw_script(BUSY, cell, 1), cell, 1)
        assert (tells(calls[0]).kind, tells(calls[0]).gap_s) == (WaitKind.TOOL, tool_s)
        assert (tells(calls[1]).kind, tells(calls[1]).gap_s) == (WaitKind.HUMAN, None)


def test_noisy_hints_are_off_by_their_sigma() -> None:
    cell = replace(CELL, hints=Hints.NOISY, sigma=0.7)
    tools = paged(session("t", *[(WaitKind.TOOL, 20.0)] * 800))
    tells = draw_tells(draw_script(tools, cell, 1), cell, 1)
    off = [math.log((tells(call).gap_s or 0) / 20.0) for call in tools.sessions[0].calls[:-1]]
    assert abs(fmean(off)) < 0.1
    assert 0.6 < stdev(off) < 0.8
    assert any(before != after for before, after in pairwise(off))


@pytest.mark.parametrize(
    ("gaps", "finish", "kind"),
    [
        ([(WaitKind.UNKNOWN, 1.0), (WaitKind.TOOL, 1.0), (WaitKind.TOOL, 1.0)], "stop", WaitKind.TOOL),
        ([(WaitKind.UNKNOWN, 1.0)], "stop", WaitKind.HUMAN),
        ([(WaitKind.UNKNOWN, 1.0)], "tool_calls", WaitKind.TOOL),
        ([(WaitKind.UNKNOWN, 1.0)], "length", WaitKind.UNKNOWN),
    ],
)
def test_the_last_call_gives_nothing_away(
    gaps: list[tuple[WaitKind, float | None]], finish: str, kind: WaitKind
) -> None:
    workload = paged(session("s", *gaps, finish=finish))
    tells = draw_tells(draw_script(workload, CELL, 1), CELL, 1)
    assert tells(workload.sessions[0].calls[-1]).kind is kind


def test_sessions_may_begin_as_recorded() -> None:
    late, early = (
        replace(session(name, (WaitKind.UNKNOWN, 1.0)), among=Place(start_s=start))
        for name, start in (("late", 107.5), ("early", 100.0))
    )
    script = draw_script(paged(late, early), replace(CELL, live=0), 1)
    assert script.starts_ns == {0: 7.5 * NANOSECONDS, 1: 0}


def test_starts_that_were_not_recorded_must_be_drawn() -> None:
    with pytest.raises(CacheError, match="how many are live") as refused:
        draw_script(BUSY, replace(CELL, live=0), 1)
    assert refused.value.kind is Kind.BAD_REQUEST
