"""The real cache with the order `lru` against the naive LRU, call by call."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.clock import ManualClock
from agentcache.engine.scheduler import PrefillOrder
from agentcache.replay.lab.cached import CachedPages, Sizing, replay_cache
from agentcache.replay.lab.serving import NANOSECONDS, Machine, Replayed
from agentcache.replay.lab.unbounded import Unbounded
from agentcache.replay.lab.world import Script, World
from agentcache.tree.api import Order
from agentcache.waits import NOTHING_TOLD
from tests.unit.replay.lab.naive import NaiveLru
from tests.unit.replay.lab.recorded import recorded_blocks, recorded_messages
from tests.worlds import checked, hits, random_machine, random_script, random_workload, replayed


def through_the_cache(told: Script, machine: Machine, capacity: int, core: str) -> list[Replayed]:
    clock = ManualClock()
    cache = replay_cache(Sizing(Order.LRU, capacity, core=core), clock)
    calls = World(told, machine, CachedPages(told.workload, cache, lambda _: NOTHING_TOLD), clock).run()
    cache.check()
    return calls


def as_it_went(calls: list[Replayed]) -> list[tuple[object, ...]]:
    return [
        (one.call.session, one.call.turn, one.arrived_ns, one.started_ns, one.ended_ns, one.found.device)
        for one in calls
    ]


@pytest.mark.parametrize("core", ["reference", pytest.param("native", marks=pytest.mark.native)])
@given(rng=st.randoms(use_true_random=False), capacity=st.integers(1, 16), longest_ns=st.integers(1, 200))
@settings(max_examples=150, deadline=None)
def test_random_workloads(core: str, rng: random.Random, capacity: int, longest_ns: int) -> None:
    paged = random_workload(rng, sessions=6, calls=5)
    told, machine = random_script(rng, paged, longest_ns), random_machine(rng)
    naive = replayed(told, machine, checked(NaiveLru(paged, capacity)))
    assert as_it_went(through_the_cache(told, machine, capacity, core)) == as_it_went(naive)


@pytest.mark.data
@pytest.mark.native
@pytest.mark.parametrize("queue", [None, PrefillOrder.FCFS, PrefillOrder.LEAST_UNCACHED])
def test_recorded_sessions(queue: PrefillOrder | None) -> None:
    machine = Machine(queue=queue is not None, turns=queue or PrefillOrder.FCFS)
    for paged in (recorded_blocks(30), recorded_messages(12)):
        told = random_script(random.Random(1), paged, longest_ns=60 * NANOSECONDS)
        for peaks in (1.5, 4):
            capacity = round(peaks * paged.mean_peak_pages)
            naive = replayed(told, machine, NaiveLru(paged, capacity))
            assert 0 < hits(naive) < hits(replayed(told, machine, Unbounded(paged)))
            assert as_it_went(through_the_cache(told, machine, capacity, "native")) == as_it_went(naive)
