"""Sessions that are expected back: when their data is brought, from where, for whom it makes way; what is counted."""

from dataclasses import astuple

import pytest

from agentcache.cache import Prompt
from agentcache.keys import page_key
from agentcache.records import Paused
from agentcache.returning import MOST_AT_ONCE
from agentcache.stats import CachedTokens
from agentcache.tiers.api import Presence
from agentcache.types import FULL, MAMBA, SWA, ComponentName, ReleaseMode, SessionId, Tokens, Wait, WaitState
from agentcache.waits import Throughput
from tests.moving import ScriptedTier, nothing
from tests.unit.cache.tiered import TieredWorld
from tests.unit.cache.world import HOME, PAGE, text

Sizes = dict[ComponentName, int]
ONE, TWO, THREE = text(1), text(2), text(3)
A, B, C = ONE[:64], TWO[:64], THREE[:64]
WIDE, NARROW = {FULL: 128, SWA: 128, MAMBA: 64}, {FULL: 20, SWA: 20, MAMBA: 10}
SNUG = {FULL: 16, SWA: 16, MAMBA: 8}
"""One session's pages, and no more."""
WAYS: dict[str, Sizes] = {"host": WIDE, "outside": NARROW, "direct": {}}
EVERY_WAY = pytest.mark.parametrize("way", WAYS)
SLOW, FAST = Throughput(10.0), Throughput(1e9)


class Room(TieredWorld):
    """A device for one session, whose A waits while B takes a turn. What moves has landed at the next look."""

    def __init__(self, host: Sizes = WIDE, device: Sizes = SNUG) -> None:
        super().__init__(host=host, device=device)
        self.prefill, self.pressed, self.outside = SLOW, False, host == NARROW

    def turn(self, tokens: Tokens, session: str | None = None, user_end: int = 10**9, **tag: float) -> int:
        """A whole request; what the host has is waited for."""
        turn = self.go(self.enter(session, **tag), self.prompt(tokens))
        self.compute(turn, tokens)
        return self.finish(turn, user_end)

    def steps(self, seconds: float) -> None:
        """Time passes, and the engine steps, as often as it has to."""
        until_ns = self.clock.now_ns() + round(seconds * 10**9)
        while (left_ns := until_ns - self.clock.now_ns()) > 0:
            self.cache.tiers.step()
            if self.cache.returning.due:
                self.cache.returning.step(self.prefill, self.pressed)
            self.cache.check()
            pause_s = min(50.0, max(0.02, self.cache.returning.due_in_s())) if self.cache.tiers.idle else 0.02
            self.clock.advance(min(left_ns, round(pause_s * 10**9)))

    def away(self, expected_s: float | None = None) -> None:
        """A has taken a turn and waits, said when it is back or not; two seconds later the device has B's data only."""
        self.leaves(expected_s)
        if self.outside:
            self.cache._executor.make_host_room(NARROW)
        assert self.on_device(A) == 0

    def leaves(self, expected_s: float | None) -> None:
        self.turn(A, "a")
        if expected_s is not None:
            self.pause(expected_s)
        self.steps(1)
        self.turn(B, "b")
        self.steps(1)

    def pause(self, expected_s: float, session: str = "a") -> None:
        self.cache.pause_session(session, Paused("bash", expected_s))

    def resume(self) -> None:
        self.cache.pause_session("a", None)

    def on_device(self, tokens: Tokens) -> int:
        return self.core.peek(page_key(tokens, HOME, PAGE), len(tokens)).device.length

    def back(self) -> CachedTokens:
        """A's next turn; answers what it finds."""
        turn = self.go(self.enter("a"), self.prompt(ONE[:66]))
        self.finish(turn)
        return turn.cached

    def prompt(self, tokens: Tokens) -> Prompt:
        return Prompt(tokens, HOME, len(tokens) - 1)

    @property
    def counts(self) -> tuple[int, ...]:
        """Tokens, on time, late, unused."""
        return astuple(self.cache.stats().returns)


# when, and from where


@EVERY_WAY
def test_who_is_expected_finds_all_of_it_on_the_device(way: str) -> None:
    world = Room(WAYS[way])
    world.away(30)
    world.steps(26)
    assert world.on_device(A) == 0, "not yet"
    world.steps(1.9)
    assert world.on_device(A) == 64
    assert world.back() == CachedTokens(device=64)
    assert world.counts == (64, 1, 0, 0)
    world.at_rest()


