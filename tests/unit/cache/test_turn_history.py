"""Reasons that an engine seldom meets: no room beside others, and data that stay below."""

import pytest

from agentcache.cache import ActiveTurn
from agentcache.types import FULL
from agentcache.why import Finding, Why
from tests.unit.cache.world import AccountingTier, World, text


def test_what_found_no_room_is_told_the_next_time() -> None:
    """16 pages: another turn holds 12 of them, and a prompt of 32 tokens asks for 8."""
    world = World(device={FULL: 16})
    other = world.begin(text(2, 48), "other")
    assert world.reserve(other, 48)
    turn = world.begin(text(1, 32), "s")
    assert world.reserve(turn, 32) is None
    world.finish(turn)
    assert found(world, "s") == Finding(Why.NO_ROOM)
    world.finish(other)


@pytest.mark.parametrize(
    ("evicted", "finding"), [(False, Finding(Why.NO_ROOM, at=16)), (True, Finding(Why.EVICTED))]
)
def test_what_others_have_stored_meanwhile_did_not_lack_room(evicted: bool, finding: Finding) -> None:
    """The first 16 tokens: nobody has looked for them before they are gone again."""
    world = World(device={FULL: 16})
    other = world.begin(text(2, 48), "other")
    assert world.reserve(other, 48)
    turn = world.begin(text(1, 32), "s")
    assert world.reserve(turn, 32) is None
    world.finish(other)
    world.turn(text(1, 16), "third")
    world.finish(turn)
    if evicted:
        world.turn(text(3, 64), "fourth")
    assert found(world, "s") == finding


def test_what_could_not_come_up_from_the_host_is_there_still() -> None:
    """It makes way for another's 16 pages, and these are leased when it is asked for again."""
    world = World(device={FULL: 16}, host=32, tier=AccountingTier())
    world.turn(text(1, 40), "s")
    world.turn(text(2, 64), "other")
    other = world.begin(text(3, 64), "third")
    assert world.reserve(other, 64)
    turn = world.begin(text(1, 41), "s")
    assert world.cache.ready(turn, alone=True)
    assert (turn.found, turn.cached_tokens) == (Finding(Why.ON_HOST, FULL, 40), 0)
    world.finish(turn)
    world.finish(other)


def found(world: World, session: str) -> Finding:
    """What ends the hit of a prompt of 32 tokens, and one more."""
    turn: ActiveTurn = world.begin(text(1, 33), session)
    world.finish(turn)
    return turn.found
