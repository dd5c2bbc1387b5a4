"""The seed's figure 3: DeepSeek-V4's two components in index spaces of their own, and five sidecars that follow them.

    tokens   page 0   page 1   page 2   page 3   page 4   page 5
    FULL       F0       F1       F2       F3       F4       F5      c4, c128, indexer follow
    SWA                                            S0       S1      two compressor states follow

The sidecars travel with every slot of their source, and the tree knows nothing of them.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from agentcache.clock import SystemClock
from agentcache.keys import page_hashes
from agentcache.pools.buffers import KvLayout, PageBuffers, SlotTensors, TensorLayout
from agentcache.pools.sidecars import SidecarPool, followers, with_sidecars
from agentcache.pools.slots import SlotPool
from agentcache.tiers.api import Transfer
from agentcache.tiers.external import StoredTier
from agentcache.tiers.host import HostTier
from agentcache.tiers.lanes import InlineLane, Lane, ThreadLane
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.tree.api import CoreConfig
from agentcache.types import (
    FULL,
    NO_SLOTS,
    SWA,
    Boundary,
    ComponentName,
    Effects,
    Free,
    Insert,
    Job,
    Piece,
    PoolName,
    TierName,
    full_spec,
    swa_spec,
)
from tests.builders import CORES, pages_of, slots_of
from tests.lanes import FailingLane

DEVICE, HOST, EXTERNAL = TierName.DEVICE, TierName.HOST, TierName.EXTERNAL
PAGE, PAGES, SLOTS = 4, 6, 12
LENGTH = PAGES * PAGE
KEY = pages_of("abcdef", PAGE)
CPU = torch.device("cpu")
BFLOAT16, FLOAT32, BYTES = torch.bfloat16, torch.float32, torch.uint8

LATENT = KvLayout(TensorLayout((1, 8), BFLOAT16), TensorLayout((1, 2), BFLOAT16))
SIDECARS = (
    SidecarPool("c4", FULL, (TensorLayout((6,), BFLOAT16),)),
    SidecarPool("c128", FULL, (TensorLayout((2,), FLOAT32),)),
    SidecarPool("indexer", FULL, (TensorLayout((3, 2), BYTES),)),
    SidecarPool("c4_state", SWA, (TensorLayout((5,), FLOAT32),)),
    SidecarPool("c128_state", SWA, (TensorLayout((7,), BFLOAT16),)),
)
STEPS = (2 + 3) + (2 + 2)
"""A step copies one part of one piece: keys, values and sidecars of FULL, and of SWA."""


class World:
    """A core, a host tier, and the pools of both tiers; does what the cache does, by hand."""

    def __init__(self, core: str, lane: Lane) -> None:
        specs = (full_spec(), swa_spec(2 * PAGE))
        self.core = CORES[core](CoreConfig(PAGE, specs, host_tier=True))
        self.now = 0
        self.dice = np.random.default_rng(3)
        following = followers(SIDECARS, [FULL, SWA])
        device = {name: self._device_bytes(name, following[name]) for name in following}
        self.bytes = {PoolName(name, DEVICE): tensors for name, tensors in device.items()}
        self.bytes |= {
            PoolName(name, HOST): tensors.twin(SLOTS, pinned=False) for name, tensors in device.items()
        }
        self.slots = {name: SlotPool(name, SLOTS) for name in self.bytes}
        self.tier = HostTier(lane, self.bytes)

    def _device_bytes(self, name: ComponentName, sidecars: tuple[SidecarPool, ...]) -> SlotTensors:
        return with_sidecars(PageBuffers(SLOTS, PAGE, [LATENT], CPU).slot_tensors(), SLOTS, sidecars)

    def tick(self) -> int:
        self.now += 1
        return self.now

    def alloc(self, component: ComponentName, tier: TierName, count: int) -> np.ndarray:
        slots = self.slots[PoolName(component, tier)].alloc(count)
        assert slots is not None
        return slots

    def compute(self) -> dict[tuple[ComponentName, int], bytes]:
        """Fill six pages of FULL and, for the tail, two of SWA, sidecars included; offer them to the tree.

        Answers the payload of each (component, page end).
        """
        full, window = self.alloc(FULL, DEVICE, PAGES)[::-1].copy(), self.alloc(SWA, DEVICE, 2)
        payloads = {}
        for name, slots, first in ((FULL, full, 0), (SWA, window, PAGES - 2)):
            pool = self.bytes[PoolName(name, DEVICE)]
            for place, slot in enumerate(slots.tolist()):
                payload = self.dice.bytes(pool.slot_bytes)
                pool.write(slot, payload)
                payloads[name, (first + place + 1) * PAGE] = payload
        tail = Piece(SWA, LENGTH - 2 * PAGE, LENGTH, window)
        inserted = self.core.insert(KEY, Insert(full, (tail,)), self.tick())
        assert inserted.kept == ()
        self.apply(inserted.effects)
        return payloads

    def apply(self, effects: Effects) -> None:
        """Free slots, and spoil their bytes: whoever still reads them is found out."""
        for effect in effects:
            assert isinstance(effect, Free)
            self.slots[effect.pool].free(effect.slots)
            for slot in effect.slots.tolist():
                self.bytes[effect.pool].write(slot, b"\xee" * self.bytes[effect.pool].slot_bytes)

    def carry(self, job: Job, submit: Callable[[Transfer], None]) -> tuple[Piece, ...]:
        """Copy a job and commit what arrived; answers what landed."""
        targets = tuple(
            replace(piece, slots=self.alloc(piece.component, job.target, piece.slots.size))
            for piece in job.pieces
        )
        submit(Transfer(job, targets))
        self.tier.drain()
        (result,) = self.tier.poll()
        for lost in targets if not result.landed else ():
            self.slots[PoolName(lost.component, job.target)].free(lost.slots)
        committed = self.core.commit(job, result.landed, self.tick())
        self.apply(committed.effects)
        return committed.landed

    def back_up(self) -> tuple[Piece, ...]:
        planned = self.core.plan_backup(self.boundary(DEVICE), DEVICE, HOST, self.tick())
        assert planned.job
        return self.carry(planned.job, self.tier.submit_store)

    def load(self) -> tuple[Piece, ...]:
        planned = self.core.plan_load(self.boundary(HOST), HOST, DEVICE, self.tick())
        assert planned.job
        landed = self.carry(planned.job, self.tier.submit_load)
        if planned.lease:
            self.core.unlock(planned.lease, None, self.tick())
        return landed

    def empty_the_device(self) -> None:
        self.apply(self.core.evict(FULL, DEVICE, PAGES, {}, self.tick()).effects)

    def boundary(self, tier: TierName) -> Boundary:
        """The deepest boundary on the device, or on any tier."""
        found = self.core.peek(KEY, LENGTH)
        return found.device if tier is DEVICE else found.any_tier

    def depths(self) -> tuple[int, int]:
        return self.boundary(DEVICE).length, self.boundary(HOST).length

    def held(self, tier: TierName) -> dict[tuple[ComponentName, int], bytes]:
        """The payload of every (component, page end) that the tree has on a tier."""
        return {
            (component, len(page.path)): self.bytes[PoolName(component, tier)].read(slot)
            for page in self.core.snapshot().pages
            for component, where, slot in page.slots
            if where is tier
        }

    def in_the_tree(self) -> Counter[tuple[str, str]]:
        pages = self.core.snapshot().pages
        return Counter((component, tier) for page in pages for component, tier, _ in page.slots)

    def check(self) -> None:
        """Every slot is free or the tree's, and no job is left."""
        self.core.check()
        owned = self.in_the_tree()
        for name, pool in self.slots.items():
            assert pool.size - pool.free_slots == owned[name.component, name.tier]
        assert (self.core.snapshot().jobs, self.core.snapshot().leases) == (0, 0)


