"""Sessions over real data: references, late completions, closing, idling."""

import numpy as np

from agentcache.cache import ActiveTurn
from agentcache.errors import Kind
from agentcache.holdings import LetGo
from agentcache.records import Paused
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ReleaseMode,
    SessionId,
    SessionTag,
)
from tests.unit.cache.world import CLOSED, EXPIRED, OPEN, World, refused, text


def test_session_reference_moves_with_the_conversation(world: World) -> None:
    assert world.turn(text(1, 20), "s") == 0
    assert world.turn(text(1, 40), "s") == 16
    assert world.frontiers("s") == [(40, 40)]
    held = {h.component: (h.tokens, h.slots, h.bytes) for h in world.cache.session("s").held}
    assert held == {FULL: (40, 10, 100), SWA: (8, 2, 40), MAMBA: (0, 1, 30)}


def test_late_completion_publishes_and_does_not_register(world: World) -> None:
    """R013."""
    turn = world.begin(text(1, 40), "s")
    world.compute(turn, text(1, 16))
    assert world.cache.close_session("s").released == ()
    world.cache.check()
    world.compute(turn, text(1, 40))
    world.finish(turn)
    assert world.cache.stats().open_references == 0
    assert world.hit(text(1, 40)) == 40


def test_late_completion_after_reopening_does_not_register(world: World) -> None:
    """R014."""
    late = world.begin(text(1, 40), "s")
    world.cache.close_session("s")
    assert world.cache.open_session("s").generation == 2
    world.turn(text(2, 16), "s")
    world.compute(late, text(1, 40))
    world.finish(late)
    assert world.frontiers("s") == [(16, 16)]
    with refused(Kind.SESSION_STALE):
        world.cache.close_session("s", generation=1)
    assert world.frontiers("s") == [(16, 16)]


def test_fence_keeps_old_references_until_its_first_turn(world: World) -> None:
    world.turn(text(1, 24), "s")
    world.cache.open_session("s", fence=True)
    assert world.frontiers("s") == [(24, 24)]
    world.turn(text(2, 16), "s")
    assert world.frontiers("s") == [(16, 16)]


def test_close_answers_what_it_let_go_of_once(world: World) -> None:
    world.turn(text(1, 24), "s")
    held = world.cache.session("s").held
    closed = world.cache.close_session("s", generation=1)
    world.cache.check()
    assert (closed.state, closed.generation, closed.mode, closed.markers) == (
        CLOSED,
        1,
        ReleaseMode.RELEASE,
        1,
    )
    assert closed.released == held
    again = world.cache.close_session("s")
    assert (again.state, again.generation, again.released, again.markers) == (CLOSED, 1, (), 0)
    assert world.hit(text(1, 24)) == 24


def test_close_in_preview_changes_nothing(world: World) -> None:
    world.turn(text(1, 24), "s")
    preview = world.cache.close_session("s", mode=ReleaseMode.PREVIEW)
    world.cache.check()
    assert preview.state is OPEN
    assert preview.released == world.cache.close_session("s").released


def test_close_with_drop_frees_what_only_it_referenced(world: World) -> None:
    world.turn(text(1, 16), "other")
    world.turn(text(1, 40), "s")
    closed = world.cache.close_session("s", mode=ReleaseMode.DROP)
    world.cache.check()
    assert closed.mode is ReleaseMode.DROP
    assert (world.hit(text(1, 40)), world.used()[FULL]) == (16, 4)


def test_close_with_demote_without_a_lower_tier_releases(world: World) -> None:
    world.turn(text(1, 16), "s")
    assert world.cache.close_session("s", mode=ReleaseMode.DEMOTE).mode is ReleaseMode.RELEASE
    assert world.hit(text(1, 16)) == 16


def test_close_takes_the_subtree_with_its_accounts(world: World) -> None:
    world.cache.open_session("root")
    world.cache.open_session("child", parent="root")
    world.turn(text(1, 16), "root")
    world.turn(text(2, 24), "child")
    world.turn(text(3, 8), "grandchild", parent="child")
    closed = world.cache.close_session("root", subtree=True)
    world.cache.check()
    accounts = {c.session: c.released[0].tokens for c in (closed, *closed.children)}
    assert accounts == {"root": 16, "child": 24, "grandchild": 8}
    assert world.cache.stats().open_references == 0
    assert world.cache.close_session("root", subtree=True).children == ()


def test_close_alone_leaves_the_children(world: World) -> None:
    world.cache.open_session("root")
    world.cache.open_session("child", parent="root")
    world.cache.close_session("root")
    assert [view.session for view in world.cache.sessions()] == ["child"]


def test_close_of_a_stale_generation_leaves_the_subtree(world: World) -> None:
    world.cache.open_session("root")
    world.cache.open_session("child", parent="root")
    with refused(Kind.SESSION_STALE):
        world.cache.close_session("root", generation=9, subtree=True)
    assert len(world.cache.sessions()) == 2


