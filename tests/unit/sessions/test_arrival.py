"""Ids, and what each kind of request gets in each state of its session."""

from collections.abc import Callable
from typing import Any

import pytest

from agentcache.errors import Kind
from agentcache.ids import checked_id, scoped
from tests.unit.sessions.world import (
    CLOSED,
    EXPIRED,
    NONE,
    OPEN,
    World,
    blank,
    closed_long_ago,
    closed_now,
    idled_out,
    opened,
    refused,
)

# ids


@pytest.mark.parametrize("good", ["s", "a b", "x" * 256, "é" * 128, "😀", "a/b:c#d"])
def test_id_is_taken_as_it_is(world: World, good: str) -> None:
    assert checked_id(good) == good
    assert world.request(scoped("t" * 64, checked_id(good))).session == f"{'t' * 64}/{good}"


@pytest.mark.parametrize("bad", ["x" * 257, "é" * 129])
def test_id_too_long_at_an_edge_is_refused(bad: str) -> None:
    with refused(Kind.BAD_SESSION_ID):
        checked_id(bad)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x" * 322,
        "é" * 161,
        "a\nb",
        "\x00",
        "a\x7fb",
        "a\u0085b",
        "a\u2028b",
        "\ud800",
        " a",
        "a ",
        "\u00a0a",
        "a\u00a0b",
        "a\u202eb",
        "a\u2066b\u2069",
        "a\u200bb",
        "\ufeffa",
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
