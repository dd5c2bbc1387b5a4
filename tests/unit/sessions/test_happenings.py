"""What happens to sessions is told once, in order, and to whoever listens."""

from collections.abc import Sequence

import pytest

from agentcache.errors import Kind
from agentcache.records import Paused
from agentcache.session_events import Happening, SessionEvent
from agentcache.types import SessionId, WaitState
from agentcache.waits import Told, WaitKind
from tests.unit.sessions.world import World, refused

OPENED, CLOSED, EXPIRED = Happening.OPENED, Happening.CLOSED, Happening.EXPIRED
PAUSED, RESUMED, MOVED = Happening.PAUSED, Happening.RESUMED, Happening.MOVED


class Heard:
    """A sink that remembers."""

    listening = True

    def __init__(self, world: World) -> None:
        self.events: list[SessionEvent] = []
        world.registry.shown.tell(self)

    def happened(self, event: SessionEvent) -> None:
        self.events.append(event)

    @property
    def told(self) -> Sequence[tuple[Happening, str, int]]:
        """Since the last look."""
        said = [(event.what, event.session, event.generation) for event in self.events]
        self.events.clear()
        return said


@pytest.fixture
def heard(world: World) -> Heard:
    return Heard(world)


def test_the_life_of_a_session(world: World, heard: Heard) -> None:
    world.turn()
    assert heard.told == [(OPENED, "s", 1)]
    world.turn()
    assert heard.told == []
    world.close()
    world.close()
    assert heard.told == [(CLOSED, "s", 1)]
    world.open()
    world.open(fence=True)
    assert heard.told == [(OPENED, "s", 2), (OPENED, "s", 3)]
    world.now_s += 10_000
    assert world.now
    assert heard.told == [(EXPIRED, "s", 3)]
    world.turn()
    assert heard.told == [(OPENED, "s", 4)]


def test_an_opening_names_the_parent_that_its_first_request_named(world: World, heard: Heard) -> None:
    world.open("root")
    world.request("child", parent=SessionId("root"))
    assert [event.parent for event in heard.events] == [None, "root"]


def test_pauses_end_once(world: World, heard: Heard) -> None:
    world.open()
    world.registry.note("s", None, Paused("tests", 30.0), world.now)
    assert (heard.events[-1].tool, heard.events[-1].expected_s) == ("tests", 30.0)
    assert heard.told == [(OPENED, "s", 1), (PAUSED, "s", 1)]
    world.registry.note("s", None, None, world.now)
    world.registry.note("s", None, None, world.now)
    assert heard.told == [(RESUMED, "s", 1)]
    world.registry.note("s", None, Paused("tests"), world.now)
    world.request()
    world.request()
    assert heard.told == [(PAUSED, "s", 1), (RESUMED, "s", 1)]


def test_a_pause_that_a_router_expects_is_not_told(world: World, heard: Heard) -> None:
    world.open()
    world.registry.note("s", None, Paused("tests", 3.0, learned=True), world.now)
    world.request()
    assert heard.told == [(OPENED, "s", 1)]


def test_an_end_ends_a_pause_without_a_word(world: World, heard: Heard) -> None:
    world.open()
    world.registry.note("s", None, Paused("tests"), world.now)
    world.close()
    with refused(Kind.SESSION_CLOSED):
        world.registry.note("s", None, Paused("tests"), world.now)
    world.open()
    world.request()
    assert heard.told == [(OPENED, "s", 1), (PAUSED, "s", 1), (CLOSED, "s", 1), (OPENED, "s", 2)]
    world.open("t", ttl_s=30.0)
    world.registry.note("t", None, Paused("tests"), world.now)
    world.now_s += 100
    world.request("t")
    assert heard.told == [(OPENED, "t", 1), (PAUSED, "t", 1), (EXPIRED, "t", 1), (OPENED, "t", 2)]


def test_what_a_router_orders_is_told_too(world: World, heard: Heard) -> None:
    routed = world.registry.routed
    for session in ("a", "b", "c"):
        world.turn(session, generation=1, issued=True)
    assert [what for what, _, _ in heard.told] == [OPENED] * 3
    routed.moved(SessionId("a"), 1, 2, world.now)
    routed.expire(SessionId("b"), 1, world.now)
    routed.close(SessionId("c"), 1, world.now)
    assert heard.told == [(MOVED, "a", 1), (EXPIRED, "b", 1), (CLOSED, "c", 1)]
    routed.close(SessionId("nobody"), 7, world.now)
    routed.moved(SessionId("neither"), 7, 1, world.now)
    assert heard.told == [], "of what was never here nothing is told"


def test_what_a_session_waits_for_is_shown(world: World) -> None:
    shown, session = world.registry.shown, SessionId("s")
    ticket = world.request()
    assert shown.waiting(session, world.now).state is WaitState.PENDING
    world.begin(ticket)
    world.now_s += 2
    running = shown.waiting(session, world.now)
    assert (running.state, running.since_s) == (WaitState.RUNNING, 2.0)
    world.registry.complete(ticket, world.now, Told(WaitKind.TOOL, 12.0))
    world.now_s += 3
    idle = shown.waiting(session, world.now)
    assert (idle.state, idle.kind, idle.since_s) == (WaitState.IDLE, WaitKind.TOOL, 3.0)
    assert (idle.expected_s, idle.hint_s, idle.believed) == (12.0, 12.0, True)
    assert shown.waiting(SessionId("nobody"), world.now).expected_s is None


def test_a_hint_that_is_not_believed_says_so(world: World) -> None:
    """Three returns after a second where an hour was said: the fourth hint counts for nothing."""
    shown, session = world.registry.shown, SessionId("s")
    for _ in range(4):
        ticket = world.begin(world.request())
        world.registry.complete(ticket, world.now, Told(WaitKind.TOOL, 3600.0))
        world.now_s += 1
    idle = shown.waiting(session, world.now)
    assert (idle.hint_s, idle.believed) == (3600.0, False)
    assert idle.expected_s is not None
    assert idle.expected_s < 10


def test_children_are_named_up_to_a_hundred_and_counted(world: World) -> None:
    world.open("root")
    for number in range(150):
        world.open(f"c{number}", parent="root")
    world.open("grandchild", parent="c0")
    world.close("c1")
    named, count = world.registry.shown.children(SessionId("root"))
    assert (named[:2], len(named), count) == (("c0", "c2"), 100, 149)
    assert world.registry.shown.children(SessionId("c0")) == (("grandchild",), 1)