@pytest.mark.parametrize("lane", [InlineLane, ThreadLane])
@pytest.mark.parametrize("core", CORES)
def test_every_payload_of_every_pool_travels_with_its_slot(
    core: str, lane: type[InlineLane] | type[ThreadLane]
) -> None:
    world = World(core, lane())
    payloads = world.compute()
    assert [(piece.component, piece.start, piece.end) for piece in world.back_up()] == [
        (FULL, 0, LENGTH),
        (SWA, LENGTH - 2 * PAGE, LENGTH),
    ]
    assert world.held(HOST) == payloads
    world.empty_the_device()
    assert world.depths() == (0, LENGTH)
    world.alloc(FULL, DEVICE, 3)  # others have these slots now
    world.alloc(SWA, DEVICE, 1)
    world.load()
    assert world.depths() == (LENGTH, LENGTH)
    assert world.held(DEVICE) == world.held(HOST) == payloads
    world.tier.close()


@pytest.mark.parametrize("core", CORES)
def test_the_tree_knows_nothing_of_them(core: str) -> None:
    world = World(core, InlineLane())
    world.compute()
    assert world.in_the_tree() == {(FULL, DEVICE): PAGES, (SWA, DEVICE): 2}
    world.back_up()
    assert world.in_the_tree() == {
        (FULL, DEVICE): PAGES, (SWA, DEVICE): 2, (FULL, HOST): PAGES, (SWA, HOST): 2,
    }  # fmt: skip
    assert [spec.name for spec in world.core.config.specs] == [FULL, SWA]
    assert {count.pool.component for count in world.core.stats().pools} == {FULL, SWA}
    world.check()


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("core", CORES)
def test_without_a_sidecar_a_piece_is_not_on_the_host(core: str, step: int) -> None:
    world = World(core, FailingLane(step))
    payloads = world.compute()
    assert world.back_up() == ()
    assert world.held(HOST) == {}
    world.check()
    assert world.back_up() != ()  # nothing is in the way of a second try
    assert world.held(HOST) == payloads
    world.check()


