"""The real cache under replay: what it is told, what it finds, and why not more."""

from collections.abc import Sequence

from agentcache.clock import ManualClock
from agentcache.engine.scheduler import PrefillOrder
from agentcache.replay.lab.cached import CachedPages, Sizing, replay_cache
from agentcache.replay.lab.serving import NANOSECONDS, Machine, Replayed, Why
from agentcache.replay.lab.world import World
from agentcache.replay.paged import PAGE_TOKENS, PagedCall, Workload
from agentcache.tree.api import Order
from agentcache.waits import Told, WaitKind
from tests.worlds import AT_ONCE, Says, script, workload

SECOND = NANOSECONDS


def told(_: PagedCall) -> Told:
    return Told(WaitKind.TOOL)


def play(
    paged: Workload,
    starts: Sequence[int],
    gaps: Sequence[Sequence[int]],
    sizing: Sizing,
    machine: Machine = AT_ONCE,
    closes: bool = True,
) -> tuple[list[Replayed], CachedPages]:
    """The calls in the order of sessions and turns, and the cache after them, checked."""
    clock = ManualClock()
    served = CachedPages(paged, replay_cache(sizing, clock), told)
    seconds = [[gap * SECOND for gap in of_one] for of_one in gaps]
    told_script = script(paged, [start * SECOND for start in starts], seconds, closes)
    calls = World(told_script, machine, served, clock).run()
    served.cache.check()
    return sorted(calls, key=lambda one: (one.call.session, one.call.turn)), served


def whys(calls: Sequence[Replayed]) -> list[Why]:
    return [one.found.why for one in calls]


ROOMY = Sizing(Order.LRU, 100)


def test_a_conversation_finds_all_that_it_said_before() -> None:
    paged = workload([Says([1, 2], answer=1), Says([1, 2, 3, 4], answer=1), Says([1, 2, 3, 4, 5])])
    calls, served = play(paged, [0], [[0, 1, 1]], ROOMY)
    assert [one.found.device for one in calls] == [0, 3, 5]
    assert whys(calls) == [Why.NEVER_STORED, Why.NEVER_STORED, Why.NOTHING]
    assert served.cache.stats().open_references == 0


def test_a_page_that_went_for_want_of_room_was_evicted() -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 2, 3])], [Says([7, 8, 9])])
    calls, _ = play(paged, [0, 1], [[0, 9], [0]], Sizing(Order.LRU, 3), closes=False)
    assert calls[1].found.device == 0
    assert calls[1].found.why is Why.EVICTED


def test_a_page_that_left_after_its_session_was_closed_was_closed() -> None:
    paged = workload([Says([1, 2, 3])], [Says([7, 8, 9])], [Says([1, 2, 3])])
    calls, _ = play(paged, [0, 1, 2], [[0], [0], [0]], Sizing(Order.LRU, 3))
    assert whys(calls) == [Why.NEVER_STORED, Why.NEVER_STORED, Why.CLOSED]


def test_a_prompt_that_leaves_its_path_says_so() -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 9, 3])])
    calls, _ = play(paged, [0], [[0, 1]], ROOMY)
    assert calls[1].found.device == 1
    assert calls[1].found.why is Why.PREFIX_CHANGED


def test_what_finds_no_room_beside_what_runs_is_its_callers_alone() -> None:
    slow = Machine(prefill=PAGE_TOKENS, decode=PAGE_TOKENS)
    paged = workload([Says([1, 2, 3], spare=0)], [Says([4, 5], spare=0), Says([4, 5], spare=0)])
    calls, served = play(paged, [0, 1], [[0], [0, 50]], Sizing(Order.LRU, 4), slow)
    assert calls[1].found.device == 0
    assert calls[2].found.device == 1, "one page of the two had found room"
    assert served.cache.stats().active_turns == 0


def test_what_went_down_to_the_host_is_found_there() -> None:
    paged = workload([Says([1, 2, 3]), Says([1, 2, 3])], [Says([7, 8, 9])])
    calls, _ = play(paged, [0, 1], [[0, 9], [0]], Sizing(Order.LRU, 3, host_pages=3), closes=False)
    assert (calls[1].found.device, calls[1].found.host) == (0, 3)


def test_what_is_on_the_host_is_read_though_the_device_has_no_room_for_it() -> None:
    slow = Machine(prefill=PAGE_TOKENS, from_host=PAGE_TOKENS, decode=PAGE_TOKENS)
    paged = workload(
        [Says([1, 2, 3], spare=0), Says([1, 2, 3], spare=0)], [Says([7, 8, 9], answer=60, spare=0)]
    )
    calls, _ = play(paged, [0, 10], [[0, 20], [0]], Sizing(Order.LRU, 3, host_pages=3), slow, closes=False)
    assert calls[1].found.host == 2


def test_requests_in_a_cache_aware_queue_are_ranked_by_when_they_will_start() -> None:
    """Two sessions of equal age wait; the one that starts next keeps its pages."""
    machine = Machine(prefill=PAGE_TOKENS, decode=PAGE_TOKENS, queue=True, turns=PrefillOrder.LEAST_UNCACHED)
    near, far = [1, 2], [4, 5]
    paged = workload(
        [Says(near, spare=1), Says([*near, 3], spare=1)],
        [Says(far, spare=1), Says([*far, 6, 7, 8], spare=1)],
        [Says([9] * 3, spare=1)],
    )
    calls, _ = play(paged, [0, 4, 10], [[0, 8], [0, 5], [0]], Sizing(Order.ERT, 7), machine, closes=False)
    assert calls[1].found.device == 2


def test_a_computed_prompt_uses_its_pages_though_all_of_them_were_there() -> None:
    """The first session's second prompt takes from second 179 to 219, the other's from 189 to 190. Then a page goes."""
    machine = Machine(prefill=1, decode=1e9)
    slow, quick = Says([1, 2], spare=40), Says([4, 5], spare=1)
    paged = workload([slow] * 3, [quick] * 3, [Says([7], spare=0)])
    gaps = [[0, 11, 300], [0, 60, 400], [0]]
    calls, _ = play(paged, [0, 0, 230], gaps, Sizing(Order.LRU, 4), machine, closes=False)
    assert [(one.started_ns // SECOND, one.found.device) for one in calls[:6]] == [
        (0, 0),
        (179, 2),
        (519, 2),
        (0, 0),
        (189, 2),
        (590, 1),
    ]
