"""The third tier of a replay: what comes back from it, what leaves it first, and that it cannot stop a replay."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from agentcache.clock import ManualClock
from agentcache.errors import CacheError
from agentcache.keys import identity_of, object_name
from agentcache.replay.lab.cached import CachedPages, Sizing, replay_cache
from agentcache.replay.lab.cells import Cell, Policy
from agentcache.replay.lab.clairvoyant import Clairvoyant
from agentcache.replay.lab.external import CountingTier
from agentcache.replay.lab.parts import Parts
from agentcache.replay.lab.replaying import replay_cell
from agentcache.replay.lab.serving import NANOSECONDS, Found, Machine, Replayed, Why
from agentcache.replay.lab.table import Arm, Plan, run_table
from agentcache.replay.lab.trie import prompt_trie
from agentcache.replay.lab.unbounded import Unbounded
from agentcache.replay.lab.world import Script, World
from agentcache.replay.paged import PAGE_TOKENS, Workload
from agentcache.tiers.api import JobResult, Keep, Presence, Transfer
from agentcache.tiers.knowledge import Identity
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.tree.api import Order, WritePolicy
from agentcache.types import FULL, MAMBA, Job, Piece, TierName
from agentcache.waits import NOTHING_TOLD
from tests.worlds import (
    AT_ONCE,
    Says,
    hits,
    peak,
    random_machine,
    random_script,
    random_workload,
    replayed,
    script,
    workload,
)

CORES = ["reference", pytest.param("native", marks=pytest.mark.native)]
SECOND = NANOSECONDS
HASHES = tuple(bytes([number]) * 32 for number in range(12))
"""Of the pages of one path."""


def through(
    told: Script, machine: Machine, sizing: Sizing, tier: CountingTier | None = None
) -> list[Replayed]:
    """The calls in the order of sessions and turns; `tier`: instead of the one that the sizing makes."""
    clock = ManualClock()
    cache = replay_cache(sizing, clock)
    if tier is not None:
        cache.tiers.attach(tier)
    served = CachedPages(told.workload, cache, lambda _: NOTHING_TOLD, parts=sizing.parts)
    with capture_logs() as failed:
        calls = World(told, machine, served, clock).run()
    assert not failed, "a prefetch ends where something in it fails, and says so"
    cache.check()
    assert cache.stats().active_turns == 0
    return sorted(calls, key=lambda one: (one.call.session, one.call.turn))


def seconds(
    paged: Workload, starts: Sequence[int], gaps: Sequence[Sequence[int]], closes: bool = False
) -> Script:
    in_ns = [[gap * SECOND for gap in of_one] for of_one in gaps]
    return script(paged, [start * SECOND for start in starts], in_ns, closes)


def three_and_back() -> Script:
    """A session that comes back after two others, of which each fills a device of three pages."""
    paged = workload([Says([1, 2, 3]), Says([1, 2, 3])], [Says([7, 8, 9])], [Says([11, 12, 13])])
    return seconds(paged, [0, 10, 20], [[0, 40], [0], [0]])


@pytest.mark.parametrize("core", CORES)
def test_what_left_device_and_host_comes_back_from_outside(core: str) -> None:
    without, below = Sizing(Order.LRU, 3, host_pages=3, core=core), 9
    assert through(three_and_back(), AT_ONCE, without)[1].found == Found(why=Why.EVICTED, again=3)
    back = through(three_and_back(), AT_ONCE, replace(without, external_pages=below))[1]
    assert back.found == Found(external=3, why=Why.NOTHING)


@pytest.mark.parametrize("core", CORES)
def test_without_a_host_it_comes_to_the_device(core: str) -> None:
    back = through(three_and_back(), AT_ONCE, Sizing(Order.LRU, 3, core=core, external_pages=9))[1]
    assert back.found == Found(external=3, why=Why.NOTHING)


@pytest.mark.parametrize("core", CORES)
def test_a_path_longer_than_the_host_comes_to_the_device_whatever_the_host_has_of_it(core: str) -> None:
    """Behind what only the host has nothing can be filed on the device: that part comes from outside as well."""
    first = [1, 2, 3, 4, 5]
    paged = workload([Says(first), Says(first)], [Says([11, 12, 13, 14])], [Says([21, 22])])
    told = seconds(paged, [0, 10, 20], [[0, 40], [0], [0]])
    near = Sizing(Order.LRU, 5, 4, core, write_policy=WritePolicy.WRITE_BACK)
    without = through(told, AT_ONCE, near)[1].found
    assert 0 < without.host < 5
    assert without.device == 0
    back = through(told, AT_ONCE, replace(near, external_pages=99))[1]
    assert back.found == Found(external=5, why=Why.NOTHING)
    assert through(told, AT_ONCE, near, Shallow(99))[1].found == without, "what would come is there already"


@pytest.mark.parametrize("core", CORES)
def test_what_is_closed_is_let_go_from_its_end(core: str) -> None:
    """So that what is left of it in the store can be reached from the root."""
    tier = Remembering(99)
    told = seconds(workload([Says([1, 2, 3])]), [0], [[0]], closes=True)
    through(told, AT_ONCE, Sizing(Order.LRU, 9, core=core), tier)
    depths = [tier.depths[page_hash] for _, page_hash in tier.held(Keep.LOOSE)]
    assert depths == sorted(depths, reverse=True)
    assert len(depths) >= 3


def test_what_the_host_has_is_not_read_from_further_away() -> None:
    sizing = Sizing(Order.LRU, 3, host_pages=8, external_pages=99)
    assert through(three_and_back(), AT_ONCE, sizing)[1].found == Found(host=3, why=Why.NOTHING)


def test_loads_from_outside_take_their_time() -> None:
    machine = replace(AT_ONCE, prefill=PAGE_TOKENS, from_external=PAGE_TOKENS / 2)
    back = through(three_and_back(), machine, Sizing(Order.LRU, 3, host_pages=3, external_pages=9))[1]
    assert back.first_token_ns - back.started_ns == 6 * SECOND + SECOND // PAGE_TOKENS


@pytest.mark.parametrize("core", CORES)
def test_closed_sessions_leave_first(core: str) -> None:
    """The one that is open has been there longest, and stays; the one that is closed makes room for the third."""
    paged = workload([Says([3, 4]), Says([3, 4])], [Says([1, 2])], [Says([5, 6])], [Says([1, 2])])
    told = seconds(paged, [0, 1, 2, 10], [[0, 9], [0], [0], [0]], closes=True)
    calls = through(told, AT_ONCE, Sizing(Order.LRU, 2, core=core, external_pages=4))
    assert calls[1].found == Found(external=2, why=Why.NOTHING)
    assert calls[4].found == Found(why=Why.CLOSED, again=2)


class Forgetful(CountingTier):
    """Loses the last page of every load after it was asked for it."""

    def submit_load(self, transfer: Transfer) -> None:
        (target,) = transfer.targets
        super().submit_load(transfer)
        (result,) = self.poll()
        (piece,) = result.landed
        kept = replace(piece, end=target.end - 1, slots=piece.slots[:-1])
        self._ended.append(JobResult(result.job, (kept,)))


class Remembering(CountingTier):
    """Knows how deep on its path each page is that it was given."""

    def __init__(self, capacity_pages: int) -> None:
        super().__init__(capacity_pages)
        self.depths: dict[bytes, int] = {}

    def submit_store(self, transfer: Transfer) -> None:
        self.depths.update(zip(transfer.hashes, count(1), strict=False))
        super().submit_store(transfer)


class Shallow(Remembering):
    """Has nothing beyond the third page."""

    def lookup(self, wanted: Sequence[Identity]) -> tuple[Presence, ...]:
        return tuple(
            answer if self.depths.get(page_hash, 0) <= 3 else Presence.MISS
            for (_, page_hash), answer in zip(wanted, super().lookup(wanted), strict=True)
        )


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("host", [0, 3])
def test_a_load_that_arrives_in_part_shrinks_the_reuse(core: str, host: int) -> None:
    sizing = Sizing(Order.LRU, 3, host_pages=host, core=core)
    back = through(three_and_back(), AT_ONCE, sizing, Forgetful(9))[1]
    assert back.found == Found(external=2, why=Why.EVICTED, again=1)


def test_what_cannot_go_to_the_device_is_read_for_its_caller_alone() -> None:
    slow = Machine(prefill=PAGE_TOKENS, from_external=PAGE_TOKENS, decode=PAGE_TOKENS)
    paged = workload(
        [Says([1, 2, 3], spare=0), Says([1, 2, 3], spare=0)],
        [Says([7, 8, 9], spare=0)],
        [Says([11, 12, 13], answer=60, spare=0)],
    )
    told = seconds(paged, [0, 5, 10], [[0, 20], [0], [0]])
    back = through(told, slow, Sizing(Order.LRU, 3, host_pages=3, external_pages=99))[1]
    assert back.found == Found(external=2, why=Why.NOTHING)


def test_an_external_tier_has_room_for_a_page() -> None:
    with pytest.raises(CacheError, match="at least one page"):
        CountingTier(0)


def random_parts(rng: random.Random) -> Parts:
    """Full attention alone, or with windows or states or both, of as few pages as the workloads have."""
    return Parts(
        window=rng.choice([0, PAGE_TOKENS, 2 * PAGE_TOKENS + 1]),
        states=rng.random() < 0.4,
        chunk=rng.choice([1, 2]) * PAGE_TOKENS,
        every_chunks=rng.choice([1, 2]),
        window_share=rng.choice([0.5, 1]),
        state_tokens=rng.choice([1, 4]) * PAGE_TOKENS,
    )


@pytest.mark.parametrize("core", CORES)
@given(rng=st.randoms(use_true_random=False), longest_ns=st.integers(1, 200))
@settings(max_examples=80, deadline=None)
def test_no_replay_hangs_loses_a_call_or_finds_what_is_not_there(
    core: str, rng: random.Random, longest_ns: int
) -> None:
    paged = random_workload(rng, sessions=6, calls=5)
    told, machine = random_script(rng, paged, longest_ns), random_machine(rng)
    sizing = Sizing(
        rng.choice(list(Order)),
        rng.randint(1, 16),
        rng.choice([0, rng.randint(1, 16)]),
        core,
        write_policy=rng.choice(list(WritePolicy)),
        external_pages=rng.randint(1, 30),
        parts=random_parts(rng),
        stretch_tokens=rng.choice([1, 32]) * PAGE_TOKENS,
    )
    calls = through(told, machine, sizing)
    assert [one.call for one in calls] == [call for session in paged.sessions for call in session.calls]
    assert all(0 <= one.found.pages <= one.call.reusable for one in calls)
    assert all(min(one.found.device, one.found.host, one.found.external) >= 0 for one in calls)
    assert through(told, machine, sizing) == calls


@pytest.mark.parametrize("core", CORES)
@given(rng=st.randoms(use_true_random=False), more=st.none() | st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_one_without_end_finds_what_an_unbounded_cache_does(
    core: str, rng: random.Random, more: int | None
) -> None:
    """Where calls take no time, so that every prompt finds room; without a host, or one that holds a path."""
    paged = random_workload(rng, sessions=6, calls=5)
    told = random_script(rng, paged, longest_ns=200)
    host = 0 if more is None else peak(paged) + more
    found = through(told, AT_ONCE, Sizing(Order.LRU, peak(paged), host, core, external_pages=10_000))
    best = sorted(
        replayed(told, AT_ONCE, Unbounded(paged)), key=lambda one: (one.call.session, one.call.turn)
    )
    assert [one.found.pages for one in found] == [one.found.pages for one in best]


@pytest.mark.native
@given(
    rng=st.randoms(use_true_random=False),
    room=st.tuples(st.integers(1, 12), st.sampled_from([0, 4, 12]), st.integers(1, 16)),
)
@settings(max_examples=100, deadline=None)
def test_no_order_finds_more_than_one_that_knows_the_future(
    rng: random.Random, room: tuple[int, int, int]
) -> None:
    """Where calls take no time. The bound has host and external tier as one."""
    (device, host, external), paged = room, random_workload(rng, sessions=6, calls=5)
    told = random_script(rng, paged, longest_ns=200)
    order = rng.choice(list(Order))
    found = hits(through(told, AT_ONCE, Sizing(order, device, host, external_pages=external)))
    bound = Clairvoyant(told, AT_ONCE, prompt_trie(paged), device, host + external)
    assert found <= hits(replayed(told, AT_ONCE, bound))


def test_a_cell_says_how_much_there_is_outside() -> None:
    """A session that goes away from its first prompt and comes back to it, on a device with room for one of them."""
    paged = workload([Says([1, 2, 3]), Says([7, 8, 9]), Says([1, 2, 3])])
    cell = Cell(Policy.LRU, device=1)
    assert replay_cell(paged, cell, seed=1).hit_rate == 0
    found = replay_cell(paged, replace(cell, external=3), seed=1)
    assert found.external_tokens == 3 * PAGE_TOKENS
    bound = replay_cell(paged, replace(cell, external=3, policy=Policy.CLAIRVOYANT), seed=1)
    assert bound.hit_rate == found.hit_rate


def test_a_row_says_what_came_from_outside() -> None:
    prompts = [[1, 2, 3], [7, 8, 9], [11, 12, 13], [1, 2, 3]]
    paged = workload([Says(prompt) for prompt in prompts])
    plan = Plan({"there": [Cell(Policy.LRU, device=1, host=1, external=4)]}, [Arm(Policy.LRU)], [1])
    row = next(iter(run_table(plan, {"there": paged}, lambda: None, processes=1))).as_json()
    assert (row["tiers"], row["host_capacity"], row["external_capacity"]) == (3, 1, 4)
    assert row["external_hit_rate"] == pytest.approx(3 * PAGE_TOKENS / (4 * (3 * PAGE_TOKENS + 1)))
    assert row["hit_rate"] == row["external_hit_rate"]


# the tier alone


def piece_of(rng: random.Random) -> Piece:
    """Some pages of the path, or the state behind one."""
    start, end = sorted(rng.sample(range(len(HASHES) + 1), 2))
    if rng.random() < 0.3:
        return Piece(MAMBA, end, end, np.zeros(1, dtype=np.int32))
    return Piece(FULL, start, end, np.arange(start, end, dtype=np.int32))


def identities_of(piece: Piece) -> list[Identity]:
    first = piece.end - 1 if piece.start == piece.end else piece.start
    return [(piece.component, page_hash) for page_hash in HASHES[first : piece.end]]


def ask(tier: CountingTier, piece: Piece, keep: Keep | None) -> tuple[Piece, ...]:
    """Store a piece in a class, or load it (None). Answers what landed."""
    source, target = (
        (TierName.EXTERNAL, TierName.HOST) if keep is None else (TierName.DEVICE, TierName.EXTERNAL)
    )
    transfer = Transfer(Job(1, source, target, (piece,)), (piece,), HASHES, keep or Keep.LOOSE)
    if keep is None:
        tier.submit_load(transfer)
    else:
        tier.submit_store(transfer)
    (result,) = tier.poll()
    assert tier.poll() == ()
    return result.landed


def used_last(store: MemoryStore, piece: Piece) -> None:
    """The path of a piece that reaches its end, deepest first; a state before the page that it follows."""
    if piece.end == len(HASHES):
        if piece.component != FULL:
            store.retain([object_name(HASHES[-1], piece.component)], None)
        store.retain([object_name(page_hash, FULL) for page_hash in reversed(HASHES)], None)


def put_missing(store: MemoryStore, names: Sequence[str], keep: Keep) -> None:
    for name in names:
        if store.exists([name]) == [False]:
            store.put([(name, b".")], keep)
        elif keep is Keep.REFERENCED:
            store.retain([name], keep)


@given(rng=st.randoms(use_true_random=False), capacity=st.integers(1, 10))
@settings(deadline=None)
def test_it_holds_what_a_store_in_memory_would(rng: random.Random, capacity: int) -> None:
    """As `StoredTier` uses it: what is there is not put again, and kept for open sessions where they store it; a path
    that is through is used once more, its end first."""
    tier, store = CountingTier(capacity), MemoryStore(capacity)
    for _ in range(30):
        piece, keep = piece_of(rng), rng.choice([None, *Keep])
        wanted = identities_of(piece)
        names = [object_name(page_hash, component) for component, page_hash in wanted]
        if keep is None:
            landed = [place for part in ask(tier, piece, None) for place in part.slots.tolist()]
            found = [data is not None for data in store.get(names)]
            assert landed == [slot for slot, there in zip(piece.slots.tolist(), found, strict=True) if there]
            used_last(store, piece)
        elif rng.random() < 0.5:
            tier.retain(names, keep)
            store.retain(names, keep)
        else:
            assert ask(tier, piece, keep) == (piece,)
            put_missing(store, names, keep)
            used_last(store, piece)
        everything = [(component, page_hash) for component in (FULL, MAMBA) for page_hash in HASHES]
        held = store.exists([object_name(page_hash, component) for component, page_hash in everything])
        assert [answer is Presence.HIT for answer in tier.lookup(everything)] == held
        assert tier.status().objects == sum(held) <= capacity


def test_a_name_says_what_object_it_is() -> None:
    for component in (FULL, MAMBA):
        assert identity_of(object_name(HASHES[3], component)) == (component, HASHES[3])
