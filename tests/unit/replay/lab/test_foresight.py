"""What is foreseen against what came."""

import random
from collections.abc import Iterator

import numpy as np

from agentcache.replay.lab.foresight import NEVER, Foresight
from agentcache.replay.lab.serving import NANOSECONDS, Machine, Replayed
from agentcache.replay.lab.trie import PromptTrie, prompt_trie
from agentcache.replay.lab.unbounded import Unbounded
from agentcache.replay.lab.world import Script
from tests.worlds import (
    AT_ONCE,
    Says,
    calls_of,
    random_machine,
    random_script,
    random_workload,
    replayed,
    script,
    workload,
)


def came(trie: PromptTrie, calls: list[Replayed]) -> dict[int, int]:
    """When each node was first asked for."""
    first: dict[int, int] = {}
    for one in calls:
        node = trie.of(one.call).reusable
        while node:
            first[node] = min(first.get(node, NEVER), one.arrived_ns)
            node = trie.above[node]
    return first


def foreseen_and_came(
    machine_of: dict[int, Machine],
) -> Iterator[tuple[int, int]]:
    """For every node of many workloads, before anything has happened."""
    for seed, machine in machine_of.items():
        rng = random.Random(seed)
        paged = random_workload(rng)
        told, trie = random_script(rng, paged, 1_000), prompt_trie(paged)
        foresight = Foresight(told, machine, trie)
        arrivals = came(trie, replayed(told, machine, Unbounded(paged)))
        nodes = np.arange(1, len(trie.above))
        for node, foreseen in zip(nodes.tolist(), foresight.next_uses(nodes).tolist(), strict=True):
            assert foreseen == foresight.next_use(node)
            yield foreseen, arrivals.get(node, NEVER)


def test_where_nothing_takes_time_all_comes_when_it_was_foreseen() -> None:
    for foreseen, arrived in foreseen_and_came(dict.fromkeys(range(100), AT_ONCE)):
        assert foreseen == arrived


def test_nothing_comes_sooner_than_foreseen() -> None:
    machines = {seed: random_machine(random.Random(-seed)) for seed in range(1, 100)}
    for foreseen, arrived in foreseen_and_came(machines):
        assert foreseen <= arrived


MACHINE = Machine(prefill=64, decode=64)  # a page a second


def alone() -> tuple[Script, PromptTrie]:
    """Two calls of one session, and a child that begins at the end of the first."""
    paged = workload(
        [Says([1, 2, 3], answer=1, spare=0), Says([1, 2, 4], spare=0)],
        [Says([5, 6], spare=0)],
        parents={1: (0, 1)},
    )
    gaps = [[0, 10 * NANOSECONDS], [3 * NANOSECONDS]]
    return script(paged, [100 * NANOSECONDS], gaps), prompt_trie(paged)


def seconds(foresight: Foresight, node: int) -> float:
    return foresight.next_use(node) / NANOSECONDS


def test_what_is_late_moves_what_follows() -> None:
    told, trie = alone()
    foresight = Foresight(told, MACHINE, trie)
    first, second, child = calls_of(told.workload)
    trunk, other = trie.of(first).reusable, trie.of(child).reusable
    assert (seconds(foresight, trunk), seconds(foresight, other)) == (
        100,
        105,
    )  # a page computed, one answered
    foresight.expected(first, 100 * NANOSECONDS)
    foresight.started(first, 120 * NANOSECONDS)
    assert (seconds(foresight, trunk), seconds(foresight, other)) == (130, 123)
    foresight.started(child, 200 * NANOSECONDS)
    foresight.started(second, 200 * NANOSECONDS)
    assert foresight.next_use(trunk) == foresight.next_use(other) == NEVER
