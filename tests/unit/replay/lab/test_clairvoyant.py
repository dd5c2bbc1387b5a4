"""The order that knows the future: against all choices there are, against LRU, and that it never has too much."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from agentcache.clock import ManualClock
from agentcache.engine.scheduler import PrefillOrder
from agentcache.replay.lab.cached import CachedPages, Sizing, replay_cache
from agentcache.replay.lab.clairvoyant import Clairvoyant
from agentcache.replay.lab.serving import NANOSECONDS, Found, Machine
from agentcache.replay.lab.trie import prompt_trie
from agentcache.replay.lab.unbounded import Unbounded
from agentcache.replay.lab.world import Script, World
from agentcache.tree.api import Order
from agentcache.waits import NOTHING_TOLD
from tests.unit.replay.lab.exhaustive import most_hits, refills
from tests.unit.replay.lab.flat import FlatMin
from tests.unit.replay.lab.naive import NaiveLru
from tests.unit.replay.lab.recorded import recorded_blocks, recorded_messages
from tests.worlds import (
    AT_ONCE,
    Says,
    calls_of,
    checked,
    hits,
    peak,
    random_machine,
    random_script,
    random_workload,
    replayed,
    script,
    workload,
)

FAR_APART_NS = 1_000_000
"""Times drawn below it are all different, but for chance."""


def clairvoyant(told: Script, machine: Machine, device: int, host: int = 0) -> Clairvoyant:
    return Clairvoyant(told, machine, prompt_trie(told.workload), device, host)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A random script in which calls come one by one and take no time."""

    script: Script
    rng: random.Random
    is_fit: bool  # MIN is optimal: no page comes back without being computed


def drawn(seeds: range) -> Iterator[Drawn]:
    for seed in seeds:
        rng = random.Random(seed)
        paged = random_workload(rng)
        told = random_script(rng, paged, FAR_APART_NS)
        order = [one.call for one in replayed(told, AT_ONCE, Unbounded(paged))]
        yield Drawn(told, rng, not refills(order))


@pytest.mark.parametrize("first", range(0, 1_000, 250))
def test_no_choice_of_victims_hits_more(first: int) -> None:
    compared = 0
    for one in drawn(range(first, first + 250)):
        capacity = one.rng.randint(1, 9)
        calls = replayed(one.script, AT_ONCE, checked(clairvoyant(one.script, AT_ONCE, capacity)))
        most = most_hits(one.script.workload, [call.call for call in calls], capacity)
        assert hits(calls) <= most
        if one.is_fit:
            assert hits(calls) == most
            compared += 1
    assert compared > 100


def test_with_a_host_no_choice_hits_more_on_the_device_nor_on_both() -> None:
    for one in drawn(range(2_000, 2_200)):
        if not one.is_fit:
            continue
        device, host = peak(one.script.workload) + one.rng.randint(0, 3), one.rng.randint(1, 4)
        calls = replayed(one.script, AT_ONCE, checked(clairvoyant(one.script, AT_ONCE, device, host)))
        order = [call.call for call in calls]
        assert hits(calls) == most_hits(one.script.workload, order, device + host)
        on_device = sum(call.found.device for call in calls)
        assert on_device == most_hits(one.script.workload, order, device)


@pytest.mark.parametrize("order", list(Order))
def test_no_order_of_the_real_cache_hits_more(order: Order) -> None:
    for one in drawn(range(4_000, 4_150)):
        paged, clock = one.script.workload, ManualClock()
        device = peak(paged) + one.rng.randint(0, 3)
        host = one.rng.choice([0, one.rng.randint(1, 6)])
        cache = replay_cache(Sizing(order, device, host, core="reference"), clock)
        served = CachedPages(paged, cache, lambda _: NOTHING_TOLD)
        real = hits(World(one.script, AT_ONCE, served, clock).run())
        best = hits(replayed(one.script, AT_ONCE, clairvoyant(one.script, AT_ONCE, device, host)))
        assert real <= best or not one.is_fit


@pytest.mark.data
def test_recorded_sessions_hit_as_much_as_under_min_over_pages() -> None:
    for paged in (recorded_blocks(100), recorded_messages(40)):
        told = random_script(random.Random(1), paged, longest_ns=600 * NANOSECONDS)
        for peaks in (1, 4, 10):
            capacity = round(peaks * paged.mean_peak_pages)
            calls = replayed(told, AT_ONCE, clairvoyant(told, AT_ONCE, capacity))
            flat = FlatMin([one.call for one in calls], capacity)
            assert 0 < hits(calls) == sum(flat.serve(one.call) for one in calls)


