"""Parents and children on one worker: leases, depth, and thousands of them."""

import pytest

from agentcache.errors import Kind
from agentcache.families import Families
from agentcache.ids import MAX_DEPTH
from agentcache.types import SessionId, SessionTag
from tests.unit.sessions.world import CLOSED, EXPIRED, OPEN, World, refused

LEASE_S = 1800.0


def family(world: World) -> None:
    world.open("root")
    world.open("child", parent="root", ttl_s=10 * LEASE_S)


def test_a_parent_does_not_idle_out_under_an_open_child(world: World) -> None:
    family(world)
    for _ in range(4):
        world.now_s += LEASE_S
        assert world.state("root")[0] is OPEN
    assert world.lapsed == []


def test_a_child_that_is_closed_leaves_its_parent_a_whole_lease(world: World) -> None:
    family(world)
    world.now_s += LEASE_S + 1
    assert world.state("root")[0] is OPEN
    world.now_s += LEASE_S - 2
    world.close("child")
    world.now_s += LEASE_S
    assert world.state("root")[0] is OPEN
    world.now_s += 0.001
    assert world.state("root")[0] is EXPIRED


def test_a_child_that_idles_out_leaves_its_parent_a_whole_lease(world: World) -> None:
    world.open("root", ttl_s=5)
    world.open("child", parent="root", ttl_s=20)
    world.now_s += 20.001
    assert world.state("child")[0] is EXPIRED
    world.now_s += 5
    assert world.state("root")[0] is OPEN
    world.now_s += 0.001
    assert world.state("root")[0] is EXPIRED
    assert [lapsed.session for lapsed in world.lapsed] == ["child", "root"]


def test_a_child_that_moved_away_is_not_waited_for_here(world: World) -> None:
    world.turn("root", generation=5, issued=True)
    world.turn("child", generation=6, parent=SessionId("root"), issued=True)
    world.registry.routed.moved(SessionId("child"), 6, 1, world.now)
    world.now_s += 2 * LEASE_S + 1
    assert world.state("root")[0] is EXPIRED


def test_a_grandchild_keeps_all_above_it(world: World) -> None:
    world.open("root")
    world.open("child", parent="root")
    world.open("grandchild", parent="child", ttl_s=4 * LEASE_S)
    world.now_s += 3 * LEASE_S
    assert [world.state(name)[0] for name in ("root", "child")] == [OPEN, OPEN]


def test_a_parent_that_is_closed_stays_closed_under_its_children(world: World) -> None:
    family(world)
    world.close("root")
    world.close("child")
    assert world.state("root")[0] is CLOSED


def test_a_child_that_is_opened_anew_keeps_its_parent_again(world: World) -> None:
    family(world)
    world.close("child")
    world.now_s += LEASE_S / 2
    world.open("child", ttl_s=10 * LEASE_S)
    world.now_s += LEASE_S
    assert world.state("root")[0] is OPEN


def test_a_family_is_so_deep_and_no_deeper(world: World) -> None:
    world.open("0")
    for depth in range(1, MAX_DEPTH + 1):
        world.open(f"{depth}", parent=f"{depth - 1}")
    with refused(Kind.BAD_REQUEST):
        world.open("below", parent=f"{MAX_DEPTH}")
    by_header = world.request("below", parent=SessionId(f"{MAX_DEPTH}"))
    assert by_header.registers
    assert by_header.parent_ignored
    assert world.registry.look("below", None, world.now).parent is None


def test_thousands_of_children_are_closed_with_their_parent(world: World) -> None:
    world.open("root")
    for number in range(5000):
        world.open(f"c{number}", parent="root")
    assert len(world.registry.subtree("root")) == 5000
    world.close("root")
    for child in world.registry.subtree("root"):
        world.close(child)
    counts = world.registry.counts()
    assert (counts.open, counts.tombstones, counts.closed) == (0, 5001, 5001)
    assert world.registry.subtree("root") == ()


@pytest.mark.parametrize("is_open", [True, False])
def test_a_child_that_moves_between_parents_counts_for_one(is_open: bool) -> None:
    families = Families()
    child, one, other = (SessionId(name) for name in ("c", "p", "q"))
    families.move(child, None, one, is_open)
    assert families.is_wanted(one) is is_open
    families.move(child, one, other, is_open)
    assert (families.is_wanted(one), families.is_wanted(other)) == (False, is_open)
    assert (list(families.below(one)), list(families.below(other))) == ([], [child])
    families.move(child, other, None, is_open)
    assert not families.is_wanted(other)


def test_a_session_without_a_turn_waits_since_it_was_opened(world: World) -> None:
    """What it inherited is expected to be read at once, not after all time."""
    world.open("s")
    assert world.registry.wait(SessionId("s")).since_ns == world.now
    ticket = world.registry.arrive(SessionTag(SessionId("t")), world.now)
    opened_ns = world.now
    world.now_s += 5
    world.registry.leave(ticket, world.now)
    wait = world.registry.wait(SessionId("t"))
    assert (wait.since_ns, wait.key_ns) == (opened_ns, opened_ns)
