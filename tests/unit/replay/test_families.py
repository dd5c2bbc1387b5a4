"""Families of a trace: whole ones one after the other, wherever their members are told."""

from collections.abc import Iterator

import pytest

from agentcache.replay.families import Kinship, families
from agentcache.replay.spelling import TEXT_ONLY
from agentcache.replay.trace import Link, Origin, Session


def session(said: str) -> Session:
    """By its name, or `name:parent`."""
    name, _, parent = said.partition(":")
    return Session(name, (), "here", origin=Origin(parent, Link.SPAWN if parent else Link.NONE))


def kinship(sessions: list[Session]) -> Kinship:
    kin = Kinship()
    for one in sessions:
        kin.add(one)
    return kin


@pytest.mark.parametrize(
    ("told", "together"),
    [
        ("A B:A C", "A-B C"),
        ("A B C:A D", "A-C B D"),
        ("A B C:A D E:B F:C G", "A-C-F B-E D G"),
        ("A B C D:C E:B F:A", "A-F B-E C-D"),
        ("A", "A"),
        ("", ""),
        ("p p c:p p c:p", "p p-c p-c"),
        ("X:lost Y:X A", "X-Y A"),
    ],
)
def test_sub_agents_follow_their_parents(told: str, together: str) -> None:
    sessions = list(map(session, told.split()))
    found = families(kinship(sessions).together(sessions), TEXT_ONLY)
    shown = ["-".join(member.session.name for member in family.members) for family in found]
    assert " ".join(shown) == together


def test_no_more_is_read_than_is_in_the_way() -> None:
    sessions = list(map(session, ["A", "B", "C:A", "D", "E"]))
    read: list[str] = []

    def watched() -> Iterator[Session]:
        for one in sessions:
            read.append(one.name)
            yield one

    seen = [(one.name, len(read)) for one in kinship(sessions).together(watched())]
    assert seen == [("A", 1), ("C", 3), ("B", 3), ("D", 4), ("E", 5)]
