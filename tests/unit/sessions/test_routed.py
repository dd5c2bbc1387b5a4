"""What a router's orders let go of, what they leave behind, and whose lease it is."""

from typing import Any

from agentcache.errors import Kind
from agentcache.records import SessionRules
from agentcache.routed import LAST_PLACEMENT, KnownSession, Parting
from agentcache.sessions import Ticket
from agentcache.types import SessionId, SessionState
from tests.unit.sessions.world import CLOSED, EXPIRED, NONE, OPEN, World, refused

STALE = SessionState.STALE
S = SessionId("s")


def tagged(world: World, generation: int, placement: int = 0, session: str = "s", **tag: Any) -> Ticket:
    return world.request(session, generation=generation, placement=placement, issued=True, **tag)


def turn(world: World, generation: int, placement: int = 0, session: str = "s", epoch: str = "") -> bool:
    return world.end(world.begin(tagged(world, generation, placement, session, epoch=epoch)))


def close(world: World, generation: int, session: str = "s") -> Parting:
    return world.registry.routed.close(SessionId(session), generation, world.now)


def expire(world: World, generation: int, even_busy: bool = False) -> Parting:
    return world.registry.routed.expire(S, generation, world.now, even_busy)


def moved(world: World, generation: int, placement: int) -> Parting:
    return world.registry.routed.moved(S, generation, placement, world.now)


# close


def test_close_releases_through_its_generation_and_again_nothing(world: World) -> None:
    turn(world, 7)
    assert close(world, 7) == Parting(S, 7, releases=7)
    assert close(world, 7) == Parting(S, 7)
    assert world.state() == (CLOSED, 7)
    assert not turn(world, 7)


def test_close_that_comes_late_spares_the_next_generation(world: World) -> None:
    turn(world, 7)
    running = world.begin(tagged(world, 9))
    assert close(world, 7) == Parting(S, 9, releases=7)
    assert world.state() == (OPEN, 9)
    assert world.end(running)
    late = tagged(world, 7)
    assert (late.state, late.registers) == (CLOSED, False)


def test_close_of_a_generation_that_was_never_seen_closes_what_is_there(world: World) -> None:
    running = world.begin(tagged(world, 7))
    assert close(world, 9) == Parting(S, 9, releases=9)
    assert not world.end(running)
    assert not turn(world, 9)
    assert turn(world, 10)


def test_close_of_an_unknown_session_meets_the_request_that_comes_after_it(world: World) -> None:
    assert close(world, 7) == Parting(S, 7, releases=7, known=False)
    assert tagged(world, 7).state is CLOSED
    assert not turn(world, 7)
    assert close(world, 9) == Parting(S, 9)  # a tombstone is known
    assert not turn(world, 9)


def test_close_while_running_is_never_registered_and_never_forgotten() -> None:
    world = World(SessionRules(tombstones=0))
    running = world.begin(tagged(world, 7))
    close(world, 7)
    assert world.state() == (CLOSED, 7)
    assert not world.end(running)
    with refused(Kind.SESSION_UNKNOWN):
        world.state()


# expiry


def test_expiry_is_an_offer(world: World) -> None:
    ticket = tagged(world, 7)
    assert expire(world, 7) == Parting(S, 7, busy=True)
    world.begin(ticket)
    assert expire(world, 7) == Parting(S, 7, busy=True)
    assert world.end(ticket)
    assert expire(world, 7) == Parting(S, 7, releases=7)
    assert world.state() == (EXPIRED, 7)


def test_expiry_leaves_no_tombstone_and_what_is_late_stays_unreferenced(world: World) -> None:
    turn(world, 7, placement=3)
    expire(world, 7)
    assert world.registry.counts().tombstones == 0
    late = tagged(world, 7, placement=4)
    assert (late.state, late.registers) == (STALE, False)
    with refused(Kind.SESSION_STALE):
        tagged(world, 7, strict=True)
    again = tagged(world, 8)
    assert (again.state, again.registers) == (EXPIRED, True)


def test_expiry_after_the_next_generation_came_takes_only_the_older(world: World) -> None:
    turn(world, 7)
    turn(world, 8)
    assert expire(world, 7) == Parting(S, 8, releases=7)
    assert world.state() == (OPEN, 8)