def test_close_unknown_is_refused(world: World) -> None:
    with refused(Kind.SESSION_UNKNOWN):
        world.cache.close_session("nobody", subtree=True)
    with refused(Kind.SESSION_UNKNOWN):
        world.cache.session("nobody")
    with refused(Kind.BAD_SESSION_ID):
        world.cache.enter(SessionTag(SessionId("a\tb")))
    world.cache.check()


def test_idle_session_loses_references_not_data(world: World) -> None:
    world.turn(text(1, 24), "s")
    world.wait(1801)
    assert world.cache.sweep() == 1
    world.cache.check()
    assert world.cache.stats().open_references == 0
    assert world.cache.session("s").state is EXPIRED
    turn = world.begin(text(1, 30), "s")
    assert (turn.ticket.state, turn.ticket.generation, turn.cached_tokens) == (EXPIRED, 2, 24)
    world.finish(turn)
    assert world.frontiers("s") == [(24, 24)]
    assert world.enter("s").state is OPEN


def test_idle_session_is_released_by_its_next_request_too(world: World) -> None:
    """Nobody swept: arrival alone must not leave generation 1 referenced beside generation 2."""
    world.turn(text(1, 24), "s")
    world.wait(1801)
    ticket = world.enter("s")
    assert ticket.state is EXPIRED
    assert world.cache.stats().open_references == 0
    world.cache.leave(ticket)


def test_superseded_turn_lets_the_former_branch_go(world: World) -> None:
    world.turn(text(1, 40), "s")
    world.turn(np.append(text(1, 8), text(2, 16)), "s", superseded=True)
    assert world.frontiers("s") == [(24, 24)]


def test_sessions_view(world: World) -> None:
    world.cache.open_session("b", ttl_s=60)
    ticket = world.enter("a", parent="b")
    world.wait(5)
    b, a = world.cache.sessions()
    assert (b.session, b.idle_s, b.ttl_s, b.parent) == ("b", 5.0, 60.0, None)
    assert (a.session, a.idle_s, a.queued, a.parent) == ("a", 0.0, 1, "b")
    world.cache.leave(ticket)


# what a router orders


def routed_turn(world: World, seed: int, generation: int, placement: int = 0) -> ActiveTurn:
    turn = world.begin(text(seed, 24), "t/s", generation=generation, issued=True, placement=placement)
    world.compute(turn, text(seed, 24))
    return turn


def test_orders_of_a_router_release_and_tell_what(world: World) -> None:
    world.finish(routed_turn(world, 1, 7))
    held = world.cache.session("t/s").held
    session = SessionId("t/s")
    busy = routed_turn(world, 1, 7)
    assert world.cache.expire_through(session, 7) == LetGo(session, 7, known=True, busy=True)
    world.finish(busy)
    expired = world.cache.expire_through(session, 7)
    assert (expired.markers, expired.released, expired.busy) == (1, held, False)
    world.finish(routed_turn(world, 1, 9))
    moved = world.cache.moved_away(session, 9, 1)
    assert (moved.markers, moved.released) == (1, held)
    world.finish(routed_turn(world, 1, 9, placement=2))
    assert world.cache.moved_away(session, 9, 1).busy
    closed = world.cache.close_through(session, 9, ReleaseMode.DROP)
    assert (closed.mode, closed.generation, closed.released) == (ReleaseMode.DROP, 9, held)
    assert world.cache.close_through(session, 9, ReleaseMode.DROP).released == ()
    assert world.used()[FULL] == 0
    assert world.cache.stats().open_references == 0


def test_an_order_for_an_older_generation_takes_its_references_only(world: World) -> None:
    world.finish(routed_turn(world, 1, 7))
    late = routed_turn(world, 2, 9)
    assert world.cache.close_through(SessionId("t/s"), 7, ReleaseMode.RELEASE).markers == 1
    world.finish(late)
    assert world.frontiers("t/s") == [(24, 24)]
    assert [known.generation for known in world.cache.known_sessions()] == [9]


def test_a_router_that_is_heard_keeps_idle_sessions(world: World) -> None:
    world.finish(routed_turn(world, 1, 7))
    world.clock.advance(int(1799e9))
    assert world.cache.heard_router("e", 0.0) == 7
    world.clock.advance(int(1799e9))
    assert world.cache.sweep() == 0
    world.clock.advance(int(2e9))
    assert world.cache.sweep() == 1
    assert world.cache.stats().open_references == 0


def test_a_close_that_says_nothing_does_what_the_session_was_opened_with(world: World) -> None:
    world.cache.open_session("s", on_close=ReleaseMode.DROP)
    world.turn(text(1, 24), "s")
    assert world.cache.close_session("s").mode is ReleaseMode.DROP
    assert world.used()[FULL] == 0


def test_a_pause_and_a_touch_renew_the_lease(world: World) -> None:
    world.cache.open_session("s", ttl_s=10.0)
    world.cache.pause_session("s", Paused("search"))
    world.clock.advance(int(9e9))
    world.cache.touch_session("s", generation=1)
    assert world.cache.session("s").paused == Paused("search")
    world.clock.advance(int(9e9))
    world.cache.pause_session("s", None)
    assert world.cache.session("s").paused is None