def test_it_lies_between_lru_and_all_that_was_ever_computed() -> None:
    gained = lost = 0
    for one in drawn(range(3_000, 3_300)):
        capacity = one.rng.randint(1, 12)
        paged = one.script.workload
        bound = hits(replayed(one.script, AT_ONCE, Unbounded(paged)))
        best = hits(replayed(one.script, AT_ONCE, clairvoyant(one.script, AT_ONCE, capacity)))
        lru = hits(replayed(one.script, AT_ONCE, NaiveLru(paged, capacity)))
        assert lru <= best <= bound
        gained += best > lru
        lost += best < bound
    assert gained > 20
    assert lost > 20


@pytest.mark.parametrize("first", range(0, 300, 75))
def test_what_is_there_fits_at_every_moment_however_long_calls_take(first: int) -> None:
    for seed in range(first, first + 75):
        rng = random.Random(seed)
        paged, machine = random_workload(rng, sessions=6), random_machine(rng)
        told = random_script(rng, paged, 100)
        device, host = rng.randint(1, 20), rng.choice([0, rng.randint(1, 10)])
        calls = replayed(told, machine, checked(clairvoyant(told, machine, device, host)))
        assert len(calls) == paged.calls
        again = replayed(told, machine, clairvoyant(told, machine, device, host))
        assert [call.found for call in again] == [call.found for call in calls]


def test_what_was_pushed_off_the_device_is_found_on_the_host_and_comes_back() -> None:
    paged = workload([Says([1, 2]), Says([1, 2]), Says([1, 2])], [Says([3, 4])])
    told = script(paged, [0, 1], [[0, 2, 1], [0]])
    calls = replayed(told, AT_ONCE, checked(clairvoyant(told, AT_ONCE, device=3, host=2)))
    assert [(one.found.device, one.found.host) for one in calls] == [(0, 0), (0, 0), (1, 1), (2, 0)]


def test_a_child_that_will_begin_keeps_its_prompt() -> None:
    paged = workload(
        [Says([1, 2])],
        [Says([3, 4])],
        [Says([5])],
        [Says([1, 2])],
        parents={3: (1, 1)},
    )
    told = script(paged, [0, 3, 2], [[0], [0], [0], [10]])
    calls = replayed(told, AT_ONCE, checked(clairvoyant(told, AT_ONCE, device=4)))
    assert calls[-1].found == Found(2), "5 went for the prompt of the parent, not what its child asks for"


def test_nothing_starts_that_does_not_fit_beside_what_runs() -> None:
    paged = workload([Says([1, 2])], [Says([3, 4])], [Says([1, 2])])
    told = script(paged, [0, 1, 2], [[0], [0], [0]])
    first, second, third = calls_of(paged)
    served = clairvoyant(told, AT_ONCE, device=3)
    for call in (first, second, third):
        served.arrive(call, 2)
    assert served.start(first, 2, must=False) is not None
    assert served.start(second, 3, must=False) is None
    served.computed(first, 4)
    assert served.start(second, 5, must=False) is None, "what runs keeps its pages"
    assert served.uncached(third) == 0
    assert served.start(third, 6, must=False) == Found(2)
    served.check()


def test_with_a_cache_aware_queue_what_starts_sooner_is_kept() -> None:
    paged = workload([Says([1, 2])], [Says([3, 4])], [Says([1, 2, 5])], [Says([3, 4])], [Says([6, 7])])
    told = script(paged, [0, 1, 2, 3, 4], [[0]] * 5)
    calls = calls_of(paged)
    machine = Machine(queue=True, turns=PrefillOrder.LEAST_UNCACHED)
    served = clairvoyant(told, machine, device=4)
    for call in calls[:2]:
        served.start(call, 0, must=True)
        served.computed(call, 0)
        served.finish(call, 0)
    for now, call in enumerate(calls[2:], 1):
        served.arrive(call, now)
    served.expects([(calls[3], 10), (calls[2], 20)], 5)
    served.start(calls[4], 6, must=True)
    assert (served.uncached(calls[3]), served.uncached(calls[2])) == (0, 3)
