"""Why a call finds no more: one short trace for every reason, worked out on paper."""

from collections.abc import Callable, Sequence

import pytest

from agentcache.clock import ManualClock
from agentcache.replay.lab.cached import CachedPages, Sizing, replay_cache
from agentcache.replay.lab.clairvoyant import Clairvoyant
from agentcache.replay.lab.parts import FULL_ONLY, Parts
from agentcache.replay.lab.serving import Machine, Replayed, Served, Why
from agentcache.replay.lab.trie import prompt_trie
from agentcache.replay.lab.unbounded import Unbounded
from agentcache.replay.lab.world import Script, World
from agentcache.replay.paged import PAGE_TOKENS, Workload
from agentcache.tree.api import Order
from agentcache.waits import NOTHING_TOLD
from tests.unit.replay.lab.naive import NaiveLru
from tests.worlds import AT_ONCE, Says, replayed, script, workload

SLOW = Machine(prefill=PAGE_TOKENS, decode=PAGE_TOKENS)
SECOND = 10**9
CHUNK = 2 * PAGE_TOKENS
SELDOM = 100
"""Chunks between two boundaries of a prompt: none lies inside of the short ones here."""

STATES = Parts(states=True, chunk=CHUNK, every_chunks=SELDOM)
WINDOW = Parts(window=CHUNK, chunk=CHUNK, every_chunks=SELDOM)
Makes = Callable[[Script, Machine, int], list[Replayed]]


def real(core: str, parts: Parts = FULL_ONLY) -> Makes:
    def make(told: Script, machine: Machine, pages: int) -> list[Replayed]:
        clock = ManualClock()
        cache = replay_cache(Sizing(Order.LRU, pages, core=core, parts=parts), clock)
        served = CachedPages(told.workload, cache, lambda _: NOTHING_TOLD, parts=parts)
        return World(told, machine, served, clock).run()

    return make


def made(serves: Callable[[Script, Machine, int], Served]) -> Makes:
    return lambda told, machine, pages: replayed(told, machine, serves(told, machine, pages))


NAIVE = made(lambda told, _, pages: NaiveLru(told.workload, pages))
BOUND = made(lambda told, machine, pages: Clairvoyant(told, machine, prompt_trie(told.workload), pages))
ENDLESS = made(lambda told, _, __: Unbounded(told.workload))
CORES = [
    pytest.param("reference", id="reference"),
    pytest.param("native", marks=pytest.mark.native, id="native"),
]
EVERYONE = [
    pytest.param(real("reference"), id="reference"),
    pytest.param(real("native"), marks=pytest.mark.native, id="native"),
    pytest.param(NAIVE, id="naive"),
    pytest.param(BOUND, id="clairvoyant"),
]


def one_by_one(paged: Workload, closes: bool = False) -> Script:
    """All sessions begin a second after each other, and their calls come ten seconds after each other."""
    gaps = [[0, *(10 * SECOND for _ in session.calls[1:])] for session in paged.sessions]
    return script(paged, [at * SECOND for at in range(len(paged.sessions))], gaps, closes)


def told(calls: Sequence[Replayed]) -> list[tuple[int, Why]]:
    """Pages found and why not more, in the order of the calls' ends."""
    return [(one.found.pages, one.found.why) for one in calls]


@pytest.mark.parametrize("replay", [*EVERYONE, pytest.param(ENDLESS, id="unbounded")])
def test_new_text_was_never_stored_and_a_rewrite_changed_the_prefix(replay: Makes) -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 2, 3, 4]), Says([1, 2, 9, 4])])
    assert told(replay(one_by_one(paged), AT_ONCE, 20)) == [
        (0, Why.NEVER_STORED),
        (3, Why.NEVER_STORED),
        (2, Why.PREFIX_CHANGED),
    ]


@pytest.mark.parametrize("replay", EVERYONE)
def test_what_was_kept_and_is_gone_was_evicted_or_closed(replay: Makes) -> None:
    paged = workload([Says([1, 2, 3])], [Says([7, 8, 9])], [Says([1, 2, 3])])
    for closes, gone in ((False, Why.EVICTED), (True, Why.CLOSED)):
        *_, last = told(replay(one_by_one(paged, closes), AT_ONCE, 3))
        assert last[1] is gone


