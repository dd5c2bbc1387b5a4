"""Forked sessions: what they inherit, for how long, and what takes it from them (decision 0020)."""

from collections.abc import Callable

import numpy as np
import pytest

from agentcache.errors import Kind
from agentcache.paths import Paths
from agentcache.types import FULL, ReleaseMode, SessionId, Tokens
from tests.unit.cache.world import DEVICE, World, refused, text

TASK = text(1, 40)


def forked(world: World, child: str = "child", parent: str = "parent") -> None:
    """A parent with a turn, and a child that goes on from it."""
    world.turn(TASK, parent)
    world.cache.open_session(child, parent=parent, fork=True)
    world.cache.check()


def going_on(seed: int, count: int = 24) -> Tokens:
    """The parent's path and then another one."""
    return np.append(TASK, text(seed, count))


def test_a_fork_references_its_parents_frontier(world: World) -> None:
    forked(world)
    assert world.frontiers("child") == [(40, 0)]
    assert world.cache.session("child").held == world.cache.session("parent").held


def test_a_spawn_references_nothing(world: World) -> None:
    world.turn(TASK, "parent")
    world.cache.open_session("child", parent="parent")
    assert world.frontiers("child") == []


def test_a_request_forks_on_its_arrival(world: World) -> None:
    world.turn(TASK, "parent")
    ticket = world.enter("child", parent=SessionId("parent"), fork=True)
    assert world.frontiers("child") == [(40, 0)]
    world.cache.leave(ticket)
    world.cache.check()
    assert world.frontiers("child") == [(40, 0)]


def close(world: World) -> None:
    world.cache.close_session("parent", mode=ReleaseMode.DROP)


def compact(world: World) -> None:
    world.turn(text(2, 24), "parent", superseded=True)


def go_elsewhere(world: World) -> None:
    for length in (16, 24, 32):
        world.turn(text(3, length), "parent")


@pytest.mark.parametrize("happens", [close, compact, go_elsewhere])
def test_what_the_child_will_read_stays_wanted(world: World, happens: Callable[[World], None]) -> None:
    """Closed with a drop, compacted, moved on: the parent's reference goes, the child's is its own."""
    forked(world)
    happens(world)
    world.cache.check()
    assert world.frontiers("child") == [(40, 0)]
    assert (40, 40) not in world.frontiers("parent")
    assert world.hit(TASK) == 40


def test_what_the_child_will_read_outlives_its_parent_under_pressure() -> None:
    world = World({FULL: 24}, order="session")
    forked(world)
    world.cache.close_session("parent")
    for seed in range(10, 16):
        world.turn(text(seed, 32))
    assert world.turn(going_on(2, 16), "child") == 40


def test_without_a_fork_pressure_takes_it() -> None:
    """The same as above, spawned: the test above shows something."""
    world = World({FULL: 24}, order="session")
    world.turn(TASK, "parent")
    world.cache.open_session("child", parent="parent")
    world.cache.close_session("parent")
    for seed in range(10, 16):
        world.turn(text(seed, 32))
    assert world.turn(going_on(2, 16), "child") == 0


@pytest.mark.parametrize("on_its_path", [True, False])
def test_the_first_turn_takes_the_place_of_what_was_inherited(world: World, on_its_path: bool) -> None:
    forked(world)
    world.turn(going_on(2) if on_its_path else text(2, 24), "child")
    assert [frontier for frontier, _ in world.frontiers("child")] == [64 if on_its_path else 24]


def test_later_turns_of_a_fork_leave_branches_as_any(world: World) -> None:
    forked(world)
    world.turn(going_on(2), "child")
    world.turn(text(3, 24), "child")
    assert sorted(frontier for frontier, _ in world.frontiers("child")) == [24, 64]


def test_a_turn_that_does_not_register_leaves_the_inheritance(world: World) -> None:
    forked(world)
    late = world.begin(going_on(2), "child")
    world.cache.open_session("child", fence=True)
    world.finish(late)
    assert world.frontiers("child") == [(40, 0)]
    world.turn(text(3, 24), "child")
    assert [frontier for frontier, _ in world.frontiers("child")] == [24]


def test_it_inherits_what_was_there_at_the_fork(world: World) -> None:
    forked(world)
    world.turn(going_on(2, 40), "parent")
    assert world.frontiers("child") == [(40, 0)]


def test_a_fork_counts_once(world: World) -> None:
    """Also where a client sends the header with every request."""
    forked(world)
    world.turn(going_on(2), "parent")
    world.cache.open_session("child", parent="parent", fork=True)
    assert world.frontiers("child") == [(40, 0)]
    world.turn(going_on(3), "child", fork=True)
    world.turn(going_on(3, 32), "child", fork=True)
    assert [frontier for frontier, _ in world.frontiers("child")] == [72]


def test_a_parent_without_a_turn_leaves_nothing_and_the_next_request_tries_again(world: World) -> None:
    world.cache.open_session("parent")
    world.cache.open_session("child", parent="parent", fork=True)
    assert world.frontiers("child") == []
    world.turn(TASK, "parent")
    world.enter("child", fork=True)
    assert world.frontiers("child") == [(40, 0)]


