"""Tables: the arms and conditions of a plan, their rows, and how they are shown."""

import io
import json
import os
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from agentcache.engine.scheduler import PrefillOrder
from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cells import Cell, Hints, Policy
from agentcache.replay.lab.parts import Parts
from agentcache.replay.lab.processes import cores
from agentcache.replay.lab.replaying import replay_cell
from agentcache.replay.lab.serving import Machine
from agentcache.replay.lab.shown import show, summary
from agentcache.replay.lab.table import ARMS, BOUND, Arm, Plan, Row, run_table
from agentcache.replay.paged import Workload, page
from agentcache.replay.synth import synthesize
from agentcache.replay.trace import Call, Facts, Gap, Origin, Session
from agentcache.waits import WaitKind

CONDITION = Cell(Policy.LRU, 3.0, live=6)


def small(sessions: int = 12) -> Workload:
    return page(synthesize("swe-agent", sessions, seed=3), encode=lambda _: [])


WORKLOAD = small()


def rows(plan: Plan, processes: int = 1) -> list[Row]:
    return list(run_table(plan, {"swe": WORKLOAD}, lambda: None, processes))


@pytest.fixture(scope="module")
def table() -> list[Row]:
    conditions = [CONDITION, replace(CONDITION, device=2.0, host=4.0)]
    return rows(Plan({"swe": conditions}, seeds=(1, 2)))


def test_the_floor_and_the_ceiling_are_in_every_table() -> None:
    plan = Plan({"swe": [CONDITION]}, arms=(Arm(Policy.ERT),), seeds=(1,))
    assert [row.arm.name for row in rows(plan)] == ["lru", "ert", "clairvoyant"]
    assert plan.replays({"swe": WORKLOAD}) == 3


def test_arms_are_named_by_what_clients_say() -> None:
    assert [arm.name for arm in ARMS] == [
        "lru",
        "session",
        "session-noclose",
        "ert",
        "ert-noclose",
        "ert+hint~",
        "ert+hint",
        "clairvoyant",
        "unbounded",
    ]
    assert Arm(Policy.ERT, supersedes=True).name == "ert+superseded"
    assert Arm(Policy.ERT, hints=Hints.EXACT, closes=False).name == "ert+hint-noclose"


def test_what_an_order_does_not_listen_to_makes_no_line_of_its_own() -> None:
    said = [Arm(policy, closes=False, hints=Hints.EXACT, supersedes=True) for policy in Policy]
    names = [arm.name for arm in Plan({}, said).all_arms]
    assert names == [
        "lru",
        "session-noclose+superseded",
        "ert+hint-noclose+superseded",
        "clairvoyant",
        "unbounded",
    ]


def test_orders_listen_to_no_more_than_that() -> None:
    said = Cell(Policy.LRU, 3.0, live=6, closes=False, hints=Hints.EXACT, supersedes=True)
    heard = {Policy.LRU: CONDITION, Policy.CLAIRVOYANT: CONDITION, Policy.UNBOUNDED: CONDITION}
    heard[Policy.SESSION] = replace(said, hints=Hints.NONE)
    for policy, condition in heard.items():
        deaf = replay_cell(WORKLOAD, replace(condition, policy=policy), 1)
        assert deaf == replay_cell(WORKLOAD, replace(said, policy=policy), 1)


def test_every_replay_is_of_all_calls(table: list[Row]) -> None:
    assert {score.calls for row in table for score in row.scores} == {WORKLOAD.calls}
    assert {score.prompt_tokens for row in table for score in row.scores} == {WORKLOAD.prompt_tokens}
    assert all(sum(score.why.values()) == score.calls for row in table for score in row.scores)


def test_lru_closes_nothing_and_the_bound_all_of_its_gap(table: list[Row]) -> None:
    for row in table:
        if row.arm.policy is Policy.LRU:
            assert row.closed.gained == 0
        if row.arm.policy is Policy.CLAIRVOYANT:
            assert row.closed.gained > 0
            assert row.closed.share is None or row.closed.share == pytest.approx(1)


def test_more_room_hits_more_and_nothing_more_than_all(table: list[Row]) -> None:
    by_arm = {(row.arm.name, row.cell.host): row for row in table}
    for arm in ("lru", "ert", "clairvoyant"):
        assert by_arm[arm, 4.0].hit_rate >= by_arm[arm, 0.0].hit_rate
        assert by_arm[arm, 4.0].device_rate <= by_arm[arm, 4.0].hit_rate
        assert by_arm[arm, 0.0].hit_rate <= by_arm["unbounded", 0.0].hit_rate


