"""Sessions as trees: parents before children, the newest root first, of too many those used last with their parents."""

from typing import Any

import pytest

from agentcache.router.dashboard.families import SHOWN, Families, families
from agentcache.store.api import SessionRecord, SessionRef

NOW_MS = 1_700_000_000_000


def record(name: str, parent: str = "", tenant: str = "default", **more: Any) -> SessionRecord:
    told = {"generation": (NOW_MS - 5_000) * 1000, **more}
    return SessionRecord(SessionRef(tenant, name), "open", parent=parent, **told)


def shape(found: Families) -> list[tuple[str, int]]:
    return [(row.record.ref.session, row.depth) for row in found.rows]


def test_children_follow_their_parent_and_new_roots_come_first() -> None:
    records = [record("old"), record("new"), record("a", "old"), record("b", "old"), record("aa", "a")]
    assert shape(families(records, 0, NOW_MS)) == [("new", 0), ("old", 0), ("a", 1), ("aa", 2), ("b", 1)]


def test_a_child_whose_parent_is_not_there_stands_alone() -> None:
    records = [record("here", "gone"), record("there", "here", tenant="other")]
    assert shape(families(records, 0, NOW_MS)) == [("there", 0), ("here", 0)]


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ({"in_flight": 2}, "running"),
        ({"in_flight": 1, "paused": "bash"}, "running"),
        ({"paused": "bash"}, "paused"),
        ({}, "idle"),
    ],
)
def test_what_a_session_does(told: dict[str, Any], state: str) -> None:
    found = families([record("a", **told)], 0, NOW_MS)
    assert found.rows[0].state == state
    assert getattr(found, state) == found.open == 1


def test_of_too_many_those_used_last_are_shown_with_all_above_them() -> None:
    idle = [record(f"idle-{n}", idle_s=1e6) for n in range(SHOWN)]
    line = [
        record("top", idle_s=2e6),
        record("middle", "top", idle_s=2e6),
        record("deep", "middle", idle_s=1.0),
    ]
    busy = record("busy", idle_s=3e6, in_flight=1)
    found = families([*line, *idle, busy], 7, NOW_MS)
    assert len(found.rows) == SHOWN
    assert {"top", "middle", "deep", "busy"} <= {name for name, _ in shape(found)}
    assert shape(found)[-3:] == [("top", 0), ("middle", 1), ("deep", 2)]
    assert (found.open, found.unread, found.running) == (SHOWN + 4 + 7, 7, 1)


def test_children_that_are_not_shown_are_counted() -> None:
    found = families([record("top", children=1000)], 0, NOW_MS)
    assert found.rows[0].hidden == 1000


@pytest.mark.parametrize(
    ("generation", "opened_s"),
    [((NOW_MS - 5_000) * 1000, 5.0), (NOW_MS * 1000 + 900, 0.0), (3, -1.0), (2**62, -1.0)],
)
def test_the_generation_tells_when_a_session_was_opened_if_it_is_a_time(
    generation: int, opened_s: float
) -> None:
    assert families([record("a", generation=generation)], 0, NOW_MS).rows[0].opened_s == opened_s


def test_parents_in_a_ring_are_no_end() -> None:
    """No store makes one; what cannot be must not hang the router either."""
    ring = [record("a", "b", idle_s=1.0), record("b", "a", idle_s=2.0)]
    assert families([*ring, *(record(f"n{n}") for n in range(SHOWN))], 0, NOW_MS).open == SHOWN + 2
