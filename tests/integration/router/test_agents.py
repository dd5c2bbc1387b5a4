"""Agents of a trace at a router, its store and a worker in one process, on a clock that jumps."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pytest

from agentcache.bench.agents import ARMS, RoutedArm, replay_in_lab, replay_routed
from agentcache.bench.agents_world import Setting, Told, in_one_process, played
from agentcache.errors import CacheError, Kind
from agentcache.ids import scoped, unscoped
from agentcache.replay.lab.cells import Cell, Hints, Policy
from agentcache.replay.lab.replaying import room_pages
from agentcache.replay.lab.scripts import draw_script
from agentcache.replay.lab.serving import Machine
from agentcache.replay.lab.world import Script
from agentcache.replay.paged import Workload, page
from agentcache.replay.routed.agents import Agents, Heard, Taken, name_of
from agentcache.replay.routed.loop import VirtualLoop, run_virtual
from agentcache.replay.routed.pages import in_whole_pages
from agentcache.replay.synth import synthesize
from agentcache.session_events import Happening, SessionEvent
from agentcache.types import SessionId

MACHINE = Machine(prefill=100_000.0, decode=500.0, queue=True)
LRU, ERT, _LEARNED, STATED = ARMS


@cache
def workload(kind: str = "swe-agent", sessions: int = 6) -> Workload:
    return in_whole_pages(page(synthesize(kind, sessions, 1), lambda text: text.encode()[::4]))


def condition(room: float = 2.0, live: float = 4.0) -> Cell:
    return Cell(Policy.LRU, room, live=live, machine=MACHINE)


def play(script: Script, arm: RoutedArm, room: float = 2.0) -> tuple[list[Taken], list[SessionEvent]]:
    slots = room_pages(script.workload, room)
    setting = Setting(arm.policy.value, slots, MACHINE, script.workload.page_tokens, arm.learns)
    sink = Told()

    async def main(loop: VirtualLoop) -> list[Taken]:
        async with in_one_process(script.workload, setting, loop, sink) as router:
            return await Agents(script, router, arm.states).run()

    return run_virtual(main), sink.events


def script(kind: str = "swe-agent", sessions: int = 6, seed: int = 1) -> Script:
    return draw_script(workload(kind, sessions), condition(), seed)


@pytest.mark.parametrize("arm", ARMS, ids=[arm.name for arm in ARMS])
def test_every_turn_is_taken_once_and_equal_runs_are_equal(arm: RoutedArm) -> None:
    told = script()
    taken, events = play(told, arm)
    calls = {call.key: call for session in told.workload.sessions for call in session.calls}
    assert {(one.session, one.turn): one.prompt_tokens for one in taken} == {
        key: len(call.prompt) for key, call in calls.items()
    }
    assert all(one.cached_tokens <= calls[one.session, one.turn].reusable for one in taken)
    assert (taken, events) == play(told, arm)


def test_a_next_turn_comes_its_gap_after_the_end_of_the_one_before() -> None:
    told = script("claude-code", 2)
    taken, _ = play(told, ERT, room=4.0)
    at = {(one.session, one.turn): one for one in taken}
    for session in told.workload.sessions:
        for call in session.calls[1:]:
            gap_s = told.gaps_ns[session.index][call.turn] / 1e9
            before, now = at[session.index, call.turn - 1], at[call.key]
            assert now.asked_s - before.ended_s == pytest.approx(gap_s, abs=1e-6)


def test_with_room_for_all_it_is_what_the_lab_finds() -> None:
    roomy = condition(room=20.0)
    routed = replay_routed(workload(), roomy, LRU, seed=1)
    lab = replay_in_lab(workload(), roomy, 1, Policy.LRU, Hints.NONE)
    assert (routed.prompt_pages, routed.cached_pages) == (lab.prompt_pages, lab.cached_pages)


def test_in_little_room_it_is_nearly_what_the_lab_finds() -> None:
    tight = condition(room=3.0)
    routed = replay_routed(workload(), tight, ERT, seed=1)
    lab = replay_in_lab(workload(), tight, 1, Policy.ERT, Hints.NONE)
    assert routed.hit_rate == pytest.approx(lab.hit_rate, abs=0.02)


def per_session(events: list[SessionEvent]) -> Mapping[SessionId, list[Happening]]:
    found: dict[SessionId, list[Happening]] = {}
    for event in events:
        found.setdefault(SessionId(unscoped(event.session)[1]), []).append(event.what)
    return found


def test_sessions_open_and_close_once_and_sub_agents_before_their_parents() -> None:
    told = script("claude-code", 6)
    _, events = play(told, ERT, room=4.0)
    closed = [event.session for event in events if event.what is Happening.CLOSED]
    assert len(closed) == len(set(closed)) == len(told.workload.sessions)
    assert all(said[0] is Happening.OPENED for said in per_session(events).values())
    for session in told.workload.sessions:
        if session.parent >= 0:
            child, parent = (
                scoped("default", SessionId(name_of(index))) for index in (session.index, session.parent)
            )
            assert closed.index(child) < closed.index(parent)
            opened = [event for event in events if event.what is Happening.OPENED and event.session == child]
            assert [event.parent for event in opened] == [parent]


def test_stated_waits_are_pauses_that_the_next_turn_ends() -> None:
    told = script()
    _, events = play(told, STATED)
    paused = [event for event in events if event.what is Happening.PAUSED]
    tools = sum(len(session.calls) - 1 for session in told.workload.sessions)
    assert len(paused) == tools
    assert all(event.expected_s > 0 and event.tool == "tool" for event in paused)
    for said in per_session(events).values():
        pauses = [what for what in said if what in (Happening.PAUSED, Happening.RESUMED)]
        assert pauses == [Happening.PAUSED, Happening.RESUMED] * (len(pauses) // 2)


def steady(told: Script, gap_s: float) -> Script:
    """The same with gaps that are all alike."""
    gaps_ns = [[0, *[round(gap_s * 1e9)] * (len(gaps) - 1)] for gaps in told.gaps_ns]
    return replace(told, gaps_ns=gaps_ns)


def test_learned_waits_are_told_once_a_tool_is_known() -> None:
    told = steady(script(), 8.0)
    turns = sum(len(session.calls) for session in told.workload.sessions)
    setting = Setting("ert", room_pages(told.workload, 2.0), MACHINE, 64)
    _, learned = played(told, replace(setting, learns=True), states=False)
    assert turns - 10 <= learned["hints"] <= turns
    assert learned["hints_off"] == pytest.approx(0.0, abs=0.01)
    assert "paused" not in learned
    assert played(told, setting, states=False)[1]["hints"] == 0


def test_a_request_that_is_refused_ends_the_replay() -> None:
    class Refuses:
        async def ask(self, *_: object) -> Heard:
            return Heard(503, {}, b"not now")

    async def main(_: VirtualLoop) -> None:
        await Agents(script(), Refuses()).run()

    with pytest.raises(CacheError, match="was answered 503: not now") as refused:
        run_virtual(main)
    assert refused.value.kind is Kind.UNREACHABLE
