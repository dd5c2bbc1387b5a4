"""A session that other agents push off the device while it waits: its next turn finds all of it there again."""

from dataclasses import dataclass, field

import pytest

from agentcache.clock import ManualClock
from agentcache.engine.api import Admitted, Finished
from agentcache.engine.engine import Engine
from agentcache.records import Paused
from agentcache.stats import CachedTokens
from agentcache.types import SessionId, SessionTag
from tests.accounting import account, play
from tests.engines import GRID, PAGE, ask, prompt_of

SECOND = 10**9


@dataclass
class World:
    """An engine with room for 256 tokens, a host below, one seat, and a thousand prompt tokens a second."""

    host_mib: float | None = 64
    clock: ManualClock = field(default_factory=ManualClock)
    turns: int = 0
    admitted: dict[str, Admitted] = field(default_factory=dict)
    ended: dict[str, Finished] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine: Engine = account(
            model="tiny-full",
            clock=self.clock,
            full_slots=256 // PAGE,
            host_mib=self.host_mib,
            max_running=1,
            prefill_tokens=GRID,
            prompt_only=True,
            accounting_prefill_tokens_per_s=1000,
        )
        self.clock.advance(1000 * SECOND)

    def turn(self, session: str, tokens: int = 96, expected_s: float = 0.0) -> CachedTokens:
        """A turn with the first `tokens` of the session's own words, and one more; answers what it found."""
        tag = SessionTag(SessionId(session), expected_s=expected_s)
        self.turns += 1
        name = f"{session}#{self.turns}"
        self.engine.submit(ask(name, prompt_of(tokens + 1, seed=sum(session.encode())), 1, session=tag))
        play(self.engine, self.clock, self.told)
        return self.admitted[name].cached

    def told(self, event: object) -> None:
        if isinstance(event, Admitted):
            self.admitted[event.request_id] = event
        if isinstance(event, Finished):
            self.ended[event.request_id] = event

    def rest(self, seconds: float) -> None:
        """Nobody asks for anything; whoever drives the engine waits as long as it says."""
        until_ns = self.clock.now_ns() + round(seconds * SECOND)
        while (left_ns := until_ns - self.clock.now_ns()) > 0:
            assert self.engine.step() == []
            self.engine.cache.check()
            self.clock.advance(min(left_ns, round(self.engine.pause_s() * SECOND)))

    def others(self) -> None:
        """Other agents, one of whom takes all the room."""
        for name, tokens in (("b", 64), ("c", 128), ("d", 256)):
            self.turn(name, tokens)

    def has(self, session: str, tokens: int) -> int:
        """How much of a session's words is on the device."""
        request = ask("look", prompt_of(tokens + 1, seed=sum(session.encode())))
        key, limit = self.engine._prompt(request).asks(PAGE)
        return self.engine.cache._core.peek(key, limit).device.length

    @property
    def returns(self) -> tuple[int, int, int, int]:
        said = self.engine.cache.stats().returns
        return said.tokens, said.on_time, said.late, said.unused


@pytest.mark.parametrize("said", ["with the request", "by a pause"])
def test_after_thirty_seconds_away_all_is_on_the_device(said: str) -> None:
    world = World()
    world.turn("a", 96, expected_s=30.0 if said == "with the request" else 0.0)
    if said == "by a pause":
        world.engine.cache.pause_session("a", Paused("bash", 30.0))
    due_ns = world.engine.cache._sessions.shown.due_ns(SessionId("a"))
    assert due_ns
    world.others()
    assert world.has("a", 96) == 0
    world.rest((due_ns - world.clock.now_ns()) / SECOND - 1)
    assert world.has("a", 96) == 0, "not before it is needed"
    world.rest(1)
    assert world.turn("a", 96) == CachedTokens(device=96)
    assert world.returns == (96, 1, 0, 0)
    assert world.ended[f"a#{world.turns}"].first_token_ns < 5_000_000, "the one token that is not cached"


def test_where_others_make_room_for_a_part_that_part_is_brought() -> None:
    """Half of the device is b's, who is back a moment before, and half c's, who is not."""
    world = World()
    world.turn("a", 192, expected_s=30.0)
    due_ns = world.engine.cache._sessions.shown.due_ns(SessionId("a"))
    assert due_ns
    world.turn("b", 128)
    world.engine.cache.pause_session("b", Paused("bash", (due_ns - world.clock.now_ns()) / SECOND - 0.05))
    world.turn("c", 128, expected_s=3000.0)
    assert world.has("a", 192) == 0
    world.rest((due_ns - world.clock.now_ns()) / SECOND - 0.1)
    assert (world.has("a", 192), world.has("b", 128), world.has("c", 128)) == (128, 128, 0)
    assert world.turn("a", 192) == CachedTokens(device=128, host=64)


def test_without_a_word_it_is_on_the_host_only() -> None:
    world = World()
    world.turn("a")
    world.others()
    world.rest(30)
    assert world.turn("a") == CachedTokens(host=96)
    assert world.returns == (0, 0, 0, 0)


def test_an_engine_that_others_keep_busy_brings_it_all_the_same() -> None:
    """While one computes, and nobody waits."""
    world = World()
    world.turn("a", 96, expected_s=20.0)
    world.others()
    for _ in range(38):
        world.turn("b", 128)
        world.rest(0.45)
    world.rest(1.5)
    assert world.turn("a") == CachedTokens(device=96)


def test_without_tiers_nothing_is_awaited() -> None:
    world = World(host_mib=None)
    world.turn("a", 96, expected_s=30.0)
    world.others()
    world.rest(30)
    assert world.turn("a").total == 0
    assert world.engine.cache.returning.due_in_s() == float("inf")


def test_an_engine_at_rest_is_asked_again_in_time_and_no_more() -> None:
    """It is not driven more often because somebody is awaited."""
    world, steps = World(), 0
    world.turn("a", 96, expected_s=30.0)
    world.others()
    while world.has("a", 96) < 96:
        world.engine.step()
        steps += 1
        world.clock.advance(round(world.engine.pause_s() * SECOND))
    assert steps < 40
