"""Completion, open and close, the idle lease."""

import pytest

from agentcache.errors import Kind
from agentcache.records import SessionRules
from agentcache.sessions import Lapsed
from agentcache.types import SessionId
from tests.unit.sessions.world import CLOSED, EXPIRED, OPEN, World, closed_now, idled_out, opened, refused

# completion


def test_completion_after_close_does_not_register(world: World) -> None:
    ticket = world.begin(world.request())
    world.close()
    assert not world.end(ticket)
    assert world.state() == (CLOSED, 1)


def test_completion_after_close_and_reopen_does_not_register(world: World) -> None:
    ticket = world.begin(world.request())
    world.close()
    assert world.open() == (2, True)
    assert not world.end(ticket)
    assert world.turn()


def test_completion_of_a_fenced_off_generation_does_not_register(world: World) -> None:
    ticket = world.begin(world.request())
    assert world.open(fence=True) == (2, False)
    assert not world.end(ticket)


def test_completion_overtaken_by_a_routers_generation_does_not_register(world: World) -> None:
    ticket = world.begin(world.request(generation=4, issued=True))
    assert world.turn(generation=5, issued=True)
    assert not world.end(ticket)


def test_completion_of_an_unreferenced_request_stays_so_after_reopening(world: World) -> None:
    closed_now(world)
    ticket = world.begin(world.request())
    world.open()
    assert not world.end(ticket)


def test_sequence_orders_admissions_and_ends(world: World) -> None:
    first, second = world.request(), world.request()
    starts = [world.registry.begin(second, world.now), world.registry.begin(first, world.now)]
    ends = [world.registry.complete(ticket, world.now).finish_seq for ticket in (first, second)]
    assert starts + ends == sorted({*starts, *ends})


def test_ticket_is_used_once(world: World) -> None:
    ticket = world.request()
    with refused(Kind.LEASE_REUSED):
        world.end(ticket)
    world.begin(ticket)
    with refused(Kind.LEASE_REUSED):
        world.begin(ticket)
    with refused(Kind.LEASE_REUSED):
        world.registry.leave(ticket, world.now)
    world.end(ticket)
    with refused(Kind.LEASE_REUSED):
        world.end(ticket)


# open and close


def test_open_again_changes_nothing(world: World) -> None:
    assert world.open(ttl_s=5) == (1, True)
    assert world.open(ttl_s=9) == (1, False)
    assert world.registry.look("s", None, world.now).ttl_s == 5


@pytest.mark.parametrize("ttl_s", [0, -1.0, float("inf"), float("nan")])
def test_open_with_a_ttl_that_is_none_is_refused(world: World, ttl_s: float) -> None:
    with refused(Kind.BAD_REQUEST):
        world.open(ttl_s=ttl_s)
    assert world.registry.counts().open == 0


def test_close_twice_answers_the_same(world: World) -> None:
    opened(world)
    first = world.registry.close("s", None, world.now)
    assert world.registry.close("s", 2, world.now) == first
    assert world.registry.counts().closed == 1


def test_close_again_does_not_delay_reopening(world: World) -> None:
    closed_now(world)
    world.now_s += 59
    world.close()
    world.now_s += 2
    assert world.request().state is OPEN


def test_close_unknown_is_refused(world: World) -> None:
    with refused(Kind.SESSION_UNKNOWN):
        world.close()


@pytest.mark.parametrize("generation", [1, 3])
def test_close_of_another_generation_changes_nothing(world: World, generation: int) -> None:
    opened(world)
    with refused(Kind.SESSION_STALE):
        world.close(generation=generation)
    assert world.state() == (OPEN, 2)


def test_close_meant_for_a_former_life_is_stale(world: World) -> None:
    """R014: a duplicate close of generation 1 must not touch generation 2."""
    world.open()
    world.close(generation=1)
    world.open()
    with refused(Kind.SESSION_STALE):
        world.close(generation=1)
    assert world.turn()


def test_close_after_expiry_leaves_a_tombstone(world: World) -> None:
    idled_out(world)
    assert world.close() == 2
    assert world.request().state is CLOSED


# the idle lease


def test_lease_runs_out_only_after_its_time(world: World) -> None:
    world.turn()
    world.now_s += 1800
    assert world.state() == (OPEN, 1)
    world.now_s += 0.001
    assert world.state() == (EXPIRED, 1)
    assert world.lapsed == [Lapsed(SessionId("s"), 1)]


def test_lease_is_renewed_by_every_turn(world: World) -> None:
    for _ in range(5):
        world.now_s += 1700
        assert world.turn()
    assert world.state() == (OPEN, 1)


@pytest.mark.parametrize("running", [False, True])
def test_lease_never_runs_out_under_a_request(world: World, running: bool) -> None:
    ticket = world.request()
    if running:
        world.begin(ticket)
    world.now_s += 1e6
    assert world.state() == (OPEN, 1)
    assert world.end(ticket if running else world.begin(ticket))
    world.now_s += 1799
    assert world.state() == (OPEN, 1)
    world.now_s += 2
    assert world.state() == (EXPIRED, 1)


def test_lease_is_renewed_by_a_request_that_left(world: World) -> None:
    ticket = world.request()
    world.now_s += 1799
    world.registry.leave(ticket, world.now)
    world.now_s += 1799
    assert world.state() == (OPEN, 1)


def test_lease_may_differ_by_session(world: World) -> None:
    world.open("short", ttl_s=10)
    world.open("long", ttl_s=1e9)
    world.now_s += 2000
    assert world.state("short")[0] is EXPIRED
    assert world.state("long")[0] is OPEN


def test_expired_is_answered_once(world: World) -> None:
    idled_out(world)
    assert [world.request().state, world.request().state] == [EXPIRED, OPEN]


def test_leases_of_closed_sessions_do_not_pile_up() -> None:
    world = World(SessionRules(tombstones=4))
    for number in range(500):
        world.open(f"s{number}", ttl_s=1e9)
        world.close(f"s{number}")
        world.now_s += 121
    assert len(world.registry._records._leases) < 200