@EVERY_WAY
@pytest.mark.parametrize("word", ["resume", "pause"])
def test_who_says_that_it_goes_on_has_it_at_once(way: str, word: str) -> None:
    world = Room(WAYS[way])
    world.away(3000)
    world.resume() if word == "resume" else world.pause(1.0)
    world.steps(0.5)
    assert world.on_device(A) == 64
    assert world.counts == (64, 0, 0, 0)


def test_resumed_twice_it_is_brought_once() -> None:
    world = Room()
    world.away(3000)
    world.near.prompt = False
    world.resume()
    world.steps(0.2)
    world.resume()
    world.steps(0.2)
    assert len(world.near.waiting) == 1
    world.near.land_all()
    world.steps(0.2)
    world.resume()
    world.steps(0.2)
    assert world.counts == (64, 0, 0, 0)


def test_who_is_always_away_as_long_is_expected_without_a_word() -> None:
    world = Room()
    for _ in range(3):
        world.turn(A, "a")
        world.steps(20)
    world.away()
    world.cache.close_session("b")
    world.steps(16)
    assert world.on_device(A) == 0
    world.steps(1.9)
    assert world.on_device(A) == 64


def test_who_says_nothing_and_was_seen_once_is_not_expected() -> None:
    world = Room()
    world.away()
    world.steps(100)
    assert world.on_device(A) == 0


def test_for_a_wait_of_less_than_a_second_nothing_moves() -> None:
    world = Room()
    world.turn(A, "a", expected_s=0.9)
    world.turn(B, "b")
    world.steps(3)
    assert (world.on_device(A), world.counts) == (0, (0, 0, 0, 0))


def test_what_is_computed_in_less_time_is_not_brought_but_now_and_then() -> None:
    world = Room()
    world.prefill = FAST
    brought = []
    for _ in range(16):
        world.away(10)
        world.steps(8.5)
        brought.append(world.on_device(A) > 0)
        world.back()
    assert 0 < brought.count(True) < 4


def test_what_is_there_anyway_is_not_moved() -> None:
    world = Room()
    world.turn(A, "a")
    world.pause(10)
    world.near.prompt = False
    world.steps(12)
    assert not [job for job in world.near.waiting if job.job.source == "host"]
    assert world.counts == (0, 0, 0, 0)


# for whom it makes way


@EVERY_WAY
@pytest.mark.parametrize(("other_s", "there"), [(28.0, 0), (3000.0, 64)])
def test_who_is_expected_earlier_keeps_its_place(way: str, other_s: float, there: int) -> None:
    """B waits since two seconds less, for as long as A, or much longer."""
    world = Room(WAYS[way])
    world.away(30)
    world.pause(other_s, "b")
    world.steps(28)
    assert (world.on_device(A), world.on_device(B)) == (there, 64 if not there else 0)
    world.at_rest()


def test_while_a_request_waits_nothing_is_begun() -> None:
    world = Room()
    world.away(10)
    world.pressed = True
    world.steps(9)
    assert (world.on_device(A), len(world.near.waiting)) == (0, 0)
    world.pressed = False
    world.steps(0.2)
    assert world.on_device(A) == 64


@pytest.mark.parametrize("way", ["host", "direct"])
def test_a_request_that_finds_no_slots_ends_what_is_on_its_way(way: str) -> None:
    world = Room(WAYS[way])
    world.away(10)
    world.near.prompt = world.far.prompt = False
    world.steps(8)
    assert world.near.waiting or world.far.waiting
    turn = world.begin(C, "c")
    assert world.reserve(turn, 64) is None
    assert world.reserve(turn, 64) is not None
    world.finish(turn)
    world.at_rest()


def test_what_has_landed_is_kept_by_nobody() -> None:
    """C pushes it off again; A comes and finds it gone."""
    world = Room()
    world.away(10)
    world.steps(8)
    assert world.on_device(A) == 64
    assert all(pool.protected == 0 for pool in world.cache.stats().pools)
    world.turn(C, "c")
    assert world.on_device(A) == 0
    world.back()
    assert world.counts == (64, 0, 0, 1)


# who is believed


def hits(said: float, resumes: bool = False) -> int:
    """A is away for very different times, and says something else of each; what it finds on the device in the end."""
    world, found = Room(), []
    for gap in (40, 700, 40, 700, 60, 900, 30, 600):
        world.leaves(said)
        if resumes:
            world.resume()
        world.steps(gap - 2)
        found.append(world.back().device)
    return sum(found[2:])


@pytest.mark.parametrize(("said", "resumes"), [(2.0, False), (0.5, False), (0.0, True), (3.0, True)])
def test_a_liar_gains_nothing_once_it_was_found_out(said: float, resumes: bool) -> None:
    assert hits(said, resumes) <= hits(0.0)


