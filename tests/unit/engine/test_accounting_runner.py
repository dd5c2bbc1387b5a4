"""A runner that keeps account fails where a real one would read or write something wrong."""

from typing import Any

import numpy as np
import pytest

from agentcache.clock import ManualClock
from agentcache.engine.accounting import AccountingRunner, CountedState, ModelledTime, Stamps
from agentcache.errors import CacheError, Kind
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    Boundary,
    Lease,
    Locked,
    NodeRef,
    Piece,
    PoolName,
    Slots,
    TierName,
    full_spec,
    mamba_spec,
    swa_spec,
)

PAGE, GRID, WINDOW = 4, 8, 7
SPECS = (full_spec(), swa_spec(WINDOW), mamba_spec(GRID))
TOKENS = tuple(range(100, 140))


class World:
    """A runner over pools of 32 slots, and pieces in slots that a test chooses."""

    def __init__(self) -> None:
        self.pools = {PoolName(spec.name, TierName.DEVICE): Stamps(32) for spec in SPECS}
        time = ModelledTime(ManualClock(), 0, 0)
        self.runner = AccountingRunner(SPECS, PAGE, GRID, self.pools, time)

    def computed(self, tokens: tuple[int, ...]) -> CountedState:
        state = self.runner.new_state()
        self.runner.prefill(state, tokens)
        return state

    def saved(self, tokens: tuple[int, ...], first_slot: int = 0) -> tuple[Piece, ...]:
        """Publish at the end of `tokens`; the pieces that its boundary needs."""
        pieces = pieces_at(len(tokens), first_slot)
        self.runner.save(self.computed(tokens), pieces)
        return pieces


def slots(first: int, count: int) -> Slots:
    return np.arange(first, first + count, dtype=np.int32)


def pieces_at(boundary: int, first_slot: int = 0) -> tuple[Piece, ...]:
    window = SPECS[1].rule.region(boundary, PAGE)
    pages = (window.end - window.start) // PAGE
    return (
        Piece(FULL, 0, boundary, slots(first_slot, boundary // PAGE)),
        Piece(SWA, window.start, boundary, slots(first_slot, pages)),
        Piece(MAMBA, boundary, boundary, slots(first_slot, 1)),
    )


def locked(boundary: int, pieces: tuple[Piece, ...]) -> Locked:
    return Locked(Lease(1), Boundary(NodeRef(1, 1), boundary, 1), pieces)


def refusal(call: Any, *given: Any) -> CacheError:
    with pytest.raises(CacheError) as refused:
        call(*given)
    return refused.value


@pytest.fixture
def world() -> World:
    return World()


def test_a_restored_state_goes_on_as_if_it_had_been_computed(world: World) -> None:
    pieces = world.saved(TOKENS[:16])
    state = world.runner.new_state()
    world.runner.restore(state, locked(16, pieces))
    world.runner.prefill(state, TOKENS[16:24])
    whole = world.computed(TOKENS[:24])
    assert (state.length, state.chain, state.rest) == (whole.length, whole.chain, whole.rest)


def test_an_empty_boundary_restores_nothing(world: World) -> None:
    state = world.runner.new_state()
    world.runner.restore(state, locked(0, ()))
    assert state.length == 0


@pytest.mark.parametrize("lacking", [0, 1, 2], ids=["FULL", "SWA", "MAMBA"])
def test_a_piece_that_is_not_there_is_not_restored(world: World, lacking: int) -> None:
    pieces = world.saved(TOKENS[:16])
    fewer = tuple(piece for number, piece in enumerate(pieces) if number != lacking)
    assert (
        refusal(world.runner.restore, world.runner.new_state(), locked(16, fewer)).kind is Kind.NOT_RESIDENT
    )


@pytest.mark.parametrize("component", [FULL, SWA, MAMBA])
def test_slots_that_nobody_wrote_are_not_restored(world: World, component: Any) -> None:
    pieces = world.saved(TOKENS[:16])
    world.pools[PoolName(component, TierName.DEVICE)].values[:] = 0
    assert (
        refusal(world.runner.restore, world.runner.new_state(), locked(16, pieces)).kind is Kind.NOT_RESIDENT
    )


@pytest.mark.parametrize("swapped", [1, 2], ids=["SWA", "MAMBA"])
def test_pieces_of_another_path_are_not_restored(world: World, swapped: int) -> None:
    mine, other = world.saved(TOKENS[:16]), world.saved(TOKENS[1:17], first_slot=8)
    mixed = tuple(other[number] if number == swapped else piece for number, piece in enumerate(mine))
    error = refusal(world.runner.restore, world.runner.new_state(), locked(16, mixed))
    assert error.kind is Kind.NOT_RESIDENT
    assert "another path" in error.message


def test_pages_in_another_order_are_not_restored(world: World) -> None:
    full, window, state = world.saved(TOKENS[:16])
    turned = Piece(FULL, 0, 16, full.slots[[1, 0, 2, 3]])
    error = refusal(world.runner.restore, world.runner.new_state(), locked(16, (turned, window, state)))
    assert error.kind is Kind.NOT_RESIDENT


def test_tokens_that_are_not_computed_are_not_saved(world: World) -> None:
    state = world.computed(TOKENS[:16])
    for piece in pieces_at(24):
        assert refusal(world.runner.save, state, [piece]).kind is Kind.BAD_INSERT


def test_a_state_is_saved_only_where_the_request_stands(world: World) -> None:
    state = world.computed(TOKENS[:16])
    assert refusal(world.runner.save, state, [Piece(MAMBA, 8, 8, slots(0, 1))]).kind is Kind.BAD_INSERT


def test_a_window_that_has_moved_on_is_not_saved(world: World) -> None:
    state = world.computed(TOKENS)
    world.runner.save(state, [Piece(SWA, 24, 32, slots(0, 2))])
    assert refusal(world.runner.save, state, [Piece(SWA, 0, 8, slots(0, 2))]).kind is Kind.BAD_INSERT


def test_what_was_not_restored_of_a_window_is_not_saved(world: World) -> None:
    state = world.runner.new_state()
    world.runner.restore(state, locked(16, world.saved(TOKENS[:16])))
    assert refusal(world.runner.save, state, [Piece(SWA, 4, 12, slots(0, 2))]).kind is Kind.BAD_INSERT


def test_stamps_travel_between_tiers_and_as_bytes() -> None:
    near, far = Stamps(4), Stamps(4)
    near.values[1] = (8, 77)
    near.copy_part(0, slots(1, 1), far, slots(3, 1))
    far.write(0, far.read(3))
    assert far.values[0].tolist() == far.values[3].tolist() == [8, 77]


def test_forwards_follow_each_other_in_time() -> None:
    clock = ManualClock()
    time = ModelledTime(clock, prefill_tokens_per_s=1e9, decode_tokens_per_s=1e8)
    time.prefilled(30)
    time.decoded()
    assert time.busy_ns() == 40
    clock.advance(100)
    assert time.busy_ns() == 0
    time.decoded()
    assert time.busy_ns() == 10