def test_expiry_that_is_no_offer_ends_what_runs(world: World) -> None:
    running = world.begin(tagged(world, 7))
    assert expire(world, 7, even_busy=True) == Parting(S, 7, releases=7)
    assert not world.end(running)


def test_expiry_before_its_request_arrives_is_remembered(world: World) -> None:
    assert expire(world, 7) == Parting(S, 7, releases=7, known=False)
    assert not turn(world, 7)
    assert turn(world, 8)


# moves


def test_a_session_that_moved_is_unknown_here_and_what_is_late_stays_unreferenced(world: World) -> None:
    running = world.begin(tagged(world, 7, placement=2))
    assert moved(world, 7, 3) == Parting(S, 7, releases=7)
    assert not world.end(running)
    with refused(Kind.SESSION_UNKNOWN):
        world.state()
    late = tagged(world, 7, placement=2)
    assert (late.state, late.registers) == (STALE, False)
    assert list(world.registry.routed.known(world.now)) == []


def test_a_session_that_came_back_is_not_released_by_the_notice_that_it_left(world: World) -> None:
    turn(world, 7, placement=2)
    turn(world, 7, placement=4)
    assert moved(world, 7, 3) == Parting(S, 7, busy=True)
    assert world.state() == (OPEN, 7)
    assert turn(world, 7, placement=2)


def test_a_session_comes_back_after_it_left(world: World) -> None:
    turn(world, 7, placement=2)
    running = world.begin(tagged(world, 7, placement=2))
    moved(world, 7, 3)
    assert turn(world, 7, placement=4)
    assert world.state() == (OPEN, 7)
    assert not world.end(running)
    assert moved(world, 7, 3) == Parting(S, 7, busy=True)  # once more
    assert moved(world, 7, 5) == Parting(S, 7, releases=7)


def test_a_move_before_its_first_request_arrives_is_remembered(world: World) -> None:
    assert moved(world, 7, 1) == Parting(S, 7, releases=7, known=False)
    assert not turn(world, 7, placement=0)
    assert turn(world, 7, placement=1)


def test_a_move_of_an_older_generation_spares_the_current_one(world: World) -> None:
    turn(world, 7)
    turn(world, 9)
    assert moved(world, 8, 5) == Parting(S, 9, releases=8)
    assert world.state() == (OPEN, 9)
    assert not turn(world, 8, placement=4)


def test_a_move_in_a_generation_not_seen_yet_takes_all_before_it(world: World) -> None:
    turn(world, 7, placement=9)
    assert moved(world, 9, 2) == Parting(S, 9, releases=9)
    assert not turn(world, 7, placement=9)
    assert not turn(world, 9, placement=1)
    assert turn(world, 9, placement=2)


def test_placements_count_anew_in_each_generation(world: World) -> None:
    turn(world, 7, placement=9)
    turn(world, 8, placement=1)
    assert moved(world, 8, 2) == Parting(S, 8, releases=8)


def test_a_close_holds_whatever_moves(world: World) -> None:
    turn(world, 7)
    close(world, 7)
    moved(world, 7, 4)
    expire(world, 7)
    assert world.state() == (CLOSED, 7)
    assert not turn(world, 7, placement=9)
    moved(world, 9, 4)
    assert not turn(world, 9, placement=3)
    assert turn(world, 9, placement=4)


# leases


def test_where_a_router_is_heard_no_lease_runs_out(world: World) -> None:
    turn(world, 7)
    for _ in range(5):
        world.now_s += 1799
        world.registry.routed.heard(world.now)
        assert world.state() == (OPEN, 7)
    world.now_s += 1800
    assert world.state() == (OPEN, 7)
    world.now_s += 0.001
    assert world.state() == (EXPIRED, 7)
    assert turn(world, 7)  # nobody took the generation away


def test_an_order_is_a_sign_of_life(world: World) -> None:
    turn(world, 7)
    world.now_s += 1000
    close(world, 3, "other")
    world.now_s += 1000
    assert world.state() == (OPEN, 7)


def test_a_sign_of_life_of_long_ago_changes_nothing(world: World) -> None:
    turn(world, 7)
    world.registry.routed.heard(int((world.now_s - 1000) * 1e9))
    world.now_s += 1800
    assert world.state() == (OPEN, 7)


# what is remembered, and told


