"""What the registry says that a session is doing."""

from copy import deepcopy

import pytest

from agentcache.errors import Kind
from agentcache.records import Paused, SessionRules
from agentcache.types import SessionId, Wait, WaitState
from agentcache.waits import Told, WaitKind
from tests.unit.sessions.world import World, refused

S = SessionId("s")


def wait(world: World, session: str = "s") -> Wait:
    return world.registry.wait(SessionId(session))


def test_queued_then_running_then_idle(world: World) -> None:
    ticket = world.request()
    assert wait(world) == Wait(WaitState.PENDING, seq=ticket.number)
    world.now_s += 5
    world.begin(ticket)
    assert wait(world) == Wait(WaitState.RUNNING, world.now, world.now)
    world.now_s += 5
    world.end(ticket)
    idle = wait(world)
    assert (idle.state, idle.since_ns, idle.hint_ns) == (WaitState.IDLE, world.now, None)
    assert idle.since_ns - idle.key_ns == pytest.approx(60e9)  # as is typical


def test_a_running_session_goes_by_its_start_and_the_gap_expected_before(world: World) -> None:
    """What the request does not hold is read after it and a gap; a first turn has none before it."""
    first = world.begin(world.request())
    assert wait(world) == Wait(WaitState.RUNNING, world.now, world.now)
    world.registry.complete(first, world.now, Told(WaitKind.TOOL))
    gap_ns = wait(world).since_ns - wait(world).key_ns
    world.now_s += 7
    world.begin(world.request())
    assert gap_ns == pytest.approx(5e9)  # as is typical
    assert wait(world) == Wait(WaitState.RUNNING, world.now, world.now - gap_ns)


def test_a_session_whose_agents_overlap_has_no_gap_before_their_turns(world: World) -> None:
    """It is never idle: a gap from before would stay for ever, while another branch is read at any moment."""
    world.end(world.begin(world.request()))
    world.now_s += 60
    running = world.begin(world.request())
    assert wait(world).key_ns < world.now
    for _ in range(3):
        world.now_s += 5
        following = world.begin(world.request())
        assert wait(world) == Wait(WaitState.RUNNING, world.now, world.now)
        world.end(running)
        running = following


def test_the_first_turn_of_a_session_that_was_closed_has_no_gap_before_it(world: World) -> None:
    world.end(world.begin(world.request()))
    world.now_s += 60
    world.close()
    world.open()
    world.begin(world.request(generation=2))
    assert wait(world) == Wait(WaitState.RUNNING, world.now, world.now)


def test_of_several_requests_the_first_in_the_queue_counts(world: World) -> None:
    first, second = world.request(), world.request()
    assert wait(world).seq == first.number
    world.begin(first)
    assert (wait(world).state, wait(world).seq) == (WaitState.PENDING, second.number)
    world.registry.leave(second, world.now)
    assert wait(world).state is WaitState.RUNNING
    world.end(first)
    assert wait(world).state is WaitState.IDLE


def test_each_session_has_its_own_place(world: World) -> None:
    places = [world.request(name).number for name in "abc"]
    assert [wait(world, name).seq for name in "abc"] == places


def test_requests_that_never_began_leave_the_forecast_as_it_was(world: World) -> None:
    """Five clients that hang up in the queue: no turn, no gap, no end, and the hint of the last turn still counts."""
    for _ in range(5):
        world.end(world.begin(world.request()))
        world.now_s += 10
    told = world.begin(world.request())
    world.registry.complete(told, world.now, Told(WaitKind.TOOL, 30.0))
    before = wait(world), deepcopy(world.registry._forecast), deepcopy(world.registry._records.find(S).away)
    assert before[0].hint_ns == 30 * 10**9
    for _ in range(5):
        world.now_s += 7
        ticket = world.request()
        assert wait(world).state is WaitState.PENDING
        world.registry.leave(ticket, world.now)
        assert wait(world) == before[0]
    assert vars(world.registry._forecast) == vars(before[1])
    assert world.registry._records.find(S).away == before[2]


