"""Any history of copies, late, in any order, cut short, failing or cancelled: what is reported is there, whole, and
nothing else ever changes."""

from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agentcache.pools.buffers import KvLayout, PageBuffers, StateBuffers, TensorLayout
from agentcache.pools.sidecars import SidecarPool, with_sidecars
from agentcache.tiers.api import Transfer
from agentcache.tiers.host import HostTier
from agentcache.types import FULL, MAMBA, ComponentName, Job, Piece, PoolName, TierName
from tests.builders import slots_of
from tests.lanes import ManualCopy, ManualLane

DEVICE, HOST = TierName.DEVICE, TierName.HOST
PAGE, SLOTS = 2, 6
CPU = torch.device("cpu")
ROW = TensorLayout((1, 2), torch.bfloat16)
PICK = st.integers(0, 1 << 16)
PLACES = st.permutations(range(SLOTS))


@dataclass(frozen=True)
class Out:
    """A transfer that no poll has reported: its copying, and where each target slot's bytes come from."""

    transfer: Transfer
    copy: ManualCopy
    origins: dict[tuple[PoolName, int], tuple[PoolName, int]]


class CopyMachine(RuleBasedStateMachine):
    """A host tier on a lane that the machine drives, and what every slot must hold."""

    def __init__(self) -> None:
        super().__init__()
        indexer = SidecarPool("indexer", FULL, (TensorLayout((3,), torch.float32),))
        device = {
            FULL: with_sidecars(
                PageBuffers(SLOTS, PAGE, [KvLayout(ROW, ROW)], CPU).slot_tensors(), SLOTS, [indexer]
            ),
            MAMBA: StateBuffers(SLOTS, [ROW, ROW], CPU).slot_tensors(),
        }
        self.pools = {PoolName(name, DEVICE): pool for name, pool in device.items()}
        self.pools |= {PoolName(name, HOST): pool.twin(SLOTS, pinned=False) for name, pool in device.items()}
        dice = np.random.default_rng(1)
        for pool in self.pools.values():
            for slot in range(SLOTS):
                pool.write(slot, dice.bytes(pool.slot_bytes))
        self.holds = {
            (name, slot): pool.read(slot) for name, pool in self.pools.items() for slot in range(SLOTS)
        }
        self.lane = ManualLane()
        self.tier = HostTier(self.lane, self.pools)
        self.out: dict[int, Out] = {}
        self.jobs = 0

    def _targets(self) -> set[tuple[PoolName, int]]:
        return {target for out in self.out.values() for target in out.origins}

    def _sources(self) -> set[tuple[PoolName, int]]:
        return {source for out in self.out.values() for source in out.origins.values()}

    def _part(self, component: ComponentName, tier: TierName, places: list[int], count: int) -> Piece:
        """A piece of up to `count` slots that nobody writes, and on the target's side nobody reads, either."""
        name = PoolName(component, tier)
        barred = self._targets() | (self._sources() if tier is self.target else set())
        slots = [slot for slot in places if (name, slot) not in barred][:count]
        start, end = (0, len(slots) * PAGE) if component == FULL else (PAGE, PAGE)
        return Piece(component, start, end, slots_of(slots))

    @rule(up=st.booleans(), places=PLACES, target_places=PLACES, count=st.integers(1, 3), leading=PICK)
    def submit(self, up: bool, places: list[int], target_places: list[int], count: int, leading: int) -> None:
        """Pages, of which a run may find no slots, and a state."""
        source, self.target = (HOST, DEVICE) if up else (DEVICE, HOST)
        pages, state = self._part(FULL, source, places, count), self._part(MAMBA, source, places, 1)
        to_pages = self._part(FULL, self.target, target_places, pages.slots.size)
        to_state = self._part(MAMBA, self.target, target_places, state.slots.size)
        first = leading % (pages.slots.size - to_pages.slots.size + 1)
        to_pages = Piece(FULL, first * PAGE, first * PAGE + to_pages.end, to_pages.slots)
        pairs = [(pages, to_pages, first), (state, to_state, 0)]
        origins = {
            (PoolName(there.component, self.target), int(slot)): (
                PoolName(here.component, source),
                int(here.slots[skipped + place]),
            )
            for here, there, skipped in pairs
            for place, slot in enumerate(there.slots)
        }
        self.jobs += 1
        job = Job(self.jobs, source, self.target, tuple(here for here, *_ in pairs if here.slots.size))
        transfer = Transfer(job, tuple(there for _, there, _ in pairs if there.slots.size))
        (self.tier.submit_load if up else self.tier.submit_store)(transfer)
        self.out[job.number] = Out(transfer, self.lane.copies[-1], origins)

    @rule(which=PICK, steps=st.integers(1, 6))
    def advance(self, which: int, steps: int) -> None:
        if copy := self._some(which):
            copy.advance(steps)

    @rule(which=PICK)
    def fail(self, which: int) -> None:
        if copy := self._some(which):
            copy.fail(copy.completed)

    def _some(self, which: int) -> ManualCopy | None:
        running = [out.copy for out in self.out.values() if not out.copy.ended]
        return running[which % len(running)] if running else None

    @rule(number=st.integers(1, 20))
    def cancel(self, number: int) -> None:
        self.tier.cancel(number)

    @rule(drained=st.booleans())
    def poll(self, drained: bool) -> None:
        if drained:
            self.tier.drain()
        ended = {number for number, out in self.out.items() if out.copy.ended}
        results = self.tier.poll()
        assert sorted(result.job.number for result in results) == sorted(ended)
        for result in results:
            out = self.out.pop(result.job.number)
            assert result.landed == (() if out.copy.fault else out.transfer.targets)
            for target, source in out.origins.items():
                pool, slot = target
                self.holds[target] = self.holds[source] if result.landed else self.pools[pool].read(slot)
        assert not drained or not self.out

    @invariant()
    def nothing_else_changes(self) -> None:
        on_their_way = self._targets()
        for (name, slot), payload in self.holds.items():
            assert (name, slot) in on_their_way or self.pools[name].read(slot) == payload


def test_any_history_of_copies() -> None:
    run_state_machine_as_test(
        CopyMachine,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, derandomize=True, database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
