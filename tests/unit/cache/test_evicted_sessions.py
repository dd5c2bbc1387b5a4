"""Who hears that a session lost what it would go on from: once, of open sessions, and only when it did."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from agentcache.session_events import Happening, SessionEvent
from agentcache.types import FULL, MAMBA, ReleaseMode, TierName
from tests.unit.cache.world import AccountingTier, World, text


@dataclass
class Heard:
    """A sink that remembers what was evicted."""

    listening: bool = True
    events: list[SessionEvent] = field(default_factory=list)

    def happened(self, event: SessionEvent) -> None:
        if event.what is Happening.EVICTED:
            self.events.append(event)

    @property
    def told(self) -> Sequence[tuple[str, str | None]]:
        """Since the last look."""
        said = [(event.session, event.component) for event in self.events]
        self.events.clear()
        return said


def watched(world: World, listening: bool = True) -> Heard:
    heard = Heard(listening)
    world.cache.witness.tell(heard)
    return heard


def test_a_session_that_others_push_out_is_told_of_once() -> None:
    world = World(device={FULL: 16})
    heard = watched(world)
    world.turn(text(1, 40), "a")
    world.turn(text(2, 24), "b")
    assert heard.told == []
    world.turn(text(3, 24), "c")
    assert heard.told == [("a", FULL)]
    world.turn(text(4, 24), "d")
    assert "a" not in [session for session, _ in heard.told]
    world.turn(text(1, 40), "a")
    heard.told.clear()
    world.turn(text(5, 56), "e")
    assert ("a", FULL) in heard.told, "after its next turn it can be told of again"


@pytest.mark.parametrize("host", [0, 64])
def test_it_is_said_which_tiers_have_not_all_of_it_any_more(host: int) -> None:
    """The host takes what leaves the device, as long as it is not flushed too."""
    world = World(device={FULL: 16}, host=host, tier=AccountingTier() if host else None)
    heard = watched(world)
    world.turn(text(1, 40), "a")
    world.turn(text(2, 40), "b")
    world.cache.flush()
    both = (TierName.DEVICE, TierName.HOST) if host else (TierName.DEVICE,)
    assert [(event.session, event.lost) for event in heard.events] == [("a", (TierName.DEVICE,)), ("b", both)]


def test_sessions_that_share_what_was_lost_are_all_told_of() -> None:
    world = World(device={FULL: 16})
    heard = watched(world)
    world.turn(text(1, 40), "a")
    world.turn(text(1, 40), "b")
    world.turn(text(2, 48), "c")
    assert sorted(heard.told) == [("a", FULL), ("b", FULL)]


def test_a_state_at_the_frontier_counts() -> None:
    world = World(device={FULL: 64, MAMBA: 2})
    heard = watched(world)
    world.turn(text(1, 24), "a")
    world.turn(text(2, 24), "b")
    world.turn(text(3, 24), "c")
    assert heard.told == [("a", MAMBA)]


@pytest.mark.parametrize("mode", [ReleaseMode.RELEASE, ReleaseMode.DROP])
def test_who_has_closed_loses_nothing(mode: ReleaseMode) -> None:
    world = World(device={FULL: 16})
    heard = watched(world)
    world.turn(text(1, 40), "a")
    world.cache.close_session("a", mode=mode)
    world.turn(text(2, 48), "b")
    assert heard.told == []


def test_who_does_not_listen_costs_nothing() -> None:
    world = World(device={FULL: 16})
    heard = watched(world, listening=False)
    world.turn(text(1, 40), "a")
    world.turn(text(2, 48), "b")
    assert heard.events == []
    assert not world.cache._executor.frontiers._held
