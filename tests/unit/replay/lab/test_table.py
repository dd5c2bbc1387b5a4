"""Tables: the arms and conditions of a plan, their rows, and how they are shown."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from agentcache.engine.scheduler import PrefillOrder
from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cells import Cell, Hints, Policy
from agentcache.replay.lab.missed import missed_table, worst
from agentcache.replay.lab.replaying import replay_calls
from agentcache.replay.lab.serving import Machine
from agentcache.replay.lab.shown import show
from agentcache.replay.lab.table import ARMS, KNOWN_ARMS, Arm, Plan, Row, run_table
from agentcache.replay.paged import Workload, page
from agentcache.replay.synth import synthesize

CONDITION = Cell(Policy.LRU, 3.0, live=6)


def small(sessions: int = 12) -> Workload:
    return page(synthesize("swe-agent", sessions, seed=1), encode=lambda _: [])


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
    assert plan.replays == 3


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
    assert all(KNOWN_ARMS[arm.name] == arm for arm in ARMS)
    assert len(KNOWN_ARMS) == len(Policy) * 2 * len(Hints) * 2
    assert Arm(Policy.ERT, supersedes=True).name == "ert+superseded"
    assert Arm(Policy.ERT, hints=Hints.EXACT, closes=False).name == "ert+hint-noclose"


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
    assert sum(row["misses"].values()) == 2 * WORKLOAD.calls


def test_queues_are_conditions_of_their_own() -> None:
    queued = replace(CONDITION, machine=Machine(queue=True, turns=PrefillOrder.LEAST_UNCACHED))
    (lru, *_) = rows(Plan({"swe": [queued]}, arms=(), seeds=(1,)))
    assert (lru.as_json()["queue"], lru.as_json()["scheduler"]) == (True, "least_uncached")


def test_a_table_is_shown_for_each_tier_with_a_line_for_each_arm(table: list[Row]) -> None:
    out = io.StringIO()
    show(table, Console(file=out, width=200))
    shown = out.getvalue()
    assert shown.count("swe: device, no queue, 6 sessions live") == 1
    assert shown.count("swe: device and host, no queue, 6 sessions live") == 1
    assert shown.count("│ clairvoyant ") == 2
    assert "2 + 4" in shown


def test_sessions_that_lost_most_come_first() -> None:
    cell = replace(CONDITION, policy=Policy.LRU)
    missed = worst(WORKLOAD, replay_calls(WORKLOAD, cell, 1), count=4)
    assert len(missed) == 4
    assert missed[0].again_tokens >= missed[-1].again_tokens > 0
    assert all(sum(one.why.values()) == one.calls for one in missed)
    out = io.StringIO()
    Console(file=out, width=200).print(missed_table(missed))
    assert missed[0].session in out.getvalue()


def test_a_fault_in_a_process_is_the_same_fault_here() -> None:
    as_recorded = replace(CONDITION, live=0)
    with pytest.raises(CacheError, match="how many are live") as refused:
        rows(Plan({"swe": [as_recorded]}, arms=(), seeds=(1,)), processes=2)
    assert refused.value.kind is Kind.BAD_REQUEST
    assert refused.value.facts["told"] == 0
