"""Jobs in flight: every destination slot has one owner until the job ends."""

from collections.abc import Sequence

import numpy as np
import pytest

from agentcache.controller import HybridCacheController, Names
from agentcache.pools.slots import SlotPool
from agentcache.tiers.api import ExternalStatus, JobResult, Keep, Presence, Transfer
from agentcache.tiers.null import NullTier
from agentcache.types import FULL, SWA, ComponentName, Job, Piece, PoolName, Slots, TierName

OUTSIDE = NullTier(TierName.EXTERNAL)
HOST_FULL, HOST_SWA = PoolName(FULL, TierName.HOST), PoolName(SWA, TierName.HOST)


class PartialTier:
    """Lands the first `pages` of each piece; none of a piece that is shorter."""

    name = TierName.HOST

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.sent: list[Transfer] = []
        self.loads = 0
        self.closed = False

    def lookup(self, wanted: Sequence[tuple[ComponentName, bytes]]) -> tuple[Presence, ...]:
        return (Presence.MISS,) * len(wanted)

    def submit_load(self, transfer: Transfer) -> None:
        self.loads += 1
        self.sent.append(transfer)

    def submit_store(self, transfer: Transfer) -> None:
        self.sent.append(transfer)

    def poll(self) -> tuple[JobResult, ...]:
        done, self.sent = self.sent, []
        return tuple(JobResult(transfer.job, self._landed(transfer)) for transfer in done)

    def _landed(self, transfer: Transfer) -> tuple[Piece, ...]:
        fit = [piece for piece in transfer.targets if piece.slots.size >= self.pages]
        return tuple(
            Piece(p.component, p.start, p.start + 4 * self.pages, p.slots[: self.pages]) for p in fit
        )

    def drain(self) -> None:
        """Never waits."""

    def cancel(self, number: int) -> None:
        """Lands what it lands."""

    def close(self) -> None:
        self.closed = True

    def retain(self, names: Sequence[str], keep: Keep) -> None:
        """Has no classes."""

    def status(self) -> ExternalStatus:
        return ExternalStatus("partial", "up")


def job(source: TierName, target: TierName, full: int, swa: int) -> Job:
    return Job(7, source, target, (Piece(FULL, 0, 4 * full, slots(full)), Piece(SWA, 0, 4 * swa, slots(swa))))


def slots(count: int) -> Slots:
    return np.arange(count, dtype=np.int32)


@pytest.mark.parametrize("pages", [0, 1, 2, 3])
def test_slots_of_what_did_not_land_are_free_again(pages: int) -> None:
    pools = {HOST_FULL: SlotPool(HOST_FULL, 8), HOST_SWA: SlotPool(HOST_SWA, 8)}
    controller = HybridCacheController(PartialTier(pages), OUTSIDE, pools)
    controller.submit(job(TierName.DEVICE, TierName.HOST, full=3, swa=2))
    assert (controller.in_flight(HOST_FULL).size, controller.in_flight(HOST_SWA).size) == (3, 2)
    (result,) = controller.poll()
    assert controller.in_flight(HOST_FULL).size == 0
    landed = {piece.component: piece.slots.tolist() for piece in result.landed}
    for name, pool in pools.items():
        assert pool.used().tolist() == sorted(landed.get(name.component, []))
    assert controller.poll() == ()


def test_piece_without_room_stays_out() -> None:
    pools = {HOST_FULL: SlotPool(HOST_FULL, 2), HOST_SWA: SlotPool(HOST_SWA, 8)}
    tier = PartialTier(2)
    controller = HybridCacheController(tier, OUTSIDE, pools)
    controller.submit(job(TierName.DEVICE, TierName.HOST, full=3, swa=2))
    assert [piece.component for piece in tier.sent[0].targets] == [SWA]
    controller.drain()
    (result,) = controller.poll()
    assert [piece.component for piece in result.landed] == [SWA]
    assert pools[HOST_FULL].free_slots == 2


def test_load_takes_slots_of_the_device() -> None:
    name = PoolName(FULL, TierName.DEVICE)
    pools = {
        name: SlotPool(name, 8),
        PoolName(SWA, TierName.DEVICE): SlotPool(PoolName(SWA, TierName.DEVICE), 8),
    }
    tier = PartialTier(1)
    controller = HybridCacheController(tier, OUTSIDE, pools)
    controller.submit(job(TierName.HOST, TierName.DEVICE, full=3, swa=1))
    assert (tier.loads, pools[name].free_slots) == (0, 8), "held until somebody has made room"
    assert controller.held(7) == {FULL: 3, SWA: 1}
    controller.start(7)
    assert controller.held(7) is None
    assert (tier.loads, pools[name].free_slots) == (1, 5)
    controller.poll()
    assert pools[name].free_slots == 7


def test_a_held_load_may_be_given_up() -> None:
    controller = HybridCacheController(PartialTier(1), OUTSIDE, {})
    controller.submit(job(TierName.HOST, TierName.DEVICE, full=3, swa=1))
    controller.cancel(7)
    assert not controller.is_out(7)
    (result,) = controller.poll()
    assert (result.job.number, result.landed) == (7, ())
    assert controller.jobs_out == 0


def test_store_to_the_outside_takes_no_slots_and_names_its_source() -> None:
    outside = PartialTier(0)
    controller = HybridCacheController(NullTier(), outside, {})
    controller.submit(job(TierName.DEVICE, TierName.EXTERNAL, full=3, swa=1), Names((b"1", b"2", b"3")))
    (sent,) = outside.sent
    assert [piece.slots.size for piece in sent.targets] == [3, 1]
    assert sent.hashes == (b"1", b"2", b"3")
    assert len(controller.poll()) == 1


def test_a_load_from_outside_is_not_the_trees() -> None:
    pools = {HOST_FULL: SlotPool(HOST_FULL, 8)}
    outside = PartialTier(1)
    controller = HybridCacheController(NullTier(), outside, pools)
    taken = pools[HOST_FULL].alloc(3)
    assert taken is not None
    number = controller.fetch((Piece(FULL, 0, 12, taken),), TierName.HOST, Names())
    assert number < 0
    assert controller.in_flight(HOST_FULL).tolist() == [0, 1, 2]
    assert controller.poll() == ()
    assert controller.in_flight(HOST_FULL).tolist() == [0], "what landed waits to be grafted"
    (result,) = controller.fetched()
    assert [piece.slots.tolist() for piece in result.landed] == [[0]]
    assert pools[HOST_FULL].used().tolist() == [0]
    assert controller.jobs_out == 0


def test_another_external_tier_takes_over_and_the_jobs_of_the_first_end() -> None:
    first, second = PartialTier(0), PartialTier(0)
    controller = HybridCacheController(NullTier(), first, {})
    controller.submit(job(TierName.DEVICE, TierName.EXTERNAL, full=3, swa=1))
    controller.replace_external(second)
    assert first.closed
    assert [result.job.number for result in controller.poll()] == [7]
    controller.submit(job(TierName.DEVICE, TierName.EXTERNAL, full=3, swa=1))
    assert len(second.sent) == 1