def test_processes_change_nothing() -> None:
    plan = Plan({"swe": [CONDITION]}, arms=(Arm(Policy.ERT),), seeds=(1, 2))
    assert [row.as_json() for row in rows(plan, processes=2)] == [row.as_json() for row in rows(plan)]


def test_one_core_is_one_process_and_a_replay_needs_no_two() -> None:
    assert cores() == len(os.sched_getaffinity(0))
    one = Plan({"swe": [CONDITION]}, arms=(), seeds=(1,))
    here: list[int] = []
    list(run_table(one, {"swe": WORKLOAD}, lambda: here.append(threading.get_ident()), processes=1))
    assert set(here) == {threading.get_ident()}


def test_one_process_replays_a_condition_when_its_rows_are_asked_for() -> None:
    plan = Plan({"swe": [CONDITION, replace(CONDITION, device=2.0)]}, arms=(), seeds=(1,))
    done: list[None] = []
    made = run_table(plan, {"swe": WORKLOAD}, lambda: done.append(None), processes=1)
    next(made)
    assert len(done) == 2
    assert len(list(made)) == 3
    assert len(done) == plan.replays({"swe": WORKLOAD}) == 4


def test_where_nothing_is_drawn_there_is_one_replay_and_no_error() -> None:
    told = [
        Session(
            f"s{number}",
            tuple(
                Call(
                    keep,
                    blocks=(100 * number + keep,),
                    facts=Facts(Gap(WaitKind.TOOL, 5.0 + number), 0.0, 64 * keep + 64, 5),
                )
                for keep in range(4)
            ),
            "",
            64,
            origin=Origin(start_s=2.0 * number),
        )
        for number in range(6)
    ]
    recorded = page(told, encode=lambda _: [])
    as_recorded = Plan({"rec": [Cell(Policy.LRU, 2.0, live=0)]}, arms=(Arm(Policy.ERT),), seeds=(1, 2, 3))
    assert as_recorded.replays({"rec": recorded}) == 3
    for row in run_table(as_recorded, {"rec": recorded}, lambda: None, processes=1):
        said = row.as_json()
        assert (said["seeds"], said["stderr"], said["gained_stderr"]) == (1, None, None)


def test_rows_are_what_the_command_promises(table: list[Row]) -> None:
    row = json.loads(json.dumps(table[3].as_json()))
    promised = {
        "trace", "capacity", "tiers", "scheduler", "queue", "close", "hints", "policy", "seeds", "hit_rate",
        "gap_closed", "stderr", "ttft_ms",
    }  # fmt: skip
    assert promised <= row.keys()
    assert (row["trace"], row["policy"], row["tiers"], row["close"], row["seeds"]) == (
        "swe",
        "ert",
        1,
        True,
        2,
    )
    assert all(type(row[flag]) is bool for flag in ("close", "queue", "superseded"))
    assert row["live"] == 6
    assert row["full_hits"] + sum(row["misses"].values()) == pytest.approx(WORKLOAD.calls)
    assert "nothing" not in row["misses"]


def test_prompts_too_short_for_a_page_are_no_full_hits() -> None:
    short = [Session("0", (Call(0, facts=Facts(prompt_tokens=64)),) * 2, "", origin=Origin(start_s=0.0))]
    long = [Session("1", (Call(0, blocks=(1, 2)),) * 2, "", block_tokens=64, origin=Origin(start_s=1.0))]
    paged = page([*short, *long], encode=lambda _: [])
    plan = Plan({"t": [Cell(Policy.LRU, 2.0, live=0)]}, arms=(), seeds=(1,))
    said = next(run_table(plan, {"t": paged}, lambda: None, processes=1)).as_json()
    assert (said["full_hits"], said["misses"]) == (1, {"never_stored": 1, "too_short": 2})


def test_what_has_no_room_closes_no_gap(table: list[Row]) -> None:
    unbounded = [row.as_json() for row in table if row.arm.policy is Policy.UNBOUNDED]
    assert [(row["gap_closed"], row["stderr"]) for row in unbounded] == [(None, None)] * 2


