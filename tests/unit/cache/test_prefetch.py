"""Prefetches: how long they are waited for, who is worked on, what is kept for whom, and every way out of them."""

import pytest

from agentcache.keys import Key, object_name, page_hashes
from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.stats import CachedTokens
from agentcache.tiers.api import Presence
from agentcache.types import FULL, MAMBA, SWA, ComponentName, TierName
from tests.moving import nothing
from tests.unit.cache.tiered import HOST, TieredWorld
from tests.unit.cache.world import GRID, HOME, PAGE, text

A, B, C = text(1, 65), text(2, 65), text(3, 65)
BEST_EFFORT = PrefetchRules(PrefetchPolicy.BEST_EFFORT)
TIMEOUT = PrefetchRules(PrefetchPolicy.TIMEOUT, timeout_s=2, timeout_per_1k_s=16)
Host = dict[ComponentName, int]
WAYS = pytest.mark.parametrize("host", [HOST, {}], ids=["host", "direct"])


def loads(world: TieredWorld) -> list[int]:
    """Numbers of the loads that wait outside."""
    return [transfer.job.number for transfer in world.far.waiting if transfer.job.number < 0]


# the policies


@WAYS
def test_what_lies_outside_is_there_when_the_request_begins(host: Host) -> None:
    """R017, R217: nothing in the tree says that it was ever there; it is found, and counts as external."""
    world = TieredWorld(host=host)
    world.stored(A)
    assert world.hit_of(A) == CachedTokens(external=64)
    assert world.hit_of(A) == CachedTokens(device=64)
    world.at_rest()


def test_best_effort_waits_for_nothing() -> None:
    world = TieredWorld(prefetch=BEST_EFFORT)
    world.stored(A)
    world.far.prompt = False
    ticket, prompt = world.expect(A)
    assert world.cache.tiers.arrived(ticket)
    world.look(2)
    assert len(loads(world)) == 1
    assert world.cache.tiers.arrived(ticket)
    assert world.end(world.go(ticket, prompt)).cached_tokens == 0
    world.at_rest()


def test_wait_complete_waits_to_the_end() -> None:
    world = TieredWorld()
    world.stored(A)
    world.far.prompt = False
    ticket, prompt = world.expect(A)
    for _ in range(3):
        world.look()
        world.wait(3600)
        assert not world.cache.tiers.arrived(ticket)
    world.far.land_all()
    assert not world.cache.tiers.arrived(ticket)
    world.look()
    assert world.cache.tiers.arrived(ticket)
    assert world.end(world.go(ticket, prompt)).cached.external == 64
    world.at_rest()


def test_a_timeout_counts_from_the_moment_that_the_request_could_begin() -> None:
    """Two seconds, and one more for 64 tokens; nothing before it was asked whether it should begin."""
    world = TieredWorld(prefetch=TIMEOUT)
    world.stored(A)
    world.far.prompt = False
    ticket, prompt = world.expect(A)
    world.wait(100)
    assert not world.cache.tiers.arrived(ticket), "not looked at yet"
    world.look()
    world.wait(100)
    assert not world.cache.tiers.arrived(ticket), "from now on"
    world.wait(2.99)
    assert not world.cache.tiers.arrived(ticket)
    world.wait(0.02)
    assert world.cache.tiers.arrived(ticket)
    assert world.end(world.go(ticket, prompt)).cached_tokens == 0
    world.at_rest()


def test_a_timeout_takes_what_has_landed() -> None:
    world = TieredWorld(prefetch=PrefetchRules(PrefetchPolicy.TIMEOUT, stretch_tokens=2 * GRID))
    world.stored(A)
    world.far.prompt = False
    ticket, prompt = world.expect(A)
    world.look()
    world.far.land_all()
    world.look()
    assert len(loads(world)) == 1, "the second stretch"
    assert not world.cache.tiers.arrived(ticket)
    world.wait(2)
    assert world.cache.tiers.arrived(ticket)
    assert world.end(world.go(ticket, prompt)).cached == CachedTokens(external=2 * GRID)
    world.at_rest()


@pytest.mark.parametrize("rules", [BEST_EFFORT, TIMEOUT, PrefetchRules(PrefetchPolicy.WAIT_COMPLETE)])
@pytest.mark.parametrize("answer", [Presence.RETRY, Presence.MISS])
def test_what_is_not_there_or_cannot_be_asked_is_not_waited_for(
    rules: PrefetchRules, answer: Presence
) -> None:
    """R145: no time passes at all."""
    world = TieredWorld(prefetch=rules)
    world.stored(A)
    world.far.answer = lambda _name: answer
    ticket, prompt = world.expect(A)
    world.look()
    assert world.cache.tiers.arrived(ticket)
    assert world.end(world.go(ticket, prompt)).cached_tokens == 0
    world.at_rest()