def test_a_request_that_waits_for_a_turns_end_and_leaves_is_none(world: World) -> None:
    """The session is idle since that end, with what was told there."""
    running, queued = world.begin(world.request()), world.request()
    world.now_s += 5
    world.registry.complete(running, ended := world.now, Told(WaitKind.TOOL, 30.0))
    assert wait(world).state is WaitState.PENDING
    world.now_s += 7
    world.registry.leave(queued, world.now)
    assert (wait(world).state, wait(world).since_ns, wait(world).hint_ns) == (
        WaitState.IDLE,
        ended,
        30 * 10**9,
    )
    assert world.registry._records.find(S).away.turns == 1


def test_a_request_that_begins_after_a_turns_end_ends_no_gap(world: World) -> None:
    running, queued = world.begin(world.request()), world.request()
    world.end(running)
    world.begin(queued)
    assert not world.registry._records.find(S).away.habits
    world.registry.leave(world.request(), world.now)
    world.end(queued)
    assert world.registry._records.find(S).away.turns == 1


def test_of_a_closed_turn_no_gap_is_left_to_a_later_generation(world: World) -> None:
    running, queued = world.begin(world.request()), world.request()
    world.end(running)
    world.close()
    world.open()
    world.registry.leave(queued, world.now)
    assert world.registry._records.find(S).away.turns == 0


def test_gaps_are_learned_from_the_last_end_to_the_next_arrival(world: World) -> None:
    """Queueing and running are no gap: 10 s each time."""
    for _ in range(6):
        ticket = world.request()
        world.now_s += 1000
        world.begin(ticket)
        world.now_s += 1000
        world.end(ticket)
        world.now_s += 10
    gap_s = (wait(world).since_ns - wait(world).key_ns) / 1e9
    assert 8 < gap_s < 20


def test_what_was_told_at_the_end_counts(world: World) -> None:
    ticket = world.begin(world.request())
    world.registry.complete(ticket, world.now, Told(WaitKind.TOOL, 30.0))
    assert wait(world).hint_ns == 30 * 10**9
    assert wait(world).since_ns - wait(world).key_ns == pytest.approx(5e9)  # a tool typically takes 5 s


def test_a_request_that_is_served_unreferenced_ends_no_gap(world: World) -> None:
    world.turn()
    world.close()
    late = world.request()
    assert not late.registers
    world.end(world.begin(late))
    world.open()
    assert world.registry.wait(S).state is WaitState.IDLE


def test_the_end_of_one_of_two_requests_is_no_gap(world: World) -> None:
    first, second = world.begin(world.request()), world.begin(world.request())
    world.end(first)
    world.now_s += 100
    world.request()
    assert not world.registry._records.find(S).away.habits
    world.end(second)


@pytest.mark.parametrize("when", ["after", "before"])
def test_who_closes_is_not_counted_as_one_that_stays_away(world: World, when: str) -> None:
    """After a turn, or while it runs: who comes next is still expected in 60 s."""
    for number in range(40):
        ticket = world.begin(world.request(f"s{number}"))
        if when == "before":
            world.close(f"s{number}")
        world.end(ticket)
        if when == "after":
            world.close(f"s{number}")
    world.turn("new")
    assert wait(world, "new").since_ns - wait(world, "new").key_ns == pytest.approx(60e9)


def test_what_was_learned_goes_with_the_record() -> None:
    world = World(SessionRules(tombstones=1))
    for _ in range(3):
        world.turn("old")
        world.now_s += 1e4
    world.close("old")
    world.open("other")
    world.close("other")  # one tombstone: the older record is forgotten
    world.now_s += 1e4
    world.turn("old")
    habits = world.registry._records.find(SessionId("old")).away.habits
    assert not habits


# expected starts


def test_of_several_expected_starts_the_earliest_counts_and_the_place_stays() -> None:
    world = World()
    first, second, third = (world.request() for _ in range(3))
    world.registry.expects(second, 700)
    world.registry.expects(third, 900)
    assert wait(world) == Wait(WaitState.PENDING, seq=first.number, eta_ns=700)
    world.begin(second)
    assert wait(world) == Wait(WaitState.PENDING, seq=first.number, eta_ns=900)
    world.registry.leave(third, world.now)
    assert wait(world) == Wait(WaitState.PENDING, seq=first.number)


