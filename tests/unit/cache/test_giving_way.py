"""What tiers must not do to requests: hold their slots, copy their pages twice, end each other."""

import numpy as np
import pytest

from agentcache.engine.sizing import host_slots
from agentcache.errors import Kind
from agentcache.tiers.api import Presence
from agentcache.types import FULL, MAMBA, SWA, TierName, full_spec, mamba_spec
from agentcache.writing import AT_ONCE
from tests.unit.cache.tiered import TieredWorld
from tests.unit.cache.world import GRID, PAGE, refused, text


@pytest.mark.parametrize("host", [{FULL: 32, SWA: 16, MAMBA: 8}, {}], ids=["host", "direct"])
def test_a_slow_store_holds_nobodys_slots_for_long(host: dict) -> None:
    world = TieredWorld(host)
    world.far.prompt = False
    world.turn(text(1, 96))
    world.near.land_all()
    turn = world.begin(text(2, 80))
    assert world.reserve(turn, 80) is None
    assert world.cache.tiers.make_way(), "something will come free"
    assert not world.far.cancelled, "the store may still read"
    world.wait(0.6)
    while world.cache.tiers.make_way() and world.reserve(turn, 80) is None:
        assert world.far.cancelled
    assert world.reserve(turn, 0) is not None
    world.finish(turn)
    world.far.prompt = True
    world.at_rest()


def test_what_is_due_waits_while_a_request_finds_no_slots() -> None:
    world = TieredWorld({})
    world.far.prompt = False
    world.turn(text(1, 5 * GRID))
    assert world.cache.tiers.make_way()
    world.far.land_all()
    world.look()
    assert not world.far.waiting, "the boundaries that are due stay where they are"
    world.wait(0.1)
    world.look()
    assert world.far.waiting


def test_a_quick_store_is_not_cut_short() -> None:
    world = TieredWorld({})
    world.far.prompt = False
    world.turn(text(1, 96))
    turn = world.begin(text(2, 80))
    world.reserve(turn, 80)
    assert not world.far.cancelled
    world.finish(turn)


def test_a_turn_that_ends_while_its_load_is_held_leaves_no_job() -> None:
    world = TieredWorld()
    world.turn(text(1, 64), "s")
    world.settle()
    for seed in range(2, 5):
        world.turn(text(seed, 96))
        world.settle()
    turn = world.begin(np.append(text(1, 64), 7).astype(np.int32))
    assert turn.loading
    world.finish(turn)
    world.look()
    assert world.cache.tiers.idle
    assert all(use.protected == 0 for use in world.cache.stats().pools)


def test_copies_of_many_turns_wait_for_each_other_and_none_is_lost() -> None:
    world = TieredWorld({})
    world.far.prompt = False
    prompts = [text(seed, GRID) for seed in range(8)]
    for tokens in prompts:
        world.turn(tokens)
    assert len(world.far.waiting) == AT_ONCE
    world.far.prompt = True
    world.settle()
    world.cache.flush()
    assert [world.hit_of(np.append(tokens, 7).astype(np.int32)).external for tokens in prompts] == [GRID] * 8


def test_a_prompt_with_more_names_than_may_be_asked_is_looked_up_as_far_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentcache.prefetch.MOST_NAMES", 20)
    world = TieredWorld()
    world.stored(text(1, 96))
    assert world.hit_of(np.append(text(1, 96), 7).astype(np.int32)).external == 32


def test_a_page_travels_to_the_host_once() -> None:
    """Boundaries of one turn share their path: FULL of it goes down with the deepest."""
    world = TieredWorld()
    world.near.prompt = world.far.prompt = False
    tokens = text(1, 10 * GRID)
    world.turn(tokens)
    sent = [
        piece.slots.size for one in world.near.waiting for piece in one.targets if piece.component == FULL
    ]
    assert sent == [len(tokens) // PAGE]
    world.near.prompt = world.far.prompt = True
    world.settle()
    assert world.slots_on(TierName.HOST)[FULL] == len(tokens) // PAGE
    assert world.slots_on(TierName.HOST)[MAMBA] == world.slots_on(TierName.DEVICE)[MAMBA]


def test_a_peek_counts_what_is_on_the_host() -> None:
    world = TieredWorld()
    world.turn(text(1, 64), "s")
    world.settle()
    for seed in range(2, 5):
        world.turn(text(seed, 96))
        world.settle()
    ticket, prompt = world.expect(np.append(text(1, 64), 7).astype(np.int32))
    assert world.cache.peek(prompt) == 64
    assert world.end(world.go(ticket, prompt)).cached.device < 64


def test_a_prefetch_that_fails_ends_alone() -> None:
    world = TieredWorld({})
    world.stored(text(1, 64))
    fails = world.expect(np.append(text(2, 64), 7).astype(np.int32))
    world.far.answer = _broken
    world.look()
    world.far.answer = None
    well = world.expect(np.append(text(1, 64), 7).astype(np.int32))
    assert world.cache.tiers.arrived(fails[0])
    assert world.end(world.go(*fails)).cached.total == 0
    world.look(4)
    assert world.end(world.go(*well)).cached.external == 64
    world.at_rest()


def test_what_another_request_computed_is_not_from_outside() -> None:
    world = TieredWorld({})
    world.far.answer = lambda _name: Presence.PENDING
    tokens = text(1, 64)
    waiting = world.expect(np.append(tokens, 7).astype(np.int32))
    world.look()
    world.turn(tokens)
    world.far.answer = None
    world.look(3)
    cached = world.end(world.go(*waiting)).cached
    assert (cached.device, cached.external) == (64, 0)


def test_a_model_without_bytes_has_no_host_tier() -> None:
    assert host_slots((full_spec(),), {FULL: 8}, host_mib=64) == {}


def test_host_memory_for_less_than_a_slot_is_refused_with_what_is_enough() -> None:
    specs = (full_spec(2**20), mamba_spec(64, slot_bytes=2**20))
    sizes = {FULL: 12, MAMBA: 4}
    with refused(Kind.BAD_CONFIG) as error:
        host_slots(specs, sizes, host_mib=3)
    assert "raise it to 4.0" in error.value.message
    assert host_slots(specs, sizes, host_mib=4) == {FULL: 3, MAMBA: 1}


def _broken(_name: str) -> Presence:
    raise RuntimeError("a lookup that must not fail, and does")