def test_a_request_that_cannot_reuse_a_chunk_asks_nothing() -> None:
    world = TieredWorld()
    ticket, prompt = world.expect(A[:GRID])
    assert world.cache.tiers.arrived(ticket)
    assert world.cache.tiers.idle
    world.end(world.go(ticket, prompt))
    world.at_rest()


@WAYS
@pytest.mark.parametrize("near", [8, 24, 40])
def test_what_is_there_already_is_not_brought_again(host: Host, near: int) -> None:
    """R098: pages from outside are filed behind what is resident, and count for themselves."""
    world = TieredWorld(host=host)
    world.stored(A)
    world.far.objects, kept = {}, world.far.objects
    world.turn(A[: near + 1])
    world.settle()
    world.far.objects = kept
    assert world.hit_of(A) == CachedTokens(device=near, external=64 - near)
    assert world.cache.stats().prefetched_tokens == 64 - near
    world.at_rest()


# who is worked on


def test_the_first_of_the_queue_share_the_pool() -> None:
    """Paths of 16 pages in a host of 32: half of it is one of them, all of it two."""
    for share, worked_on in ((0.5, 1), (1.0, 2)):
        world = TieredWorld(prefetch=PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, share=share))
        for tokens in (A, B, C):
            world.stored(tokens)
        world.far.prompt = False
        waiting = [world.expect(tokens) for tokens in (A, B, C)]
        world.look(3)
        assert len(loads(world)) == worked_on
        world.cache.leave(waiting[0][0])
        world.look(3)
        assert len(loads(world)) == worked_on, "the next one's turn"
        for ticket, _ in waiting[1:]:
            world.cache.leave(ticket)
        world.at_rest()


def test_one_path_larger_than_its_share_is_worked_on_alone() -> None:
    world = TieredWorld(prefetch=PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, share=0.01))
    world.stored(A)
    assert world.hit_of(A).external == 64
    world.at_rest()


def test_a_path_that_the_host_could_never_hold_goes_to_the_device() -> None:
    world = TieredWorld(host={FULL: 8, SWA: 4, MAMBA: 2})
    world.stored(A)
    assert world.hit_of(A) == CachedTokens(external=64)
    assert world.slots_on(TierName.HOST)[FULL] <= 8
    world.at_rest()


def test_two_requests_with_one_prefix_load_it_once() -> None:
    world = TieredWorld(prefetch=PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, share=1.0))
    world.stored(A)
    world.far.prompt = False
    one, other = world.expect(A), world.expect(A)
    world.look(3)
    assert len(loads(world)) == 1
    world.far.land_all()
    world.look(3)
    assert loads(world) == []
    for ticket, prompt in (one, other):
        assert world.cache.tiers.arrived(ticket)
        assert world.end(world.go(ticket, prompt)).cached_tokens == 64
    assert world.cache.stats().prefetched_tokens == 64
    world.at_rest()


def test_the_second_loads_it_when_the_first_one_leaves() -> None:
    world = TieredWorld(prefetch=PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, share=1.0))
    world.stored(A)
    world.far.prompt = False
    (first, _), (second, prompt) = world.expect(A), world.expect(A)
    world.look(2)
    world.cache.leave(first)
    world.look(2)
    assert len(loads(world)) == 1
    world.far.land_all()
    world.look(2)
    assert world.end(world.go(second, prompt)).cached.external == 64
    world.at_rest()


# what is kept


@WAYS
def test_what_was_brought_stays_until_the_request_begins(host: Host) -> None:
    """R059, R131: others push everything else out; the pin ends with the request."""
    world = TieredWorld(host=host)
    world.stored(A)
    ticket, prompt = world.expect(A)
    world.look(3)
    for number in range(10, 20):
        world.turn(text(number, 48))
    assert world.end(world.go(ticket, prompt)).cached == CachedTokens(external=64)
    world.at_rest()


@WAYS
def test_what_was_brought_may_leave_once_the_request_has_left(host: Host) -> None:
    world = TieredWorld(host=host)
    world.stored(A)
    ticket, _ = world.expect(A)
    world.look(3)
    assert any(pool.protected for pool in world.cache.stats().pools)
    world.cache.leave(ticket)
    world.look()
    assert not any(pool.protected for pool in world.cache.stats().pools)
    world.far.objects.clear()
    for number in range(10, 30):
        world.turn(text(number, 48))
    assert world.hit_of(A).total == 0
    world.at_rest()


