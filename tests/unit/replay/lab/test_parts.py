"""Hybrid models under replay: their components, how many slots each has, where boundaries lie, and what votes."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentcache.clock import ManualClock
from agentcache.config import EngineSettings
from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.cached import CachedPages, Sizing, replay_cache
from agentcache.replay.lab.cells import Cell, Policy
from agentcache.replay.lab.parts import FULL_ONLY, NAMES, Model, Parts, parts_of
from agentcache.replay.lab.replaying import replay_calls
from agentcache.replay.lab.serving import Machine, Replayed
from agentcache.replay.lab.unbounded import Unbounded
from agentcache.replay.lab.world import Script, World
from agentcache.replay.paged import PAGE_TOKENS, Workload
from agentcache.tree.api import Order
from agentcache.types import FULL, MAMBA, SWA, Checkpoint, Window
from agentcache.waits import NOTHING_TOLD
from tests.worlds import (
    AT_ONCE,
    Says,
    random_machine,
    random_script,
    random_workload,
    replayed,
    script,
    workload,
)

CORES = ["reference", pytest.param("native", marks=pytest.mark.native)]


def through_the_cache(told: Script, machine: Machine, sizing: Sizing) -> list[Replayed]:
    clock = ManualClock()
    cache = replay_cache(sizing, clock)
    served = CachedPages(told.workload, cache, lambda _: NOTHING_TOLD, parts=sizing.parts)
    calls = World(told, machine, served, clock).run()
    cache.check()
    assert cache.stats().active_turns == 0
    return calls


def found(paged: Workload, sizing: Sizing) -> list[int]:
    """The pages that each session's only call finds; they come a second apart."""
    starts = range(len(paged.sessions))
    calls = through_the_cache(script(paged, starts, [[0] for _ in starts]), AT_ONCE, sizing)
    return [one.found.pages for one in calls]


def as_it_went(calls: Sequence[Replayed]) -> list[tuple[object, ...]]:
    return [(one.call.session, one.call.turn, one.started_ns, one.ended_ns, one.found) for one in calls]


def test_models_are_named_by_their_components() -> None:
    assert [parts_of(name).name for name in NAMES] == list(NAMES)
    assert parts_of("full") == FULL_ONLY
    assert [part.rule for part in parts_of("full+swa+mamba", 1024).specs(64)[1:]] == [
        Window(1023),
        Checkpoint(128),
    ]
    with pytest.raises(CacheError, match=r"full\+swa") as refused:
        parts_of("swa")
    assert refused.value.kind is Kind.BAD_REQUEST


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (Model("full+swa", window=1), "two tokens"),
        (Model(window=99), r"--window is of a model that has more: add --parts full\+swa"),
        (Model("full+mamba", window_share=0.1), r"--window-share .* full\+swa"),
        (Model("full+swa", state_tokens=9), r"--state-tokens .* full\+mamba"),
        (Model(chunk=64), r"--chunk .* full\+swa"),
    ],
)
def test_what_would_have_no_effect_is_refused(asked: Model, named: str) -> None:
    with pytest.raises(CacheError, match=named) as refused:
        asked.components()
    assert refused.value.kind is Kind.BAD_REQUEST


def test_all_of_a_model_can_be_asked_for() -> None:
    asked = Model("full+swa+mamba", window=512, window_share=0.1, state_tokens=2048, chunk=256).components()
    assert asked == Parts(511, True, 256, window_share=0.1, state_tokens=2048)


def test_in_the_tree_windows_are_whole_pages_and_states_lie_on_the_grid() -> None:
    tree = parts_of("full+swa+mamba", 1024).specs(64, unit=64)
    assert [part.rule for part in tree[1:]] == [Window(16), Checkpoint(2)]
    assert Parts(window=65, chunk=100).specs(64, unit=64)[1].rule == Window(2)
    assert Parts(states=True, chunk=100).grid(64) == 128
    assert FULL_ONLY.grid(64) == 64, "full attention is cut at every page"


def test_without_a_word_windows_and_states_have_as_much_beside_full_as_in_an_engine() -> None:
    engine, page = EngineSettings(), 128
    slots = parts_of("full+swa+mamba").slots(engine.full_slots, engine.page)
    assert (engine.page, slots) == (page, {FULL: 512, SWA: engine.swa_slots, MAMBA: engine.mamba_slots})
    assert Parts(states=True).chunk == engine.grid_tokens
    assert Parts(states=True).every_chunks == engine.fork_chunks


def test_slots_are_shares_of_the_room_and_one_at_least() -> None:
    assert Parts(window=64, states=True, window_share=0.25, state_tokens=1280).slots(100, 64) == {
        FULL: 100,
        SWA: 25,
        MAMBA: 5,
    }
    assert Parts(states=True, state_tokens=10**9).slots(100, 64) == {FULL: 100, MAMBA: 1}
    assert FULL_ONLY.slots(100, 64) == {FULL: 100}
    assert Parts(64, True, window_share=1e9, state_tokens=1).slots(100, 64) == {
        FULL: 100,
        SWA: 100,
        MAMBA: 100,
    }


