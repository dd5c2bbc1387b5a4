"""The closed loop, by hand: when calls arrive, start and end, and who begins next."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from agentcache.clock import ManualClock
from agentcache.engine.scheduler import PATIENCE, PrefillOrder
from agentcache.replay.lab.serving import NANOSECONDS, Found, Machine
from agentcache.replay.lab.world import World
from agentcache.replay.paged import PAGE_TOKENS, PagedCall
from tests.worlds import Says, script, workload

SECOND = NANOSECONDS
MACHINE = Machine(prefill=PAGE_TOKENS, decode=PAGE_TOKENS)
"""A second for a page, computed or answered."""

QUEUED = Machine(prefill=PAGE_TOKENS, decode=PAGE_TOKENS, queue=True)


@dataclass
class Scripted:
    """`Served` that finds what it is told to, has room as often as it is told to, and writes down what it is asked."""

    found: dict[tuple[int, int], Found] = field(default_factory=dict)
    refusals: dict[tuple[int, int], int] = field(default_factory=dict)
    missing: dict[int, int] = field(default_factory=dict)
    asked: list[tuple[str, int, int, int]] = field(default_factory=list)
    expected: list[list[tuple[int, int]]] = field(default_factory=list)

    def arrive(self, call: PagedCall, now_ns: int) -> None:
        self.asked.append(("arrive", call.session, call.turn, now_ns // SECOND))

    def uncached(self, call: PagedCall) -> int:
        return self.missing.get(call.session, 0)

    def expects(self, starts: Sequence[tuple[PagedCall, int]], now_ns: int) -> None:
        self.expected.append([(call.session, start_ns // SECOND) for call, start_ns in starts])

    def start(self, call: PagedCall, now_ns: int, must: bool) -> Found | None:
        key = (call.session, call.turn)
        if not must and self.refusals.get(key, 0):
            self.refusals[key] -= 1
            return None
        self.asked.append(("start", *key, now_ns // SECOND))
        return self.found.get(key, Found())

    def computed(self, call: PagedCall, now_ns: int) -> None:
        self.asked.append(("computed", call.session, call.turn, now_ns // SECOND))

    def finish(self, call: PagedCall, now_ns: int) -> None:
        self.asked.append(("finish", call.session, call.turn, now_ns // SECOND))

    def close(self, session: int, now_ns: int) -> None:
        self.asked.append(("close", session, -1, now_ns // SECOND))


def seconds(*starts: int) -> list[int]:
    return [start * SECOND for start in starts]


def starts(served: Scripted) -> list[tuple[int, int]]:
    """(session, second) of every start."""
    return [(session, at) for what, session, _, at in served.asked if what == "start"]


def test_a_session_goes_on_its_gap_after_the_end_of_the_call_before() -> None:
    paged = workload([Says([1, 2], answer=3, spare=0), Says([1, 2, 3, 4], answer=0, spare=0)])
    served = Scripted(found={(0, 1): Found(device=1, host=0)})
    world = World(script(paged, seconds(10), [seconds(0, 5)], closes=True), MACHINE, served, ManualClock())
    first, second = world.run()
    assert (first.arrived_ns, first.first_token_ns, first.ended_ns) == tuple(seconds(10, 12, 15))
    assert (second.arrived_ns, second.first_token_ns, second.ended_ns) == tuple(seconds(20, 23, 23))
    assert served.asked == [
        ("arrive", 0, 0, 10),
        ("start", 0, 0, 10),
        ("computed", 0, 0, 12),
        ("finish", 0, 0, 15),
        ("arrive", 0, 1, 20),
        ("start", 0, 1, 20),
        ("computed", 0, 1, 23),
        ("finish", 0, 1, 23),
        ("close", 0, -1, 23),
    ]


def test_without_a_queue_all_begin_on_arrival() -> None:
    paged = workload([Says([1] * 4, spare=0)], [Says([2] * 4, spare=0)])
    served = Scripted()
    World(script(paged, seconds(0, 1), [[0], [0]]), MACHINE, served, ManualClock()).run()
    assert starts(served) == [(0, 0), (1, 1)]


def test_with_a_queue_one_is_computed_after_the_other() -> None:
    paged = workload([Says([1] * 4, spare=0, answer=9)], [Says([2] * 2, spare=0)], [Says([3], spare=0)])
    served = Scripted()
    World(script(paged, seconds(0, 1, 2), [[0], [0], [0]]), QUEUED, served, ManualClock()).run()
    assert starts(served) == [(0, 0), (1, 4), (2, 6)]


def test_what_finds_no_room_waits_until_something_ends_and_nobody_passes_it() -> None:
    paged = workload([Says([1], spare=0, answer=9)], [Says([2], spare=0)], [Says([3], spare=0)])
    served = Scripted(refusals={(1, 0): 99})
    World(script(paged, seconds(0, 1, 2), [[0], [0], [0]]), QUEUED, served, ManualClock()).run()
    assert starts(served) == [(0, 0), (1, 10), (2, 11)]


def test_the_least_to_compute_goes_first_and_all_hear_when_they_will_start() -> None:
    paged = workload([Says([1] * 4, spare=0)], [Says([2] * 9, spare=0)], [Says([3] * 2, spare=0)])
    served = Scripted(missing={1: 9, 2: 2})
    machine = Machine(prefill=PAGE_TOKENS, decode=PAGE_TOKENS, queue=True, turns=PrefillOrder.LEAST_UNCACHED)
    World(script(paged, seconds(0, 1, 2), [[0], [0], [0]]), machine, served, ManualClock()).run()
    assert starts(served) == [(0, 0), (2, 4), (1, 6)]
    assert served.expected == [[(1, 6)]]


def test_the_oldest_is_passed_over_only_so_often() -> None:
    small = PATIENCE + 4
    paged = workload(
        [Says([1], spare=0)], [Says([2] * 9, spare=0)], *([Says([3], spare=0)] for _ in range(small))
    )
    served = Scripted(missing={1: 9})
    machine = Machine(prefill=PAGE_TOKENS, decode=PAGE_TOKENS, queue=True, turns=PrefillOrder.LEAST_UNCACHED)
    gaps = [[0] for _ in range(small + 2)]
    World(script(paged, [0] * (small + 2), gaps), machine, served, ManualClock()).run()
    order = [session for session, _ in starts(served)]
    assert order.index(1) == PATIENCE + 1


def test_a_child_begins_its_gap_after_the_call_of_its_parent_that_launched_it() -> None:
    paged = workload([Says([1], spare=0), Says([1, 2], spare=0)], [Says([7], spare=0)], parents={1: (0, 1)})
    served = Scripted()
    World(script(paged, seconds(0), [seconds(0, 50), seconds(3)]), MACHINE, served, ManualClock()).run()
    assert ("arrive", 1, 0, 4) in served.asked


def test_what_comes_from_a_lower_tier_takes_its_time() -> None:
    paged = workload([Says([1, 2, 3, 4], spare=0)])
    machine = Machine(prefill=PAGE_TOKENS, from_host=2 * PAGE_TOKENS, from_external=PAGE_TOKENS / 2)
    served = Scripted(found={(0, 0): Found(device=1, host=1, external=1)})
    (one,) = World(script(paged, seconds(0), [[0]]), machine, served, ManualClock()).run()
    assert one.first_token_ns == 3.5 * SECOND


def test_a_parent_is_closed_after_the_last_below_it() -> None:
    """A child that begins at the parent's last call, and a child of that one; a sibling is over before."""
    paged = workload(
        [Says([1], spare=0)],
        [Says([2], spare=0)],
        [Says([3], spare=0), Says([3, 4], spare=0)],
        [Says([5], spare=0)],
        parents={1: (0, 1), 2: (0, 1), 3: (2, 2)},
    )
    served = Scripted()
    gaps = [seconds(0), seconds(1), seconds(2, 3), seconds(4)]
    World(script(paged, seconds(0), gaps, closes=True), MACHINE, served, ManualClock()).run()
    closed = [(session, at) for what, session, _, at in served.asked if what == "close"]
    assert closed == [(1, 3), (3, 14), (2, 14), (0, 14)]


