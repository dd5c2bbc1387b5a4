"""From options to the cells and arms of a table."""

import pytest

from agentcache.engine.scheduler import PrefillOrder
from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cells import Cell, Hints, Policy
from agentcache.replay.lab.options import LabOptions, arms, conditions, usual_rooms
from agentcache.replay.lab.parts import Parts
from agentcache.replay.lab.replaying import replay_cell, room_pages
from agentcache.replay.lab.serving import Machine
from agentcache.replay.lab.table import Arm
from agentcache.replay.paged import Workload, page
from agentcache.replay.synth import synthesize
from agentcache.replay.trace import Call, Facts, Origin, Session

WORKLOAD = page(synthesize("swe-agent", 5, seed=1), encode=lambda _: [])


def stream(requests: int) -> Workload:
    """Single requests, ten seconds apart."""
    told = [
        Session(
            f"r{number}",
            (Call(0, blocks=(number % 7, number), facts=Facts(prompt_tokens=130)),),
            "",
            64,
            origin=Origin(start_s=10.0 * number),
        )
        for number in range(requests)
    ]
    return page(told, encode=lambda _: [])


def test_without_options_there_are_two_rooms_and_three_orders() -> None:
    cells = conditions(WORKLOAD, LabOptions())
    assert [(cell.device, cell.host, cell.external, cell.live) for cell in cells] == [
        (4, 0, 0, 40),
        (12, 0, 0, 40),
    ]
    assert [arm.name for arm in arms(LabOptions())] == ["lru", "session", "ert"]


def test_every_option_is_in_the_cells_and_arms() -> None:
    queue = LabOptions.of(
        capacities=(3.0,), host=2.0, external=5.0, live=7.0, queue=True, scheduler="longest_prefix"
    )
    machine = Machine(queue=True, turns=PrefillOrder.LONGEST_PREFIX)
    assert conditions(WORKLOAD, queue) == [Cell(Policy.LRU, 3.0, 2.0, 7.0, machine, external=5.0)]
    said = LabOptions.of(policies=("ert",), close=False, hints="noisy", superseded=True)
    assert arms(said) == [Arm(Policy.ERT, closes=False, hints=Hints.NOISY, supersedes=True)]


def test_the_parts_of_a_model_are_in_every_cell_and_refused_before_anything_is_read() -> None:
    said = LabOptions.of(parts="full+swa", window=65, window_share=0.25)
    assert {cell.parts for cell in conditions(WORKLOAD, said)} == {Parts(window=64, window_share=0.25)}
    assert said.told()["window"] == 65
    with pytest.raises(CacheError, match=r"add --parts full\+mamba") as refused:
        LabOptions.of(parts="full+swa", state_tokens=1024)
    assert refused.value.kind is Kind.BAD_REQUEST


def test_a_queue_has_fewer_sessions_live_and_a_stream_begins_as_recorded() -> None:
    assert conditions(WORKLOAD, LabOptions.of(queue=True))[0].live == 20
    assert {cell.live for cell in conditions(stream(9), LabOptions.of(queue=True))} == {0}


def test_the_rooms_of_a_stream_grow_with_it() -> None:
    assert list(usual_rooms(stream(9))) == [4, 12]
    assert list(usual_rooms(stream(1000))) == [10, 100]


def test_a_scheduler_without_a_queue_is_refused() -> None:
    with pytest.raises(CacheError, match="add --queue") as refused:
        LabOptions.of(scheduler="longest_prefix")
    assert refused.value.kind is Kind.BAD_REQUEST


@pytest.mark.parametrize(
    "options", [LabOptions.of(capacities=(1e-6,)), LabOptions.of(host=1e-6), LabOptions.of(external=1e-6)]
)
def test_a_room_of_less_than_a_page_is_refused(options: LabOptions) -> None:
    with pytest.raises(
        CacheError, match=r"a room of 1e-06 mean session peaks.* ask for a larger one"
    ) as refused:
        conditions(WORKLOAD, options)
    assert refused.value.kind is Kind.BAD_REQUEST


def test_a_room_for_more_than_there_is_keeps_all_of_it() -> None:
    """It is not as large in memory as it was asked for."""
    assert room_pages(WORKLOAD, 1e9) == room_pages(WORKLOAD, 1e308) < 10 * len(WORKLOAD.before)
    everything = replay_cell(WORKLOAD, Cell(Policy.UNBOUNDED, 1.0), 1)
    for order in (Policy.LRU, Policy.ERT, Policy.CLAIRVOYANT):
        assert replay_cell(WORKLOAD, Cell(order, 1e9), 1).hit_rate == everything.hit_rate