@WAYS
def test_what_is_kept_for_those_that_wait_makes_way_one_by_one(host: Host) -> None:
    """R222: the last of the queue first; nobody starves for a pin."""
    world = TieredWorld(host=host, prefetch=PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, share=1.0))
    for tokens in (A, B):
        world.stored(tokens)
    waiting = [world.expect(A[:33]), world.expect(B[:33])]
    world.look(6)
    assert [world.cache.tiers.make_way() for _ in range(3)] == [True, True, False]
    world.look()
    assert not any(pool.protected for pool in world.cache.stats().pools)
    for ticket, prompt in waiting:
        assert world.end(world.go(ticket, prompt)).cached.external == 32
    world.at_rest()


# the ways out


@WAYS
@pytest.mark.parametrize("looks", range(5))
@pytest.mark.parametrize("landed", ["nothing", "some", "all"])
def test_a_request_that_leaves_at_any_moment_leaves_nothing(host: Host, looks: int, landed: str) -> None:
    """R058: no slot, no pin, no place in the queue is left of it."""
    world = TieredWorld(host=host, prefetch=PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, stretch_tokens=GRID))
    world.stored(A)
    world.far.prompt = False
    ticket, _ = world.expect(A)
    for _ in range(looks):
        world.look()
        if landed != "nothing":
            world.far.land_all(lambda _piece, end: landed == "all" or end % 16 == 0)
    world.cache.leave(ticket)
    world.cache.check()
    assert world.cache.tiers.idle
    assert loads(world) == []
    world.far.prompt = True
    assert world.hit_of(A).total == 64
    world.at_rest()


def test_a_thousand_requests_that_leave_do_not_switch_prefetching_off() -> None:
    """R058."""
    world = TieredWorld()
    world.stored(A)
    world.far.prompt = False
    for number in range(1000):
        ticket, _ = world.expect(A)
        if number % 3:
            world.cache.tiers.step()
        if number % 3 == 2:
            world.far.land_all(nothing)
            world.cache.tiers.step()
        world.cache.leave(ticket)
    world.far.prompt = True
    assert world.cache.tiers.idle
    assert world.hit_of(A).external == 64
    world.at_rest()


def test_a_load_that_brings_nothing_is_not_tried_for_ever() -> None:
    """R031, R141: there when asked, gone when read; of eight stretches the first one says enough."""
    world = TieredWorld(prefetch=PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, stretch_tokens=GRID))
    world.stored(A)
    world.far.answer = lambda _name: Presence.HIT
    world.far.objects.clear()
    world.far.prompt = False
    ticket, prompt = world.expect(A)
    world.look()
    assert len(loads(world)) == 1
    world.far.land_all()
    world.look()
    assert loads(world) == []
    assert world.cache.tiers.arrived(ticket)
    assert world.end(world.go(ticket, prompt)).cached_tokens == 0
    world.far.prompt = True
    world.at_rest()


@WAYS
@pytest.mark.parametrize("name", [FULL, SWA, MAMBA])
def test_what_arrives_without_one_component_is_voted_again(host: Host, name: ComponentName) -> None:
    """R005, R031, R130, R143: pages without their window or state are no boundary, and are in nobody's way."""
    world = TieredWorld(host=host)
    world.stored(A)
    *_, deepest = page_hashes(Key(A[:64], HOME), PAGE)
    world.far.answer = lambda _name: Presence.HIT
    del world.far.objects[object_name(deepest, name)]
    assert world.hit_of(A).total < 64
    world.far.answer = None
    world.at_rest()


def test_without_room_the_first_waits_and_nobody_overtakes() -> None:
    """Eight of twenty host pages are being read; sixteen are wanted, and then four, for which there would be room."""
    world = TieredWorld(
        host={FULL: 20, SWA: 16, MAMBA: 8}, prefetch=PrefetchRules(PrefetchPolicy.WAIT_COMPLETE, share=1.0)
    )
    for tokens in (A, B[:17], C[:33]):
        world.stored(tokens)
    reading, prompt = world.expect(C[:33])
    world.look(3)
    turn = world.cache.begin(reading, prompt)
    waiting = [world.expect(A), world.expect(B[:17])]
    world.look(4)
    assert loads(world) == []
    assert not any(world.cache.tiers.arrived(ticket) for ticket, _ in waiting)
    while not world.cache.ready(turn):
        world.look()
    world.finish(turn)
    world.look(4)
    for ticket, prompt in waiting:
        assert world.cache.tiers.arrived(ticket)
        assert world.end(world.go(ticket, prompt)).cached.external == len(prompt.tokens) - 1
    world.at_rest()
