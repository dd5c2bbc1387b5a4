"""Jobs in flight: every destination slot has one owner until the job ends."""

import numpy as np
import pytest

from agentcache.controller import HybridCacheController
from agentcache.pools.slots import SlotPool
from agentcache.tiers.api import JobResult, Presence, Transfer
from agentcache.types import FULL, SWA, ComponentName, Job, Piece, PoolName, Slots, TierName

HOST_FULL, HOST_SWA = PoolName(FULL, TierName.HOST), PoolName(SWA, TierName.HOST)


class PartialTier:
    """Lands the first `pages` of each piece; none of a piece that is shorter."""

    name = TierName.HOST

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.sent: list[Transfer] = []
        self.loads = 0

    def lookup(self, component: ComponentName, hashes: tuple[bytes, ...]) -> tuple[Presence, ...]:
        return (Presence.MISS,) * len(hashes)

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


def job(source: TierName, target: TierName, full: int, swa: int) -> Job:
    return Job(7, source, target, (Piece(FULL, 0, 4 * full, slots(full)), Piece(SWA, 0, 4 * swa, slots(swa))))


def slots(count: int) -> Slots:
    return np.arange(count, dtype=np.int32)


@pytest.mark.parametrize("pages", [0, 1, 2, 3])
def test_slots_of_what_did_not_land_are_free_again(pages: int) -> None:
    pools = {HOST_FULL: SlotPool(HOST_FULL, 8), HOST_SWA: SlotPool(HOST_SWA, 8)}
    controller = HybridCacheController(PartialTier(pages), pools)
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
    controller = HybridCacheController(tier, pools)
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
    controller = HybridCacheController(tier, pools)
    controller.submit(job(TierName.HOST, TierName.DEVICE, full=3, swa=1))
    assert (tier.loads, pools[name].free_slots) == (1, 5)
    controller.poll()
    assert pools[name].free_slots == 7


def test_store_to_the_outside_takes_no_slots() -> None:
    tier = PartialTier(0)
    controller = HybridCacheController(tier, {})
    controller.submit(job(TierName.DEVICE, TierName.EXTERNAL, full=3, swa=1))
    assert [piece.slots.size for piece in tier.sent[0].targets] == [0, 0]
    assert len(controller.poll()) == 1