def test_who_tells_the_truth_gains() -> None:
    world, found = Room(), []
    for gap in (40, 700, 40, 700):
        world.away(gap)
        world.steps(gap - 2)
        found.append(world.back().device)
    assert found == [64] * 4


@pytest.mark.parametrize("said", [-5.0, float("nan"), float("inf"), -float("inf"), 1e300, 1e-300, 3e7, 0.0])
def test_absurd_times_do_no_harm(said: float) -> None:
    world = Room()
    world.away(said)
    world.steps(60)
    assert world.back().total == 64
    world.at_rest()


# ways out


@EVERY_WAY
@pytest.mark.parametrize("mode", [ReleaseMode.RELEASE, ReleaseMode.DEMOTE, ReleaseMode.DROP])
def test_a_close_ends_it_wherever_it_is(way: str, mode: ReleaseMode) -> None:
    for moment_s in (1, 7.8, 8.0, 8.2, 9):
        world = Room(WAYS[way])
        world.away(10)
        world.near.prompt = world.far.prompt = False
        world.steps(moment_s)
        world.cache.close_session("a", mode=mode)
        world.cache.check()
        world.steps(3)
        assert not world.cache.returning.due
        world.near.prompt = world.far.prompt = True
        world.at_rest()


def test_brought_and_closed_is_of_no_use() -> None:
    world = Room()
    world.away(10)
    world.steps(8)
    world.cache.close_session("a")
    assert world.counts == (64, 0, 0, 1)


@EVERY_WAY
def test_who_comes_while_it_is_on_its_way_is_served_all_the_same(way: str) -> None:
    world = Room(WAYS[way])
    world.away(10)
    world.near.prompt = world.far.prompt = False
    world.steps(8)
    world.near.prompt = world.far.prompt = True
    world.back()
    assert world.counts[1:] == (0, 1, 0)
    world.at_rest()


def test_who_idles_out_is_not_awaited_any_more() -> None:
    world = Room()
    world.away(3000)
    world.wait(1900)
    world.cache.sweep()
    world.steps(1200)
    assert (world.on_device(A), world.counts) == (0, (0, 0, 0, 0))


@pytest.mark.parametrize("answer", [Presence.MISS, Presence.RETRY, Presence.HIT, Presence.PENDING])
@pytest.mark.parametrize("way", ["outside", "direct"])
def test_a_store_that_has_nothing_costs_nothing(way: str, answer: Presence) -> None:
    world = Room(WAYS[way])
    world.away(10)
    world.far.objects.clear()
    world.far.answer = lambda _name: answer
    world.steps(10)
    assert (world.on_device(A), world.counts) == (0, (0, 0, 0, 0))
    world.far.answer = None
    world.back()
    world.at_rest()


def test_what_arrives_in_part_is_brought_as_far_as_it_goes() -> None:
    world = Room()
    world.away(10)
    world.near.prompt = False
    world.steps(8)
    world.near.land_all(nothing)
    world.near.prompt = True
    world.steps(1)
    assert world.back().total == 64
    world.at_rest()


@EVERY_WAY
def test_another_store_and_a_flush_end_it(way: str) -> None:
    for flushes in (False, True):
        world = Room(WAYS[way])
        world.away(10)
        world.near.prompt = world.far.prompt = False
        world.steps(8)
        if flushes:
            world.cache.flush()
        else:
            world.far = ScriptedTier(world.far.name, PAGE, world.marks, prompt=True)
            world.cache.tiers.attach(world.far)
        world.cache.check()
        world.near.prompt = world.far.prompt = True
        world.steps(2)
        world.at_rest()


def test_thousands_due_at_once_come_a_few_at_a_time() -> None:
    world, now = Room(), 10**12
    returning = world.cache.returning
    for number in range(3000):
        session = SessionId(f"s{number}")
        world.cache.paths.put(session, 1, page_key(text(number), HOME, PAGE), 200)
        returning.expect(session, Wait(WaitState.IDLE, now, now, 10 * 10**9), now + 10 * 10**9)
        returning.expect(session, Wait(WaitState.IDLE, now, now, 10 * 10**9), now + 10 * 10**9 + number)
    world.wait(9.9)
    for _ in range(30):
        returning.step(SLOW, pressed=False)
        assert len(returning._moving) <= MOST_AT_ONCE
        world.cache.tiers.step()
    for number in range(3000):
        returning.forget(SessionId(f"s{number}"))
    assert len(returning._looks) < 4 * 3000 + 65