@pytest.mark.parametrize("core", CORES)
def test_states_are_kept_where_an_engine_keeps_them(core: str) -> None:
    """Chunks of two pages, every second one a boundary: of ten pages 4, 8 and 10, and for who left it before 6."""
    parts = Parts(states=True, chunk=2 * PAGE_TOKENS, every_chunks=2)
    ten = [*range(1, 11)]
    paged = workload(
        [Says(ten)],
        [Says([*ten[:4], 99])],
        [Says([*ten[:7], 98])],
        [Says([*ten[:7], 97])],
        [Says([*ten[:9], 96])],
        [Says([*ten, 95])],
    )
    assert found(paged, Sizing(Order.LRU, 100, core=core, parts=parts)) == [0, 4, 4, 6, 8, 10]


@pytest.mark.parametrize("core", CORES)
def test_an_answer_is_cut_at_every_chunk_of_it(core: str) -> None:
    parts = Parts(window=1, states=True, chunk=2 * PAGE_TOKENS)
    paged = workload([Says([1, 2, 3], answer=4), Says([1, 2, 3, 4, 5, 6, 7, 8])], [Says([1, 2, 3, 4, 5, 9])])
    told = script(paged, [0, 5], [[0, 9], [0]])
    calls = through_the_cache(told, AT_ONCE, Sizing(Order.LRU, 100, core=core, parts=parts))
    assert [(one.call.session, one.found.pages) for one in calls] == [(0, 0), (1, 4), (0, 6)]


@pytest.mark.parametrize("core", CORES)
def test_of_a_prompts_states_the_first_one_leaves_first(core: str) -> None:
    """All of a prompt is published at one moment of the replay, and on a machine one boundary after the other."""
    parts = Parts(states=True, chunk=PAGE_TOKENS, every_chunks=1, state_tokens=3 * PAGE_TOKENS)
    paged = workload([Says([1, 2, 3])], [Says([9])], [Says([1, 2, 3, 4])])
    assert found(paged, Sizing(Order.LRU, 9, core=core, parts=parts)) == [0, 0, 3]


@pytest.mark.parametrize("core", CORES)
def test_without_slots_for_every_boundary_the_last_ones_are_kept(core: str) -> None:
    """Four boundaries and three states: only the one at the end is kept."""
    parts = Parts(states=True, chunk=PAGE_TOKENS, every_chunks=1, state_tokens=5 * PAGE_TOKENS)
    paged = workload([Says([1, 2, 3, 4])], [Says([9])], [Says([1, 2, 3, 4, 6])], [Says([1, 2, 3, 8])])
    assert found(paged, Sizing(Order.LRU, 15, core=core, parts=parts)) == [0, 0, 4, 0]


def hybrid(rng: random.Random) -> Parts:
    return Parts(
        window=rng.choice([0, 1, 100, 200]),
        states=rng.random() < 0.7,
        chunk=PAGE_TOKENS * rng.randint(1, 3),
        every_chunks=rng.randint(1, 3),
        window_share=rng.choice([0.2, 0.5, 1.0]),
        state_tokens=PAGE_TOKENS * rng.randint(1, 6),
    )


@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_what_is_never_evicted_is_voted_on_as_in_the_cache(rng: random.Random) -> None:
    """`Unbounded` against the real tree with more room than anything needs."""
    paged = random_workload(rng, sessions=6, calls=5)
    told, machine = random_script(rng, paged, longest_ns=100), random_machine(rng)
    drawn = hybrid(rng)
    roomy = Parts(drawn.window, drawn.states, drawn.chunk, drawn.every_chunks, window_share=9, state_tokens=1)
    calls = through_the_cache(told, machine, Sizing(Order.LRU, 1000, core="reference", parts=roomy))
    assert as_it_went(calls) == as_it_went(replayed(told, machine, Unbounded(paged, roomy)))


@pytest.mark.native
@given(rng=st.randoms(use_true_random=False), order=st.sampled_from(list(Order)))
@settings(max_examples=80, deadline=None)
def test_both_cores_find_the_same_and_miss_it_for_the_same_reasons(rng: random.Random, order: Order) -> None:
    paged = random_workload(rng, sessions=6, calls=5)
    told, machine = random_script(rng, paged, longest_ns=100), random_machine(rng)
    parts, device, host = hybrid(rng), rng.randint(1, 20), rng.choice([0, rng.randint(1, 10)])
    reference, native = (
        through_the_cache(told, machine, Sizing(order, device, host, core=core, parts=parts))
        for core in ("reference", "native")
    )
    assert as_it_went(reference) == as_it_went(native)
    assert len(native) == paged.calls


def test_a_cell_is_of_a_model_and_the_order_that_knows_the_future_knows_full_attention_only() -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 2, 3, 4, 5])], [Says([1, 2, 9])])
    cell = Cell(Policy.ERT, device=4, live=1, parts=Parts(states=True, chunk=PAGE_TOKENS))
    assert sum(one.found.pages for one in replay_calls(paged, cell, seed=1)) == 3
    assert sum(one.found.pages for one in replay_calls(paged, replace(cell, parts=FULL_ONLY), seed=1)) == 5
    assert replay_calls(paged, replace(cell, policy=Policy.UNBOUNDED), seed=1)[-1].call.turn == 1
    with pytest.raises(CacheError, match=r"not full\+mamba; hold the orders against unbounded") as refused:
        replay_calls(paged, replace(cell, policy=Policy.CLAIRVOYANT), seed=1)
    assert refused.value.kind is Kind.BAD_REQUEST