def test_what_moved_is_bounded_and_what_is_forgotten_too_early_is_suspect() -> None:
    world = World(SessionRules(tombstones=1))
    for number, session in enumerate(("a", "b"), start=7):
        turn(world, number, session=session)
        world.registry.routed.moved(SessionId(session), number, 1, world.now)
    late = tagged(world, 7, session="a")
    assert (late.state, late.registers) == (NONE, False)
    assert not tagged(world, 6, session="never seen").registers
    assert tagged(
        world, 8, session="new"
    ).registers  # above all that were forgotten: it cannot be one of them
    world.now_s += 120.1
    assert tagged(world, 6, session="never seen").registers


def test_a_session_that_moved_is_remembered_while_it_runs() -> None:
    world = World(SessionRules(tombstones=0))
    running = world.begin(tagged(world, 7))
    moved(world, 7, 1)
    assert not turn(world, 7)
    assert not world.end(running)


def test_what_is_known_is_told(world: World) -> None:
    turn(world, 7, placement=2)
    world.open("t", ttl_s=5.0)
    world.request("u", generation=9, issued=True, parent=S)
    world.now_s += 3
    assert list(world.registry.routed.known(world.now)) == [
        KnownSession(S, 7, 2, 3.0, 1800.0, None, False),
        KnownSession(SessionId("t"), 1, 0, 3.0, 5.0, None, False),
        KnownSession(SessionId("u"), 9, 0, 0.0, 1800.0, S, True),
    ]


def test_the_highest_generation_of_any_tag_or_order_is_known(world: World) -> None:
    turn(world, 7)
    world.open("own", fence=True)
    assert world.registry.routed.highest == 7
    moved(world, 9, 1)
    tagged(world, 8, session="t")
    assert world.registry.routed.highest == 9
    assert LAST_PLACEMENT > 2**62


# confirmed once


def unconfirmed(world: World) -> list[tuple[str, int, bool]]:
    told = world.registry.routed.unconfirmed(world.now)
    return [(one.session, one.generation, one.lost) for one in told]


def test_a_session_that_a_tag_makes_known_is_told_once(world: World) -> None:
    world.registry.routed.epoch = "e"
    turn(world, 7, epoch="e")
    turn(world, 7, epoch="e")
    assert unconfirmed(world) == [(S, 7, False)]
    turn(world, 7, epoch="e")
    assert unconfirmed(world) == []
    turn(world, 8, epoch="e")
    assert unconfirmed(world) == [(S, 8, False)]
    moved(world, 8, 1)
    turn(world, 8, placement=1, epoch="e")
    assert unconfirmed(world) == [(S, 8, False)]


def test_a_tag_of_another_epoch_is_a_reason_to_ask(world: World) -> None:
    turn(world, 7, epoch="e")
    assert unconfirmed(world) == [(S, 7, True)]  # nothing was heard of the store yet
    world.registry.routed.epoch = "e"
    turn(world, 7, epoch="e")
    assert unconfirmed(world) == []
    world.registry.routed.epoch = "f"
    turn(world, 7, epoch="e")
    assert unconfirmed(world) == [(S, 7, True)]


def test_what_has_ended_or_registers_nothing_needs_no_confirmation(world: World) -> None:
    turn(world, 7, epoch="e")
    close(world, 7)
    turn(world, 7, epoch="f")
    assert unconfirmed(world) == []


# parents that a router names


def test_a_routers_parent_may_be_with_another_worker(world: World) -> None:
    ticket = world.request("child", generation=7, issued=True, parent=SessionId("far"))
    assert not ticket.parent_ignored
    assert next(world.registry.routed.known(world.now)).parent == "far"


def test_a_routers_word_on_parents_is_the_last(world: World) -> None:
    world.request("child", generation=7, issued=True, parent=SessionId("one"))
    world.request("child", generation=7, issued=True, parent=SessionId("two"))
    assert next(world.registry.routed.known(world.now)).parent == "two"


def test_a_routers_parent_that_would_be_a_circle_is_ignored(world: World) -> None:
    world.request("a", generation=7, issued=True, parent=SessionId("b"))
    assert world.request("b", generation=8, issued=True, parent=SessionId("a")).parent_ignored
    assert world.request("c", generation=9, issued=True, parent=SessionId("c")).parent_ignored