def test_nothing_is_closed_where_nobody_says_so() -> None:
    paged = workload([Says([1], spare=0)], [Says([2], spare=0)], parents={1: (0, 1)})
    served = Scripted()
    World(script(paged, seconds(0), [[0], [0]]), MACHINE, served, ManualClock()).run()
    assert not any(what == "close" for what, *_ in served.asked)


def test_tokens_that_fill_no_page_are_not_cached() -> None:
    """With as many pages uncached, what is over a page does not count for who has the longest prefix: age does."""
    paged = workload(
        [Says([1] * 4, spare=0)],
        [Says([2] * 5, spare=1)],
        [Says([3] * 5, spare=60)],
        [Says([4] * 5, spare=0)],
    )
    served = Scripted(missing={1: 5, 2: 5, 3: 4})
    machine = Machine(prefill=PAGE_TOKENS, decode=PAGE_TOKENS, queue=True, turns=PrefillOrder.LONGEST_PREFIX)
    World(script(paged, seconds(0, 1, 2, 3), [[0]] * 4), machine, served, ManualClock()).run()
    assert [session for session, _ in starts(served)] == [0, 3, 1, 2]


class Losing(Scripted):
    """Starts nothing, even what must start."""

    def start(self, call: PagedCall, now_ns: int, must: bool) -> Found | None:
        return None


def test_a_call_that_is_lost_is_no_replay() -> None:
    paged = workload([Says([1], spare=0)])
    with pytest.raises(AssertionError, match="a call was lost"):
        World(script(paged, seconds(0), [[0]]), MACHINE, Losing(), ManualClock()).run()