def test_a_child_that_is_closed_and_opened_again_may_fork_again(world: World) -> None:
    forked(world)
    closed = world.cache.close_session("child")
    assert (closed.markers, world.frontiers("child")) == (1, [])
    world.cache.open_session("child", fork=True)
    assert world.frontiers("child") == [(40, 0)]


def test_a_fork_without_a_parent_and_one_of_an_ignored_parent_are_spawns(world: World) -> None:
    world.turn(TASK, "child", fork=True)
    assert [frontier for frontier, _ in world.frontiers("child")] == [40]
    ticket = world.enter("other", parent=SessionId("unknown"), fork=True)
    assert ticket.parent_ignored
    assert world.frontiers("other") == []


def test_a_closed_session_inherits_nothing(world: World) -> None:
    forked(world)
    world.cache.close_session("child")
    late = world.enter("child", fork=True)
    assert not late.registers
    assert world.frontiers("child") == []
    with refused(Kind.SESSION_CLOSED):
        world.cache.close_session("parent")
        world.cache.open_session("child", parent="parent", fork=True)


def test_a_fork_of_a_fork_inherits_only_what_was_registered(world: World) -> None:
    """The child has no turn yet: what it was given is not its own to leave."""
    forked(world)
    world.cache.open_session("grandchild", parent="child", fork=True)
    assert world.frontiers("grandchild") == []
    world.turn(going_on(2), "child")
    world.cache.open_session("grandchild", parent="child", fork=True)
    assert world.frontiers("grandchild") == [(64, 0)]


def test_an_inheritance_moves_up_with_what_is_left_of_it() -> None:
    world = World({FULL: 12}, order="session")
    forked(world)
    world.cache.close_session("parent")
    world.turn(text(9, 40))
    left = world.frontiers("child")
    assert not left or left[0][0] < 40
    world.cache.close_session("child")
    assert world.cache.stats().open_references == 0


def test_a_parent_that_is_compacted_gives_up_what_no_child_has(world: World) -> None:
    """Its suffix goes at once, declared; a fork from the suffix keeps its own, one from the head needs none of it."""
    world.turn(text(1, 16), "parent")
    world.cache.open_session("early", parent="parent", fork=True)
    world.turn(TASK, "parent")
    compact(world)
    assert world.frontiers("parent") == [(24, 24)]
    assert world.frontiers("early") == [(16, 0)]
    closed = world.cache.close_session("early", mode=ReleaseMode.DROP)
    assert closed.released[0].tokens == 16


def test_an_undeclared_compaction_gives_up_the_suffix_at_the_next_turn(world: World) -> None:
    forked(world)
    world.turn(going_on(2), "child")
    world.turn(text(3, 24), "child")
    assert len(world.frontiers("child")) == 2
    world.turn(text(3, 40), "child")
    assert [frontier for frontier, _ in world.frontiers("child")] == [40]


def test_twelve_forks_of_one_parent_reference_its_pages_once_each(world: World) -> None:
    world.turn(TASK, "parent")
    for number in range(12):
        world.cache.open_session(f"c{number}", parent="parent", fork=True)
    assert world.cache.stats().open_references == 13
    assert world.used()[FULL] == 10
    assert world.cache.close_session("parent", subtree=True).more is False
    assert world.cache.stats().open_references == 0


def test_thousands_of_forks_are_closed_in_one_call_and_the_answer_is_bounded() -> None:
    world = World(DEVICE)
    world.turn(TASK, "parent")
    for number in range(5000):
        world.cache.open_session(f"c{number}", parent="parent", fork=True)
    assert world.cache.stats().open_references == 5001
    preview = world.cache.close_session("parent", subtree=True, mode=ReleaseMode.PREVIEW)
    assert (len(preview.children), preview.more) == (1000, True)
    closed = world.cache.close_session("parent", subtree=True)
    assert (len(closed.children), closed.more) == (1000, True)
    stats = world.cache.stats()
    assert (stats.open_references, stats.sessions.open) == (0, 0)
    world.cache.check()
    again = world.cache.close_session("parent", subtree=True)
    assert (again.children, again.more) == ((), False)


def test_paths_are_bounded_and_a_forgotten_one_leaves_nothing_to_inherit(world: World) -> None:
    world.turn(TASK, "parent")
    key = world.cache.paths.of(SessionId("parent"))
    assert key is not None
    paths = Paths(most_tokens=100)
    for name in "abc":
        paths.put(SessionId(name), 1, key, len(key))
    assert [paths.of(SessionId(name)) is None for name in "abc"] == [True, False, False]
    assert paths.has(SessionId("a"))
    paths.check(lambda *_: True)
    paths.release(SessionId("b"), 0)
    assert paths.of(SessionId("b")) is key
    for name in "abc":
        paths.release(SessionId(name), 1)
    paths.check(lambda *_: False)


def test_the_path_goes_with_the_session(world: World) -> None:
    world.turn(TASK, "s")
    assert len(world.cache.paths.of(SessionId("s")) or ()) == 40
    world.cache.close_session("s", mode=ReleaseMode.PREVIEW)
    assert world.cache.paths.has(SessionId("s"))
    world.wait(1801)
    world.cache.sweep()
    assert not world.cache.paths.has(SessionId("s"))
