"""In which order a transfer leaves the objects of its path: what leaves the store next is the end."""

from collections.abc import Sequence

import pytest

from agentcache.keys import object_name
from agentcache.tiers.external import ExternalRules
from agentcache.tiers.stores.faulty import Call
from agentcache.types import FULL, MAMBA, SWA, ComponentName
from tests.unit.tiers.conftest import NewWorld
from tests.unit.tiers.external_world import PAGE, World, full, path, piece, until

HASHES = path(6)
WHOLE = [full(6), piece(SWA, 4 * PAGE, 6 * PAGE, [0, 1]), piece(MAMBA, 6 * PAGE, 6 * PAGE, [0])]


def named(*objects: tuple[ComponentName, int]) -> list[str]:
    """By component and number of the page."""
    return [object_name(HASHES[page], component) for component, page in objects]


def pages(last: int) -> list[str]:
    return named(*((FULL, page) for page in range(last, -1, -1)))


def used(world: World, times: int = 1) -> Sequence[Sequence[str]]:
    world.watched.wait_for_end(Call.USE, times)
    world.tier.close()
    return world.watched.used


def test_a_store_uses_its_path_deepest_first_with_what_else_it_moved(world: World) -> None:
    world.stored(WHOLE, HASHES)
    deepest = named((SWA, 5), (MAMBA, 5), (FULL, 5), (SWA, 4), (FULL, 4))
    assert used(world) == [deepest + pages(3)]


def test_so_does_a_load_from_the_root_on_when_it_was_the_last_of_its_path(world: World) -> None:
    world.stored(WHOLE, HASHES)
    for start, end in ((0, 2), (2, 4)):
        world.loaded([piece(FULL, start * PAGE, end * PAGE, [10, 11])], HASHES)
    world.loaded([piece(FULL, 4 * PAGE, 6 * PAGE, [10, 11]), WHOLE[2]], HASHES)
    assert used(world, 2)[1:] == [named((MAMBA, 5)) + pages(5)]


@pytest.mark.parametrize("call", [Call.PUT, Call.GET])
def test_what_was_cut_off_is_used_as_far_as_it_went(new_world: NewWorld, call: Call) -> None:
    world = new_world(rules=ExternalRules(batch_objects=2))
    if call is Call.GET:
        world.stored([full(6)], HASHES)
        world.watched.wait_for_end(Call.USE, 1)
    submit = world.submit_store if call is Call.PUT else world.submit_load
    with world.store.hold(call) as gate:
        number = submit([full(6)], HASHES)
        gate.wait_for(1)
        gate.step()
        world.watched.wait_for(call, 2)
        world.tier.cancel(number)
        gate.open()
        (result,) = world.wait()
    world.forbid([full(6)])
    assert [(part.start, part.end) for part in result.landed] == [(0, 2 * PAGE)]
    assert used(world, 1 if call is Call.PUT else 2)[-1] == pages(3), "what it was at may be there, too"


def test_a_path_longer_than_the_store_is_stored_as_far_as_it_fits(new_world: NewWorld) -> None:
    world = new_world()
    world.memory._capacity_bytes = 6 * 100
    world.advance_s(world.rules.status_s)
    until(lambda: world.tier.status().capacity_bytes == 6 * 100)
    (landed,) = world.stored([full(12)], path(12)).landed
    assert (landed.start, landed.end) == (0, 6 * 100 * 3 // 4 // 48 * PAGE)


def test_what_cannot_be_used_is_left_and_the_next_one_is(world: World) -> None:
    with world.store.hold(Call.USE) as gate:
        world.stored([full(6)], HASHES)
        gate.wait_for(1)
        gate.fail()
        world.watched.wait_for_end(Call.USE, 1)
    world.stored([full(6)], HASHES)
    assert used(world, 2) == [pages(5), pages(5)]
    assert world.tier.status().failed == 1
