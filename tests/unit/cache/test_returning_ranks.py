"""What is brought for who is away, beside who is here: it keeps its rank, makes way, and goes with its session."""

import pytest

from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.returning import MOST_LOOKS
from agentcache.types import FULL, MAMBA, SWA, ReleaseMode, SessionId
from tests.unit.cache.test_returning import EVERY_WAY, NARROW, SNUG, WAYS, WIDE, A, B, C, Room, Sizes
from tests.unit.cache.tiered import TieredWorld
from tests.unit.cache.world import text

D = text(4)[:64]
FOR_TWO = {FULL: 32, SWA: 32, MAMBA: 16}
S = SessionId("a")


class Spacious(Room):
    """A device for two, off which all has gone: A is away for 28 seconds, B and C have come, and are for longer."""

    def __init__(self, host: Sizes) -> None:
        super().__init__(host, FOR_TWO)
        self.turn(A, "a")
        self.pause(28.0)
        self.steps(1)
        self.cache._executor.make_room({FULL: 32}, self.cache._ledger)
        for name, tokens in (("b", B), ("c", C)):
            self.turn(tokens, name)
            self.pause(120.0, name)
        if self.outside:
            self.cache._executor.make_host_room(NARROW)


@EVERY_WAY
def test_what_is_brought_ranks_as_what_its_session_wants_back(way: str) -> None:
    """Outside it was the only copy, and when it had left nothing was referenced any more."""
    world = Spacious(WAYS[way])
    assert (world.on_device(A), world.cache.session("a").markers) == (0, int(way == "host"))
    world.steps(26.9)
    assert (world.on_device(A), world.cache.session("a").markers) == (64, 1)
    world.turn(D, "d")
    assert world.on_device(A) == 64, "others are expected later"
    assert world.back().device == 64
    world.at_rest()


@EVERY_WAY
def test_others_who_come_round_in_seconds_make_room_for_who_is_due_in_less(way: str) -> None:
    """After four fifths of its half minute A counts as due in a quarter of it; B and C never are away for as long."""
    world = Room(WAYS[way], FOR_TWO)
    world.turn(A, "a")
    world.pause(32.0)
    for _ in range(5):
        for name, tokens in (("b", B), ("c", C)):
            world.turn(tokens, name)
            world.steps(1.5)
    assert world.on_device(A) == 0
    for name, tokens in (("b", B), ("c", C)) * 5:
        world.turn(tokens, name)
        world.steps(1.5)
    assert world.on_device(A) == 0, "and not before the last second"
    world.steps(1.95)
    assert world.on_device(A) == 64
    world.turn(B, "b")
    assert world.on_device(A) == 64, "it is C that makes way"
    assert world.back().device == 64
    world.at_rest()


def test_what_is_left_of_a_path_is_referenced_to_its_end_again() -> None:
    """B shares the first half with A, so that A's marker moved up to it and did not go."""
    world = Room(WAYS["direct"], FOR_TWO)
    world.turn(A[:32], "shared")
    world.turn(A, "a")
    world.pause(28.0)
    world.steps(1)
    world.cache._executor.make_room({FULL: 24}, world.cache._ledger)
    assert 0 < (left := world.on_device(A)) < 64
    assert world.frontiers("a") == [(left, left)]
    world.steps(26.9)
    assert world.frontiers("a") == [(64, left)]
    world.at_rest()


def test_who_has_left_a_branch_keeps_it() -> None:
    """A second branch, on which the session was last: nothing says that it will go on there."""
    world = Room(WAYS["direct"], FOR_TWO)
    world.turn(A[:32], "a")
    world.turn(B, "a")
    world.pause(28.0)
    world.steps(1)
    for pages in (12, 16, 20, 24):
        world.cache._executor.make_room({FULL: pages}, world.cache._ledger)
    before = world.frontiers("a")
    assert before == [(16, 16), (16, 16)]
    world.steps(26.9)
    assert (world.on_device(B), world.frontiers("a")) == (64, before)
    world.at_rest()


@EVERY_WAY
def test_a_drop_takes_what_is_on_its_way(way: str) -> None:
    for moment_s in (7.7, 8.0, 8.2):
        world = Room(WAYS[way])
        world.away(10)
        world.near.prompt = world.far.prompt = False
        world.steps(moment_s)
        world.cache.close_session("a", mode=ReleaseMode.DROP)
        world.near.prompt = world.far.prompt = True
        world.steps(1)
        assert world.core.peek(world.prompt(A).asks(4)[0], 64).any_tier.length == 0
        world.at_rest()


@pytest.mark.parametrize("policy", [PrefetchPolicy.WAIT_COMPLETE, PrefetchPolicy.TIMEOUT])
def test_a_request_that_waits_for_host_room_gets_what_is_kept_for_who_is_away(policy: PrefetchPolicy) -> None:
    """Half of A's path has come, and fills the host so far that C's does not fit."""
    world = Room(NARROW)
    TieredWorld.__init__(world, NARROW, prefetch=PrefetchRules(policy, stretch_tokens=16), device=SNUG)
    world.stored(C)
    world.away(10)
    world.far.prompt = False
    world.steps(7.9)
    for _ in range(2):
        world.far.land_all()
        world.look()
        world.cache.returning.step(world.prefill, pressed=False)
    ticket, prompt = world.expect(C, "c")
    world.far.prompt = True
    for _ in range(20):
        world.look()
        world.cache.returning.step(world.prefill, pressed=True)
    assert world.cache.tiers.arrived(ticket)
    assert world.go(ticket, prompt).cached.external == 56


def test_an_order_that_is_about_what_was_leaves_what_is_awaited() -> None:
    """The close of an older generation comes late: the session goes on, and is brought back."""
    world = Room(WIDE)
    world.cache.open_session("a")
    world.cache.open_session("a", fence=True)
    world.away(10)
    world.steps(5)
    assert world.cache.close_through(S, 1, ReleaseMode.RELEASE).generation == 2
    world.steps(3)
    assert world.on_device(A) == 64


def test_a_word_of_a_long_wait_is_worth_one_more_look() -> None:
    """It has been looked at as often as one may be, and then its client says that it goes on."""
    world = Room(WIDE)
    world.away(10)
    world.pause(11.0)
    world.cache.returning._awaited[S].looks = MOST_LOOKS
    world.steps(5)
    world.resume()
    world.steps(0.5)
    assert world.on_device(A) == 64


@EVERY_WAY
def test_two_words_of_one_moment_are_one_look(way: str) -> None:
    world = Room(WAYS[way])
    world.away(10)
    world.pause(20)
    world.pause(20)
    world.steps(19.9)
    assert world.on_device(A) == 64
    world.at_rest()