@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("core", CORES)
def test_without_a_sidecar_a_piece_is_not_on_the_device(core: str, step: int) -> None:
    world = World(core, FailingLane(-1, step))
    payloads = world.compute()
    world.back_up()
    world.empty_the_device()
    assert world.load() == ()
    assert world.depths() == (0, LENGTH)
    assert world.held(DEVICE) == {}
    world.check()
    assert world.load() != ()
    assert world.held(DEVICE) == payloads
    world.check()


@pytest.mark.parametrize("core", CORES)
def test_they_travel_to_an_external_store_and_back(core: str) -> None:
    """As one object a slot, so that none comes back without them."""
    world = World(core, InlineLane())
    payloads = world.compute()
    tier = StoredTier(MemoryStore(1 << 20), world.bytes, PAGE, SystemClock())
    hashes = tuple(page_hashes(KEY, PAGE))
    planned = world.core.plan_backup(world.boundary(DEVICE), DEVICE, EXTERNAL, world.tick())
    assert planned.job
    tier.submit_store(Transfer(planned.job, planned.job.pieces, hashes))
    tier.drain()
    (stored,) = tier.poll()
    world.core.commit(planned.job, stored.landed, world.tick())
    wanted = [replace(piece, slots=NO_SLOTS) for piece in planned.job.pieces]
    slots = [world.alloc(piece.component, HOST, piece.slots.size) for piece in planned.job.pieces]
    targets = tuple(replace(piece, slots=taken) for piece, taken in zip(wanted, slots, strict=True))
    tier.submit_load(Transfer(Job(-1, EXTERNAL, HOST, tuple(wanted)), targets, hashes))
    tier.drain()
    (loaded,) = tier.poll()
    assert {
        (piece.component, piece.start + (place + 1) * PAGE): world.bytes[
            PoolName(piece.component, HOST)
        ].read(slot)
        for piece in loaded.landed
        for place, slot in enumerate(piece.slots.tolist())
    } == payloads
    tier.close()


@pytest.mark.parametrize("core", CORES)
def test_the_two_components_have_index_spaces_of_their_own(core: str) -> None:
    world = World(core, InlineLane())
    world.compute()
    locked = world.core.lock(world.boundary(DEVICE), world.tick())
    full, window = locked.pieces
    assert full.slots.tolist() == [5, 4, 3, 2, 1, 0]
    assert window.slots.tolist() == [0, 1]
    assert (window.start, window.end) == (4 * PAGE, LENGTH)
    assert (
        np.intersect1d(full.slots[4:], window.slots).tolist() == slots_of([0, 1]).tolist()
    )  # yet other bytes
    world.core.unlock(locked.lease, None, world.tick())
