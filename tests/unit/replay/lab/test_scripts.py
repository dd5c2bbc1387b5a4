"""What is drawn from a seed: starts, gaps that nobody recorded, what clients say."""

import math
from dataclasses import replace
from itertools import pairwise
from statistics import correlation, fmean, stdev

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cells import Cell, Hints, Policy
from agentcache.replay.lab.scripts import LIVE, LIVE_QUEUED, draw_script, draw_tells, seeds_for, usual_live
from agentcache.replay.lab.serving import NANOSECONDS, Machine
from agentcache.replay.paged import PAGE_TOKENS, Workload, page
from agentcache.replay.trace import Call, Facts, Gap, Origin, Session
from agentcache.waits import SHORTEST_S, WaitKind

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
    return Session(name, calls, name, PAGE_TOKENS, name, origin=Origin(parent))


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


def told(workload: Workload, hints: Hints = Hints.NONE) -> list[tuple[WaitKind, float | None]]:
    """What is told at the end of each call of the first session."""
    cell = replace(CELL, hints=hints)
    tells = draw_tells(draw_script(workload, cell, 1), cell, 1)
    return [(said.kind, said.gap_s) for said in map(tells, workload.sessions[0].calls)]


ALL_KINDS = ((WaitKind.UNKNOWN, 5.0), (WaitKind.TOOL, 30.0), (WaitKind.HUMAN, 60.0), (WaitKind.UNKNOWN, 2.0))


@pytest.mark.parametrize(
    ("finish", "kind"),
    [("tool_calls", WaitKind.TOOL), ("stop", WaitKind.HUMAN), ("length", WaitKind.UNKNOWN)],
)
def test_a_worker_knows_whom_a_session_waits_for_by_how_its_answer_ended(finish: str, kind: WaitKind) -> None:
    """Neither the wait that follows says so, nor that none follows."""
    assert told(paged(session("s", *ALL_KINDS, finish=finish))) == [(kind, None)] * len(ALL_KINDS)


def test_where_a_trace_does_not_say_how_answers_ended_it_is_the_wait_that_follows() -> None:
    """After the last call the one before it: it gives nothing away."""
    kinds = [kind for kind, _ in told(paged(session("s", *ALL_KINDS, finish="")))]
    assert kinds == [WaitKind.TOOL, WaitKind.HUMAN, WaitKind.UNKNOWN, WaitKind.UNKNOWN]
    assert told(paged(session("s", (WaitKind.TOOL, 1.0), finish=""))) == [(WaitKind.UNKNOWN, None)]


@pytest.mark.parametrize("finish", ["", "stop", "tool_calls"])
def test_hints_tell_how_long_tools_take_and_of_nothing_else(finish: str) -> None:
    """And that they are tools, where an answer says nothing of them, as of commands in its text."""
    workload = paged(session("s", *ALL_KINDS, finish=finish))
    first, *others = told(workload, Hints.EXACT)
    assert first == (WaitKind.TOOL, 30.0)
    assert others == told(workload)[1:]


def test_noisy_hints_are_off_by_their_sigma() -> None:
    cell = replace(CELL, hints=Hints.NOISY, sigma=0.7)
    tools = paged(session("t", *[(WaitKind.TOOL, 20.0)] * 800))
    tells = draw_tells(draw_script(tools, cell, 1), cell, 1)
    off = [math.log((tells(call).gap_s or 0) / 20.0) for call in tools.sessions[0].calls[:-1]]
    assert abs(fmean(off)) < 0.1
    assert 0.6 < stdev(off) < 0.8
    assert any(before != after for before, after in pairwise(off))


def test_the_noise_of_hints_says_nothing_of_gaps_that_were_drawn() -> None:
    calls = 2_000
    tools = paged(session("t", *[(WaitKind.TOOL, None)] * calls))
    cell = replace(CELL, hints=Hints.NOISY)
    script = draw_script(tools, cell, 1)
    gaps_s = [max(SHORTEST_S, gap / NANOSECONDS) for gap in script.gaps_ns[0][1:]]
    tells = draw_tells(script, cell, 1)
    off = [
        math.log((tells(call).gap_s or 0) / gap_s)
        for call, gap_s in zip(tools.sessions[0].calls, gaps_s, strict=False)
    ]
    logs = [math.log(gap_s) for gap_s in gaps_s]
    for shift in range(20):
        assert abs(correlation(off[shift:], logs[: len(logs) - shift])) < 0.12
        assert abs(correlation(logs[shift:], off[: len(off) - shift])) < 0.12


def test_sessions_may_begin_as_recorded() -> None:
    late, early = (
        replace(session(name, (WaitKind.UNKNOWN, 1.0)), origin=Origin(start_s=start))
        for name, start in (("late", 107.5), ("early", 100.0))
    )
    script = draw_script(paged(late, early), replace(CELL, live=0), 1)
    assert script.starts_ns == {0: 7.5 * NANOSECONDS, 1: 0}


def test_starts_that_were_not_recorded_must_be_drawn() -> None:
    with pytest.raises(CacheError, match="how many are live") as refused:
        draw_script(BUSY, replace(CELL, live=0), 1)
    assert refused.value.kind is Kind.BAD_REQUEST


def starting(*gaps: tuple[WaitKind, float | None]) -> Workload:
    """A session whose start is recorded, with these gaps."""
    return paged(replace(session("s", *gaps), origin=Origin(start_s=5.0)))


RECORDED, HALF_KNOWN = (
    starting((WaitKind.UNKNOWN, None), (WaitKind.TOOL, 3.0)),
    starting((WaitKind.UNKNOWN, None), (WaitKind.TOOL, None)),
)
SEEDS = range(1, 4)


@pytest.mark.parametrize(
    ("workload", "change", "seeds"),
    [
        (RECORDED, {"live": 0}, 1),
        (RECORDED, {"live": 3}, 3),
        (RECORDED, {"live": 0, "hints": Hints.EXACT}, 1),
        (RECORDED, {"live": 0, "hints": Hints.NOISY}, 3),
        (RECORDED, {"live": 0, "hints": Hints.NOISY, "policy": Policy.CLAIRVOYANT}, 1),
        (HALF_KNOWN, {"live": 0}, 3),
        (starting((WaitKind.UNKNOWN, None)), {"live": 0}, 1),
    ],
)
def test_a_replay_is_repeated_where_something_is_drawn(
    workload: Workload, change: dict[str, object], seeds: int
) -> None:
    cell = replace(CELL, **change)  # type: ignore[arg-type]
    assert len(seeds_for(workload, cell, SEEDS)) == seeds
    scripts = [draw_script(workload, cell, seed) for seed in SEEDS]
    if seeds == 1:
        assert scripts[0] == scripts[1] == scripts[2]


def test_a_childs_beginning_may_be_what_is_drawn() -> None:
    parent = replace(session("p", (WaitKind.UNKNOWN, None)), origin=Origin(start_s=1.0))
    child = session("c", (WaitKind.UNKNOWN, None), parent="p")
    assert len(seeds_for(paged(parent, child), replace(CELL, live=0), SEEDS)) == 3


def test_streams_of_single_requests_begin_as_recorded_and_others_as_many_as_usual() -> None:
    stream, agents = starting((WaitKind.UNKNOWN, None)), RECORDED
    queued = Machine(queue=True)
    assert (usual_live(stream, CELL.machine), usual_live(stream, queued)) == (0.0, 0.0)
    assert (usual_live(agents, CELL.machine), usual_live(agents, queued)) == (LIVE, LIVE_QUEUED)
    assert (usual_live(stream, queued, 7.0), usual_live(agents, queued, 0.0)) == (7.0, 0.0)