@pytest.mark.parametrize("replay", EVERYONE)
def test_what_was_computed_and_found_no_room_was_not_evicted(replay: Makes) -> None:
    """Room for four pages: the first call keeps three of them while the second one runs."""
    paged = workload([Says([1, 2, 3], answer=0, spare=60)], [Says([4, 5]), Says([4, 5])])
    gaps = [[0], [0, 50 * SECOND]]
    calls = replay(script(paged, [0, SECOND], gaps), SLOW, 4)
    again = calls[-1]
    assert (again.call.session, again.call.turn) == (1, 1)
    assert told([again]) == [(1, Why.NO_ROOM)]


@pytest.mark.parametrize("replay", EVERYONE)
def test_the_latest_of_both_is_told(replay: Makes) -> None:
    """Page 5 finds no room, then it does, and is evicted by 7 8 9 6."""
    paged = workload(
        [Says([1, 2, 3], answer=0, spare=60)],
        [Says([4, 5]), Says([4, 5]), Says([4, 5])],
        [Says([7, 8, 9, 6])],
    )
    gaps = [[0], [0, 50 * SECOND, 50 * SECOND], [0]]
    calls = replay(script(paged, [0, SECOND, 80 * SECOND], gaps), SLOW, 4)
    by_turn = {(one.call.session, one.call.turn): one.found.why for one in calls}
    assert (by_turn[1, 1], by_turn[1, 2]) == (Why.NO_ROOM, Why.EVICTED)


@pytest.mark.parametrize("core", CORES)
def test_where_no_state_ever_was_there_is_no_checkpoint(core: str) -> None:
    """The first prompt keeps one state, behind page 6; who leaves it after page 4 makes one there for the next."""
    paged = workload([Says([1, 2, 3, 4, 5, 6])], [Says([1, 2, 3, 4, 9])], [Says([1, 2, 3, 4, 8, 8])])
    expected = [(0, Why.NEVER_STORED), (0, Why.NO_CHECKPOINT), (4, Why.NEVER_STORED)]
    assert told(real(core, STATES)(one_by_one(paged), AT_ONCE, 100)) == expected
    assert told(replayed(one_by_one(paged), AT_ONCE, Unbounded(paged, STATES))) == expected


FORKS = workload([Says([1, 2, 3, 4])], [Says([1, 2, 3, 4, 5, 6])], [Says([8, 8])], [Says([1, 2, 3, 4, 9, 9])])
"""What the first leaves behind page 4 is the oldest when the third needs a place, and FULL goes on to page 6."""


@pytest.mark.parametrize("core", CORES)
def test_a_state_that_was_there_is_told_to_be_evicted(core: str) -> None:
    two = Parts(states=True, chunk=CHUNK, every_chunks=SELDOM, state_tokens=10 * PAGE_TOKENS)
    calls = told(real(core, two)(one_by_one(FORKS), AT_ONCE, 20))
    assert calls[1:] == [(4, Why.NEVER_STORED), (0, Why.NEVER_STORED), (0, Why.CHECKPOINT_EVICTED)]


@pytest.mark.parametrize("core", CORES)
def test_where_no_window_ever_was_there_is_a_gap(core: str) -> None:
    paged = workload([Says([1, 2, 3, 4, 5, 6, 7, 8])], [Says([1, 2, 3, 4, 9])], [Says([1, 2, 3, 4, 8, 8])])
    expected = [(0, Why.NEVER_STORED), (0, Why.WINDOW_GAP), (4, Why.NEVER_STORED)]
    assert told(real(core, WINDOW)(one_by_one(paged), AT_ONCE, 100)) == expected
    assert told(replayed(one_by_one(paged), AT_ONCE, Unbounded(paged, WINDOW))) == expected


@pytest.mark.parametrize("core", CORES)
def test_a_window_that_was_there_is_told_to_be_evicted(core: str) -> None:
    four = Parts(window=CHUNK, chunk=CHUNK, every_chunks=SELDOM, window_share=0.2)
    calls = told(real(core, four)(one_by_one(FORKS), AT_ONCE, 20))
    assert calls[1:] == [(4, Why.NEVER_STORED), (0, Why.NEVER_STORED), (0, Why.WINDOW_EVICTED)]


@pytest.mark.parametrize("core", CORES)
def test_all_that_may_be_reused_is_all_up_to_the_last_chunk(core: str) -> None:
    paged = workload([Says([1, 2, 3])], [Says([1, 2, 3])])
    calls = told(real(core, STATES)(one_by_one(paged), AT_ONCE, 100))
    assert calls[1] == (2, Why.NOTHING)