def test_only_what_is_queued_is_expected_to_begin(world: World) -> None:
    ticket = world.begin(world.request())
    with refused(Kind.LEASE_REUSED):
        world.registry.expects(ticket, 700)
    world.registry.expects(world.registry.arrive(None, world.now), 700)  # nobody's


# what is said of the gap


def hint_s(world: World, session: str = "s") -> float | None:
    hint_ns = wait(world, session).hint_ns
    return None if hint_ns is None else hint_ns / 1e9


def told_kind(world: World) -> WaitKind:
    return world.registry._records.find(S).away.kind


def test_a_request_says_how_long_after_its_turn_it_is_expected_back(world: World) -> None:
    ticket = world.begin(world.request(expected_s=30.0))
    world.now_s += 100
    world.end(ticket)
    assert hint_s(world) == 30.0
    world.now_s += 10
    world.turn()
    assert hint_s(world) is None


def test_what_the_engine_knows_of_the_time_goes_before_what_the_request_said(world: World) -> None:
    ticket = world.begin(world.request(expected_s=30.0))
    world.registry.complete(ticket, world.now, Told(WaitKind.TOOL, 3.0))
    assert (hint_s(world), told_kind(world)) == (3.0, WaitKind.TOOL)


def test_a_pause_says_it_from_then(world: World) -> None:
    world.turn()
    world.now_s += 10
    world.registry.note("s", None, Paused("bash", 20.0), world.now)
    assert (hint_s(world), told_kind(world)) == (30.0, WaitKind.TOOL)
    world.registry.note("s", None, Paused("bash"), world.now)
    assert hint_s(world) == 30.0  # for how long it does not know; what was said stays
    world.registry.note("s", None, None, world.now)
    assert hint_s(world) is None


def test_a_touch_says_nothing(world: World) -> None:
    world.turn()
    world.registry.note("s", None, Paused("bash", 20.0), world.now)
    world.now_s += 10
    assert world.registry.touch("s", None, world.now).paused == Paused("bash", 20.0)
    assert hint_s(world) == 20.0


def test_what_is_said_while_the_turn_runs_counts_once_it_ends(world: World) -> None:
    """Two say something: the client that it will be back in 20 s, and who read the answer that it calls a tool."""
    ticket = world.begin(world.request())
    world.registry.note("s", None, Paused("bash", 20.0), world.now)
    world.now_s += 5
    assert world.registry.tell(S, ticket.generation, Told(WaitKind.TOOL), world.now)
    world.end(ticket)
    assert (hint_s(world), told_kind(world)) == (15.0, WaitKind.TOOL)


def test_the_next_request_makes_void_what_was_said_before_it(world: World) -> None:
    first = world.begin(world.request())
    world.registry.note("s", None, Paused("bash", 20.0), world.now)
    second = world.begin(world.request())
    world.end(first)
    world.end(second)
    assert (hint_s(world), told_kind(world)) == (None, WaitKind.UNKNOWN)


def test_what_is_said_after_the_end_corrects_it(world: World) -> None:
    world.registry.complete(ticket := world.begin(world.request()), world.now, Told(WaitKind.HUMAN))
    assert world.registry.tell(S, ticket.generation, Told(WaitKind.TOOL), world.now)
    assert told_kind(world) is WaitKind.TOOL
    assert wait(world).since_ns - wait(world).key_ns == pytest.approx(5e9)


def test_who_has_moved_on_is_told_nothing(world: World) -> None:
    world.turn()
    generation = world.state()[1]
    before = wait(world)
    assert not world.registry.tell(S, generation + 1, Told(WaitKind.TOOL, 3.0), world.now)
    assert not world.registry.tell(SessionId("nobody"), 1, Told(WaitKind.TOOL, 3.0), world.now)
    assert wait(world) == before
    world.close()
    assert not world.registry.tell(S, generation, Told(WaitKind.TOOL, 3.0), world.now)
