"""Requests that say how long their session may idle."""

from agentcache.records import SessionRules
from tests.unit.sessions.world import EXPIRED, OPEN, World


def idle(world: World, seconds: float) -> bool:
    """Whether the session is open after so long."""
    world.now_s += seconds
    return world.state()[0] is OPEN


def test_a_request_makes_the_lease_shorter_and_longer(world: World) -> None:
    world.turn()
    world.turn(ttl_s=300)
    assert idle(world, 299)
    assert not idle(world, 2)
    world.turn(ttl_s=7200)
    assert idle(world, 7199)
    assert not idle(world, 2)


def test_a_request_that_says_nothing_leaves_it_as_it_is(world: World) -> None:
    world.turn(ttl_s=300)
    world.turn()
    assert world.registry.look("s", None, world.now).ttl_s == 300
    assert not idle(world, 301)
    assert world.state()[0] is EXPIRED


def test_a_lease_does_not_run_out_under_a_turn(world: World) -> None:
    ticket = world.begin(world.request(ttl_s=1))
    assert idle(world, 1000)
    assert world.end(ticket)
    assert not idle(world, 1.1)


def test_a_request_that_is_served_without_its_session_changes_nothing(world: World) -> None:
    world.turn()
    world.close()
    world.turn(ttl_s=1)  # too early to open it again
    world.now_s += 61
    world.turn()
    assert idle(world, 1799)


def test_no_request_makes_the_lease_shorter_that_the_session_was_opened_with(world: World) -> None:
    world.open(ttl_s=3600)
    world.turn(ttl_s=300)
    assert world.registry.look("s", None, world.now).ttl_s == 3600
    world.turn(ttl_s=7200)
    assert world.registry.look("s", None, world.now).ttl_s == 7200
    world.turn(ttl_s=300)
    assert idle(world, 3599)
    assert not idle(world, 2)


def test_that_lease_ends_with_the_session(world: World) -> None:
    world.open(ttl_s=3600)
    world.close()
    world.open()
    world.turn(ttl_s=300)
    assert not idle(world, 301)


def test_leases_that_change_all_the_time_leave_nothing_behind() -> None:
    world = World(SessionRules())
    for number in range(2000):
        world.turn(f"s{number % 4}", ttl_s=1 + number // 4 % 2 * 3600)
    assert len(world.registry._records._leases) <= 64 + 4 * 4 + 1
    world.now_s += 3700
    assert {world.state(f"s{number}")[0] for number in range(4)} == {EXPIRED}
    assert world.registry._records._leases == []
