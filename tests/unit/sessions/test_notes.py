"""What clients say of their sessions between two requests: touches, pauses, and how they want them closed."""

import pytest

from agentcache.errors import Kind
from agentcache.records import Paused
from agentcache.sessions import Opening
from agentcache.types import ReleaseMode, SessionId
from tests.unit.sessions.world import CLOSED, EXPIRED, OPEN, World, closed_now, idled_out, refused

SEARCH = Paused("search", 20.0)
S = SessionId("s")


def test_a_note_renews_the_lease(world: World) -> None:
    world.open(ttl_s=30.0)
    world.now_s += 29
    world.registry.note("s", None, None, world.now)
    world.now_s += 29
    world.registry.touch("s", None, world.now)
    world.now_s += 29
    assert world.state() == (OPEN, 1)
    world.now_s += 2
    assert world.state() == (EXPIRED, 1)


def test_a_pause_lasts_until_the_next_request(world: World) -> None:
    world.open()
    assert world.registry.note("s", 1, SEARCH, world.now).paused == SEARCH
    assert world.registry.look("s", None, world.now).paused == SEARCH
    world.request()
    assert not world.registry.look("s", None, world.now).paused


def test_a_resume_ends_a_pause(world: World) -> None:
    world.open()
    world.registry.note("s", None, SEARCH, world.now)
    assert not world.registry.note("s", None, None, world.now).paused


@pytest.mark.parametrize("history", [closed_now, idled_out])
def test_a_session_that_is_not_open_takes_no_notes(world: World, history: object) -> None:
    assert callable(history)
    history(world)
    with refused(Kind.SESSION_CLOSED):
        world.registry.note("s", None, SEARCH, world.now)
    with refused(Kind.SESSION_CLOSED):
        world.registry.touch("s", None, world.now)


def test_a_note_for_another_generation_or_of_nobody_is_refused(world: World) -> None:
    world.open(fence=True)
    with refused(Kind.SESSION_STALE):
        world.registry.note("s", 2, SEARCH, world.now)
    with refused(Kind.SESSION_UNKNOWN):
        world.registry.note("t", None, None, world.now)


def test_how_to_close_is_said_when_it_opens(world: World) -> None:
    dropped = Opening(on_close=ReleaseMode.DROP)
    world.registry.open("s", dropped, world.now)
    world.registry.open("s", Opening(on_close=ReleaseMode.DEMOTE), world.now)  # open: unchanged
    assert world.registry.look("s", None, world.now).on_close is ReleaseMode.DROP
    world.close()
    world.open()
    assert world.registry.look("s", None, world.now).on_close is ReleaseMode.RELEASE


def test_a_request_of_an_older_generation_is_no_return(world: World) -> None:
    """It comes late, while the session waits for its tool: it is served, and what is known of the wait stays."""
    world.turn(generation=1, issued=True)
    world.registry.routed.close(S, 1, world.now)
    world.turn(generation=2, issued=True)
    world.registry.note("s", 2, SEARCH, world.now)
    before, wait = world.registry.look("s", None, world.now), world.registry.wait(S)
    late = world.request(generation=1, issued=True)
    assert (late.state, late.registers) == (CLOSED, False)
    assert world.registry.wait(S) == wait
    world.now_s += 1
    assert not world.end(world.begin(late))
    after = world.registry.look("s", None, world.now)
    assert (after.paused, after.queued, after.running) == (before.paused, 0, 0)
    assert world.registry.wait(S) == wait
    assert world.registry.shown.due_ns(S) == wait.since_ns + (wait.hint_ns or 0)
