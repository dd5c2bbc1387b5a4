"""Sessions: ids, generations, idle leases, tombstones. Times in seconds; the clock stands still unless told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.records import SessionRules
from agentcache.sessions import Lapsed, SessionRegistry, Ticket, checked_id
from agentcache.types import SessionId, SessionState, SessionTag

OPEN, CLOSED, EXPIRED, NONE = SessionState.OPEN, SessionState.CLOSED, SessionState.EXPIRED, SessionState.NONE


@dataclass
class World:
    """A registry and its time; sweeps before each call, as its callers do."""

    rules: SessionRules = field(default_factory=SessionRules)
    now_s: float = 1000.0
    lapsed: list[Lapsed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = SessionRegistry(self.rules)

    @property
    def now(self) -> int:
        now_ns = int(self.now_s * 1e9)
        self.lapsed += self.registry.sweep(now_ns)
        return now_ns

    def request(self, session: str = "s", **tag: Any) -> Ticket:
        return self.registry.arrive(SessionTag(SessionId(session), **tag), self.now)

    def turn(self, session: str = "s", **tag: Any) -> bool:
        """A whole request; whether it registered."""
        return self.end(self.begin(self.request(session, **tag)))

    def begin(self, ticket: Ticket) -> Ticket:
        self.registry.begin(ticket, self.now)
        return ticket

    def end(self, ticket: Ticket) -> bool:
        return self.registry.complete(ticket, self.now).registers

    def open(
        self, session: str = "s", parent: str | None = None, ttl_s: float | None = None, fence: bool = False
    ) -> tuple[int, bool]:
        opened = self.registry.open(session, parent, ttl_s, fence, self.now)
        return opened.generation, opened.created

    def close(self, session: str = "s", generation: int | None = None) -> int:
        return self.registry.close(session, generation, self.now).generation

    def state(self, session: str = "s") -> tuple[SessionState, int]:
        facts = self.registry.look(session, None, self.now)
        return facts.state, facts.generation


@pytest.fixture
def world() -> World:
    return World()


def refused(kind: Kind) -> pytest.RaisesExc[CacheError]:
    return pytest.RaisesExc(CacheError, check=lambda error: error.kind is kind)


# ids


@pytest.mark.parametrize("good", ["s", "a b", "x" * 256, "é" * 128, "😀", "a/b:c#d"])
def test_id_is_taken_as_it_is(good: str) -> None:
    assert checked_id(good) == good


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x" * 257,
        "é" * 129,
        "a\nb",
        "\x00",
        "a\x7fb",
        "a\u0085b",
        "a\u2028b",
        "\ud800",
        " a",
        "a ",
        "\u00a0a",
        7,
        None,
        b"s",
    ],
)
def test_id_malformed_is_refused(world: World, bad: str) -> None:
    with refused(Kind.BAD_SESSION_ID):
        world.request(bad)
    with refused(Kind.BAD_SESSION_ID):
        world.open(bad)
    with refused(Kind.BAD_SESSION_ID):
        world.close(bad)
    assert world.registry.counts().open == 0


# arrival: what each kind of request gets in each state of the record


def blank(world: World) -> None:
    """The id was never seen."""


def opened(world: World) -> None:
    world.open()  # generation 1
    world.open(fence=True)  # generation 2


def closed_now(world: World) -> None:
    opened(world)
    world.close()


def closed_long_ago(world: World) -> None:
    closed_now(world)
    world.now_s += 60.001


def idled_out(world: World) -> None:
    opened(world)
    world.now_s += 1800.001
    assert world.state()[0] is EXPIRED


ARRIVALS = [
    # history, tag → state, generation, registers
    (blank, {}, (OPEN, 1, True)),
    (blank, {"strict": True}, (OPEN, 1, True)),
    (blank, {"generation": 1}, Kind.SESSION_STALE),
    (blank, {"generation": 7, "issued": True}, (OPEN, 7, True)),
    (opened, {}, (OPEN, 2, True)),
    (opened, {"strict": True}, (OPEN, 2, True)),
    (opened, {"generation": 2}, (OPEN, 2, True)),
    (opened, {"generation": 1}, Kind.SESSION_STALE),
    (opened, {"generation": 3}, Kind.SESSION_STALE),
    (opened, {"generation": 2, "issued": True}, (OPEN, 2, True)),
    (opened, {"generation": 1, "issued": True}, Kind.SESSION_STALE),
    (opened, {"generation": 9, "issued": True}, (OPEN, 9, True)),
    (closed_now, {}, (CLOSED, 2, False)),
    (closed_now, {"strict": True}, Kind.SESSION_CLOSED),
    (closed_now, {"generation": 2}, Kind.SESSION_CLOSED),
    (closed_now, {"generation": 1}, Kind.SESSION_STALE),
    (closed_now, {"generation": 3}, Kind.SESSION_STALE),
    (closed_now, {"generation": 2, "issued": True}, (CLOSED, 2, False)),
    (closed_now, {"generation": 2, "issued": True, "strict": True}, Kind.SESSION_CLOSED),
    (closed_now, {"generation": 3, "issued": True}, (OPEN, 3, True)),
    (closed_long_ago, {}, (OPEN, 3, True)),
    (closed_long_ago, {"strict": True}, (OPEN, 3, True)),
    (closed_long_ago, {"issued": True}, (CLOSED, 2, False)),
    (closed_long_ago, {"generation": 2}, Kind.SESSION_CLOSED),
    (closed_long_ago, {"generation": 2, "issued": True}, (CLOSED, 2, False)),
    (closed_long_ago, {"generation": 1, "issued": True}, (CLOSED, 2, False)),
    (idled_out, {}, (EXPIRED, 3, True)),
    (idled_out, {"strict": True}, (EXPIRED, 3, True)),
    (idled_out, {"generation": 2}, Kind.SESSION_STALE),
    (idled_out, {"generation": 3}, Kind.SESSION_STALE),
    (idled_out, {"generation": 2, "issued": True}, (EXPIRED, 2, True)),
    (idled_out, {"generation": 1, "issued": True}, Kind.SESSION_STALE),
    (idled_out, {"generation": 5, "issued": True}, (EXPIRED, 5, True)),
]


@pytest.mark.parametrize(
    ("history", "tag", "outcome"),
    [pytest.param(*row, id=f"{row[0].__name__} {row[1]}") for row in ARRIVALS],
)
def test_arrival(
    world: World, history: Callable[[World], None], tag: dict[str, Any], outcome: object
) -> None:
    history(world)
    if isinstance(outcome, Kind):
        before = world.registry.counts()
        with refused(outcome):
            world.request(**tag)
        assert world.registry.counts() == before
        return
    ticket = world.request(**tag)
    assert (ticket.state, ticket.generation, ticket.registers) == outcome
    assert world.end(world.begin(ticket)) is ticket.registers


def test_arrival_without_a_tag_is_nobody(world: World) -> None:
    ticket = world.registry.arrive(None, world.now)
    assert (ticket.session, ticket.state, ticket.registers) == (None, NONE, False)
    assert not world.end(world.begin(ticket))


def test_arrival_exactly_at_the_reopening_age_is_still_closed(world: World) -> None:
    closed_now(world)
    world.now_s += 60
    assert world.request().state is CLOSED


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


def test_parent_idles_out_alone(world: World) -> None:
    """Kinship is a record: it ends with the parent's close, not with its lease."""
    world.open("root", ttl_s=10)
    world.open("child", parent="root")
    world.now_s += 20
    assert (world.state("root")[0], world.state("child")[0]) == (EXPIRED, OPEN)
    assert world.registry.subtree("root") == ("child",)


def test_counts(world: World) -> None:
    family(world)
    world.close("leaf")
    world.open("leaf")
    world.close("right")
    world.now_s += 2000
    world.lapsed += world.registry.sweep(world.now)
    counts = world.registry.counts()
    assert (counts.open, counts.opened, counts.closed, counts.expired, counts.tombstones) == (0, 5, 2, 3, 1)
