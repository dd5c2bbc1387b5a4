"""The host tier: whole transfers, layer by layer, reported once and untouched afterwards."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch
from structlog.testing import capture_logs

from agentcache.errors import CacheError, Kind
from agentcache.pools.buffers import KvLayout, PageBuffers, SlotTensors, StateBuffers, TensorLayout
from agentcache.tiers.api import JobResult, Presence, Tier, Transfer
from agentcache.tiers.host import HostTier
from agentcache.tiers.lanes import InlineLane, Lane, ThreadLane
from agentcache.tiers.null import NoBytes
from agentcache.types import FULL, MAMBA, SWA, Job, Piece, PoolName, TierName
from tests.builders import piece, state
from tests.lanes import FailingLane, ManualLane

DEVICE, HOST = TierName.DEVICE, TierName.HOST
PAGE, SLOTS = 4, 8
CPU = torch.device("cpu")
Pools = Mapping[PoolName, SlotTensors]


def device_pools(dtype: torch.dtype = torch.bfloat16) -> dict[PoolName, SlotTensors]:
    """FULL of two layers, SWA of one, states of two tensors; random bytes in every slot."""
    layer = KvLayout(TensorLayout((2, 3), dtype), TensorLayout((2, 3), dtype))
    made = {
        FULL: PageBuffers(SLOTS, PAGE, [layer, layer], CPU).slot_tensors(),
        SWA: PageBuffers(SLOTS, PAGE, [layer], CPU).slot_tensors(),
        MAMBA: StateBuffers(
            SLOTS, [TensorLayout((5,), dtype), TensorLayout((2,), torch.float32)], CPU
        ).slot_tensors(),
    }
    dice = np.random.default_rng(5)
    for tensors in made.values():
        for slot in range(SLOTS):
            tensors.write(slot, dice.bytes(tensors.slot_bytes))
    return {PoolName(name, DEVICE): tensors for name, tensors in made.items()}


def both(pools: Pools) -> dict[PoolName, SlotTensors]:
    twins = {PoolName(name.component, HOST): pool.twin(SLOTS, pinned=False) for name, pool in pools.items()}
    return {**pools, **twins}


STORED = (piece(FULL, 0, 16, [6, 1, 2, 7]), piece(SWA, 8, 16, [0, 5]), state(16, 3))
ON_HOST = (piece(FULL, 0, 16, [0, 1, 2, 3]), piece(SWA, 8, 16, [7, 6]), state(16, 5))


def store(targets: Sequence[Piece] = ON_HOST, number: int = 1) -> Transfer:
    return Transfer(Job(number, DEVICE, HOST, STORED), tuple(targets))


def load(targets: Sequence[Piece], number: int = 2) -> Transfer:
    return Transfer(Job(number, HOST, DEVICE, ON_HOST), tuple(targets))


def payloads(pools: Pools, tier: TierName, pieces: Sequence[Piece]) -> list[bytes]:
    return [
        pools[PoolName(part.component, tier)].read(slot) for part in pieces for slot in part.slots.tolist()
    ]


def everything(pools: Pools) -> dict[PoolName, list[bytes]]:
    return {name: [pool.read(slot) for slot in range(SLOTS)] for name, pool in pools.items()}


def tier_of(lane: Lane) -> tuple[HostTier, dict[PoolName, SlotTensors]]:
    pools = both(device_pools())
    return HostTier(lane, pools), pools


def test_it_is_a_tier_that_knows_no_names() -> None:
    tier: Tier = tier_of(InlineLane())[0]
    assert tier.name is HOST
    assert tier.lookup([(FULL, b"a"), (SWA, b"b")]) == (Presence.MISS, Presence.MISS)


@pytest.mark.parametrize("lane", [InlineLane, ThreadLane])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_round_trip_keeps_every_bit(lane: type[InlineLane] | type[ThreadLane], dtype: torch.dtype) -> None:
    pools = both(device_pools(dtype))
    tier = HostTier(lane(), pools)
    sent = payloads(pools, DEVICE, STORED)
    tier.submit_store(store())
    tier.drain()
    assert tier.poll() == (JobResult(store().job, ON_HOST),)
    assert payloads(pools, HOST, ON_HOST) == sent
    back = (piece(FULL, 0, 16, [3, 5, 4, 0]), piece(SWA, 8, 16, [2, 3]), state(16, 0))
    tier.submit_load(load(back))
    tier.drain()
    assert tier.poll() == (JobResult(load(back).job, back),)
    assert payloads(pools, DEVICE, back) == sent
    tier.close()


def test_only_the_targets_are_copied_and_nothing_else_changes() -> None:
    """A leading run, one from the middle, and a piece that found no slot."""
    tier, pools = tier_of(InlineLane())
    before = everything(pools)
    some = (piece(FULL, 4, 12, [3, 0]), piece(SWA, 8, 12, [1]))
    tier.submit_store(store(some))
    (result,) = tier.poll()
    assert result.landed == some
    expected = {name: [*slots] for name, slots in before.items()}
    for target, source in ((3, 1), (0, 2)):
        expected[PoolName(FULL, HOST)][target] = before[PoolName(FULL, DEVICE)][source]
    expected[PoolName(SWA, HOST)][1] = before[PoolName(SWA, DEVICE)][0]
    assert everything(pools) == expected


def test_layers_come_one_after_the_other_over_all_pieces() -> None:
    lane = ManualLane()
    tier, pools = tier_of(lane)
    tier.submit_store(store())
    (copy,) = lane.copies
    copy.advance(3)  # the first part of each piece
    assert payloads(pools, HOST, ON_HOST) != payloads(pools, DEVICE, STORED)
    for part in STORED:
        device, host = (pools[PoolName(part.component, tier_name)] for tier_name in (DEVICE, HOST))
        (target,) = (there for there in ON_HOST if there.component == part.component)
        first = device.names[0]
        came, sent = host.tensor(first)[target.slots], device.tensor(first)[part.slots]
        assert torch.equal(came.view(torch.uint8), sent.view(torch.uint8))
        assert all(host.tensor(name).isnan().all() for name in host.names[1:])
    assert len(copy.steps) == 4 + 2 + 2


def test_nothing_is_reported_before_it_has_arrived() -> None:
    lane = ManualLane()
    tier, pools = tier_of(lane)
    tier.submit_store(store())
    (copy,) = lane.copies
    for _ in copy.steps:
        assert tier.poll() == ()
        copy.advance(1)
    (result,) = tier.poll()
    assert result.landed == ON_HOST
    assert payloads(pools, HOST, ON_HOST) == payloads(pools, DEVICE, STORED)
    assert tier.poll() == ()


@pytest.mark.parametrize("step", range(8))
def test_a_copy_that_dies_lands_nothing_and_says_so_once(step: int) -> None:
    tier, _ = tier_of(FailingLane(step))
    with capture_logs() as lines:
        tier.submit_store(store())
        assert tier.poll() == (JobResult(store().job, ()),)
        assert tier.poll() == ()
    assert [(line["event"], line["job"], line["reason"]) for line in lines] == [
        ("copy_incomplete", 1, f"OSError: step {step}")
    ]


def test_jobs_are_reported_as_they_end_in_any_order() -> None:
    lane = ManualLane()
    tier, _ = tier_of(lane)
    jobs = [store([target], number) for number, target in enumerate(ON_HOST, 1)]
    for job in jobs:
        tier.submit_store(job)
    reported: list[JobResult] = []
    for copy in reversed(lane.copies):
        copy.finish()
        reported += tier.poll()
    assert reported == [JobResult(job.job, job.targets) for job in reversed(jobs)]


def test_a_copy_that_waits_is_cancelled_and_one_that_runs_lands() -> None:
    lane = ManualLane()
    tier, pools = tier_of(lane)
    before = everything(pools)
    tier.submit_store(store(number=1))
    tier.submit_store(store(number=2))
    with capture_logs() as lines:
        tier.cancel(2)
        assert tier.poll() == (JobResult(store(number=2).job, ()),)
    assert everything(pools) == before
    assert [line["log_level"] for line in lines] == ["debug"]
    lane.copies[0].advance(1)
    tier.cancel(1)
    assert tier.poll() == ()
    lane.copies[0].finish()
    assert tier.poll() == (JobResult(store(number=1).job, ON_HOST),)
    tier.cancel(1)  # ended already
    assert tier.poll() == ()


def test_ends_are_in_order_when_a_cancel_comes_between() -> None:
    lane = ManualLane()
    tier, _ = tier_of(lane)
    for number in (1, 2, 3):
        tier.submit_store(store(number=number))
    lane.copies[2].finish()
    tier.cancel(1)
    lane.copies[1].finish()
    assert [result.job.number for result in tier.poll()] == [3, 1, 2]


def test_after_drain_one_poll_reports_everything() -> None:
    for lane in (ManualLane(), ThreadLane()):
        tier, _ = tier_of(lane)
        for number in range(1, 20):
            tier.submit_store(store(number=number))
        tier.drain()
        assert [result.job.number for result in tier.poll()] == [*range(1, 20)]
        tier.close()


@pytest.mark.parametrize("lane", [InlineLane, ThreadLane])
def test_after_close_jobs_end_with_nothing(lane: type[InlineLane] | type[ThreadLane]) -> None:
    tier, pools = tier_of(lane())
    before = everything(pools)
    tier.close()
    tier.submit_store(store())
    assert tier.poll() == (JobResult(store().job, ()),)
    assert everything(pools) == before


def test_a_transfer_without_targets_ends_with_nothing() -> None:
    tier, _ = tier_of(InlineLane())
    tier.submit_store(store(()))
    assert tier.poll() == (JobResult(store().job, ()),)


def test_accounting_pools_land_at_once() -> None:
    pools = {PoolName(name, where): NoBytes() for name in (FULL, SWA, MAMBA) for where in (DEVICE, HOST)}
    tier = HostTier(InlineLane(), pools)
    tier.submit_store(store())
    assert tier.poll() == (JobResult(store().job, ON_HOST),)


def test_states_are_told_from_pages_by_their_position() -> None:
    """Two states and two runs of a window in one job; the second of each is moved."""
    tier, pools = tier_of(InlineLane())
    job = Job(1, DEVICE, HOST, (piece(SWA, 0, 4, [1]), piece(SWA, 12, 16, [2]), state(8, 4), state(16, 5)))
    targets = (piece(SWA, 12, 16, [6]), state(16, 7))
    tier.submit_store(Transfer(job, targets))
    assert tier.poll() == (JobResult(job, targets),)
    sent = (piece(SWA, 12, 16, [2]), state(16, 5))
    assert payloads(pools, HOST, targets) == payloads(pools, DEVICE, sent)


@pytest.mark.parametrize("stray", [piece(FULL, 8, 20, [1, 2, 3]), state(12, 1), state(8, 0, FULL)], ids=str)
def test_a_target_that_is_no_part_of_its_job_is_refused(stray: Piece) -> None:
    tier, _ = tier_of(InlineLane())
    with pytest.raises(CacheError, match="no part of its job") as refused:
        tier.submit_store(store([stray]))
    assert refused.value.kind is Kind.BAD_INSERT
    assert tier.poll() == ()


def test_tiers_of_different_layouts_are_refused() -> None:
    pools = both(device_pools())
    pools[PoolName(SWA, HOST)] = pools[PoolName(FULL, HOST)]
    with pytest.raises(CacheError, match="must have one layout") as refused:
        HostTier(InlineLane(), pools)
    assert refused.value.kind is Kind.BAD_CONFIG
