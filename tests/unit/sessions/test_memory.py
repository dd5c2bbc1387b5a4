"""What is remembered, how long, and who descends from whom."""

import pytest

from agentcache.errors import Kind
from agentcache.records import SessionRules
from tests.unit.sessions.world import CLOSED, NONE, OPEN, World, refused

# tombstones


def test_tombstones_are_bounded_and_the_oldest_goes() -> None:
    world = World(SessionRules(tombstones=2))
    for session in ("a", "b", "c"):
        world.open(session)
        world.close(session)
        world.now_s += 121
    assert world.registry.counts().tombstones == 2
    with refused(Kind.SESSION_UNKNOWN):
        world.close("a")
    assert world.close("b") == 1


def test_tombstone_asked_for_is_remembered_longer() -> None:
    world = World(SessionRules(tombstones=2))
    for session in ("a", "b"):
        world.open(session)
        world.close(session)
    assert world.turn("a") is False
    world.now_s += 121
    world.open("c")
    world.close("c")
    assert world.close("a") == 1
    with refused(Kind.SESSION_UNKNOWN):
        world.close("b")


def test_tombstone_too_young_to_forget_makes_unknown_ids_unreferenced() -> None:
    world = World(SessionRules(tombstones=1))
    for session in ("a", "b"):
        world.open(session)
        world.close(session)  # the second makes the first forgotten, 0 s old
    world.now_s += 119.9
    ticket = world.request("a", generation=1, issued=True)
    assert (ticket.state, ticket.registers, ticket.generation) == (NONE, False, 0)
    assert not world.end(world.begin(ticket))
    assert world.request("never seen").state is NONE
    for fence in ({"strict": True}, {"generation": 1}):
        with refused(Kind.SESSION_CLOSED):
            world.request("a", **fence)
    assert world.open("explicit")[1]
    assert world.request("explicit").registers
    world.now_s += 0.2
    assert world.request("never seen").state is OPEN


def test_tombstone_with_a_request_is_never_forgotten() -> None:
    world = World(SessionRules(tombstones=1))
    ticket = world.begin(world.request("busy"))
    world.close("busy")
    for number in range(5):
        world.open(f"s{number}")
        world.close(f"s{number}")
        world.now_s += 121
    assert world.close("busy") == 1
    assert not world.end(ticket)
    world.open("last")
    world.close("last")
    with refused(Kind.SESSION_UNKNOWN):
        world.close("busy")


def test_tombstone_with_a_request_that_waits_is_never_forgotten() -> None:
    """It came after the close, so nothing of it is running."""
    world = World(SessionRules(tombstones=1))
    world.open("late")
    world.close("late")
    world.request("late")
    world.open("other")
    world.close("other")
    assert world.close("late") == 1


@pytest.mark.parametrize("end", ["close", "expire"])
def test_generations_never_repeat_even_when_forgotten(end: str) -> None:
    world = World(SessionRules(tombstones=0))
    seen: list[int] = []
    for _ in range(4):
        seen.append(world.open("s")[0])
        if end == "close":
            world.close("s")
        world.now_s += 1801
    assert seen == sorted(set(seen))


def test_requests_without_a_record_do_not_count_on_a_later_one() -> None:
    world = World(SessionRules(tombstones=0))
    world.open("a")
    world.close("a")
    stray = world.request("b")  # unreferenced: unknown ids are suspect
    world.open("b")
    world.registry.leave(stray, world.now)
    facts = world.registry.look("b", None, world.now)
    assert (facts.queued, facts.running) == (0, 0)


# parents


def family(world: World) -> None:
    world.open("root")
    world.open("left", parent="root")
    world.open("right", parent="root")
    world.open("leaf", parent="left")


def test_subtree_names_descendants_parents_first(world: World) -> None:
    family(world)
    assert world.registry.subtree("root") == ("left", "right", "leaf")
    world.close("left")
    assert world.registry.subtree("root") == ("right", "leaf")
    assert world.registry.subtree("leaf") == ()


def test_parent_may_be_named_by_the_first_request(world: World) -> None:
    world.open("root")
    assert not world.request("child", parent="root").parent_ignored
    assert world.registry.subtree("root") == ("child",)


@pytest.mark.parametrize("parent", ["unknown", "closed", "bad\n", "", "child", "grandchild"])
def test_parent_in_a_tag_that_cannot_be_is_ignored(world: World, parent: str) -> None:
    world.open("closed")
    world.close("closed")
    world.open("child")
    world.open("grandchild", parent="child")
    ticket = world.request("child", parent=parent)
    assert ticket.parent_ignored
    assert ticket.registers
    assert world.registry.look("child", None, world.now).parent is None


@pytest.mark.parametrize(
    ("parent", "kind"),
    [
        ("unknown", Kind.SESSION_UNKNOWN),
        ("closed", Kind.SESSION_CLOSED),
        ("bad\n", Kind.BAD_SESSION_ID),
        ("grandchild", Kind.BAD_REQUEST),
    ],
)
def test_parent_in_an_open_that_cannot_be_is_refused(world: World, parent: str, kind: Kind) -> None:
    world.open("closed")
    world.close("closed")
    world.open("child")
    world.open("grandchild", parent="child")
    world.close("child")
    with refused(kind):
        world.open("child", parent=parent)
    assert world.state("child")[0] is CLOSED


def test_parent_is_fixed_once_named(world: World) -> None:
    family(world)
    assert world.request("leaf", parent="right").parent_ignored
    assert not world.request("leaf", parent="left").parent_ignored


def test_counts(world: World) -> None:
    family(world)
    world.close("leaf")
    world.open("leaf")
    world.close("right")
    for _ in range(3):  # one generation after the other: the end of a child begins its parent's lease anew
        world.now_s += 2000
        world.lapsed += world.registry.sweep(world.now)
    counts = world.registry.counts()
    assert (counts.open, counts.opened, counts.closed, counts.expired, counts.tombstones) == (0, 5, 2, 3, 1)