def test_queues_are_conditions_of_their_own() -> None:
    queued = replace(CONDITION, machine=Machine(queue=True, turns=PrefillOrder.LEAST_UNCACHED))
    (lru, *_) = rows(Plan({"swe": [queued]}, arms=(), seeds=(1,)))
    assert (lru.as_json()["queue"], lru.as_json()["scheduler"]) == (True, "least_uncached")


def shown_of(table: list[Row]) -> str:
    out = io.StringIO()
    show([row.as_json() for row in table], Console(file=out, width=200))
    return out.getvalue()


def test_a_table_is_shown_for_each_tier_with_a_line_for_each_arm(table: list[Row]) -> None:
    shown = shown_of(table)
    assert shown.count("swe: device, no queue, 6 sessions live") == 1
    said = "none: that gap is within noise, or the ceiling (a good order, no proof) lies below lru"
    assert said in " ".join(shown.split())
    assert shown.count("swe: device and host, no queue, 6 sessions live") == 1
    assert shown.count("│ clairvoyant ") == 2
    assert "2 + 4" in shown
    assert "2 seeds" in shown


def test_names_are_shown_as_they_are_written(table: list[Row]) -> None:
    shown = shown_of([replace(row, trace="a[red]b[/tmp]") for row in table])
    assert "a[red]b[/tmp]: device, no queue" in shown


def test_one_of_something_is_not_many() -> None:
    condition = replace(CONDITION, live=1.0)
    shown = shown_of(rows(Plan({"swe": [condition]}, arms=(), seeds=(1,))))
    assert "1 session live; 1 seed\n" in shown


def test_a_summary_has_a_line_for_each_trace_and_the_mean_over_rooms(table: list[Row]) -> None:
    json_rows = [row.as_json() for row in table]
    other = [{**row, "trace": "other", "gap_closed": None} for row in json_rows]
    two = [
        {**row, "capacity": room, "gap_closed": share}
        for row in json_rows
        if row["tiers"] == 1 and row["arm"] == "ert"
        for room, share in ((3, 0.5), (4, 0.7))
    ]
    out = io.StringIO()
    Console(file=out, width=200).print(summary([*two, *other]))
    lines = [[cell.strip() for cell in line.split("│")] for line in out.getvalue().splitlines()]
    assert [cells[1:3] for cells in lines if cells[1:2] in (["swe"], ["other"])] == [
        ["swe", "+0.60"],
        ["other", ""],
    ]


def test_a_fault_in_a_process_is_the_same_fault_here() -> None:
    as_recorded = replace(CONDITION, live=0)
    with pytest.raises(CacheError, match="how many are live") as refused:
        rows(Plan({"swe": [as_recorded]}, arms=(), seeds=(1,)), processes=2)
    assert refused.value.kind is Kind.BAD_REQUEST
    assert refused.value.facts["told"] == 0


def test_a_fault_ends_what_has_not_begun() -> None:
    conditions = [
        replace(CONDITION, live=0),
        *(replace(CONDITION, live=float(live)) for live in range(2, 30)),
    ]
    plan, done = Plan({"swe": conditions}, seeds=(1, 2)), list[None]()
    with pytest.raises(CacheError, match="how many are live"):
        list(run_table(plan, {"swe": WORKLOAD}, lambda: done.append(None), processes=2))
    assert len(done) < plan.replays({"swe": WORKLOAD}) / 4


def test_a_hybrid_model_has_no_clairvoyant_line_and_no_share_of_a_gap() -> None:
    hybrid = replace(CONDITION, parts=Parts(window=255, states=True))
    plan = Plan({"swe": [hybrid]}, arms=(Arm(Policy.ERT), BOUND), seeds=(1, 2))
    found = rows(plan)
    assert [row.arm.name for row in found] == ["lru", "ert", "unbounded"]
    assert all(row.closed.share is None for row in found)
    assert found[1].closed.gained == pytest.approx(found[1].hit_rate - found[0].hit_rate)
    told = [row.as_json() for row in found]
    assert (told[0]["parts"], told[0]["window"], told[0]["state_tokens"]) == ("full+swa+mamba", 256, 256)
    out = io.StringIO()
    show(told, Console(file=out, width=200))
    title = "swe: full+swa+mamba (windows of 256 tokens in 0.5 of its slots, a state for 256 of its tokens), device"
    assert title in out.getvalue()
