"""What is copied down behind a turn, by each policy; soft classes outside; and the cap on what waits."""

import pytest

from agentcache import writing
from agentcache.keys import Key, object_name, page_hashes
from agentcache.tiers.api import Keep
from agentcache.tree.api import WritePolicy
from agentcache.types import FULL, MAMBA, SWA, TierName, Tokens
from tests.moving import nothing
from tests.unit.cache.tiered import TieredWorld
from tests.unit.cache.world import HOME, PAGE, text

THROUGH, SELECTIVE, BACK = (
    WritePolicy.WRITE_THROUGH,
    WritePolicy.WRITE_THROUGH_SELECTIVE,
    WritePolicy.WRITE_BACK,
)
A = text(1, 33)


def outside(world: TieredWorld) -> int:
    """Pages of FULL that lie outside."""
    world.settle()
    return sum(name.endswith(f"/{FULL}") for name in world.far.objects)


def names_of(tokens: Tokens) -> list[str]:
    pages = page_hashes(Key(tokens, HOME), PAGE)
    return [object_name(page, FULL) for page in pages]


@pytest.mark.parametrize(("policy", "host", "far"), [(THROUGH, 8, 8), (SELECTIVE, 0, 0), (BACK, 0, 8)])
def test_what_a_turn_leaves_below(policy: WritePolicy, host: int, far: int) -> None:
    """A first turn of 32 tokens: write_back writes outside alone, selective nothing yet."""
    world = TieredWorld(policy=policy)
    world.turn(A)
    assert outside(world) == far
    assert world.slots_on(TierName.HOST)[FULL] == host
    world.at_rest()


def test_every_component_of_every_boundary_is_outside() -> None:
    """Four boundaries of one state each; the windows before them are all pages."""
    world = TieredWorld()
    world.turn(A)
    world.settle()
    kinds = [name.rpartition("/")[2] for name in world.far.objects]
    assert {kind: kinds.count(kind) for kind in kinds} == {FULL: 8, SWA: 8, MAMBA: 4}
    world.at_rest()


def test_selective_counts_the_second_time_that_a_turn_resumes_there() -> None:
    world = TieredWorld(policy=SELECTIVE)
    world.turn(A)
    for resumed, written in ((1, 0), (2, 8), (3, 8)):
        assert world.hit(A[:32]) == 32
        assert outside(world) == written, resumed
        assert world.slots_on(TierName.HOST)[FULL] == written
    assert world.hit(A[:16]) == 16
    assert outside(world) == 8
    world.at_rest()


def test_selective_remembers_a_bounded_number_of_boundaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "REMEMBERED_BOUNDARIES", 1)
    world = TieredWorld(policy=SELECTIVE)
    world.turn(A)
    world.turn(text(2, 33))
    for tokens in (A, text(2, 33), A, text(2, 33)):
        assert world.hit(tokens[:32]) == 32
    assert outside(world) == 0, "each makes the cache forget the other"
    world.hit(text(2, 33)[:32])
    assert outside(world) == 8
    world.at_rest()


def test_the_deepest_boundary_goes_first_and_the_others_one_after_the_other() -> None:
    world = TieredWorld(host={})
    world.far.prompt = False
    world.turn(A)
    sent = []
    while not world.cache.tiers.idle:
        (transfer,) = world.far.waiting
        sent.append(max(piece.end for piece in transfer.targets))
        world.far.land_all()
        world.look()
    assert sent == [32, 24, 16, 8]
    world.at_rest()


def test_boundaries_beyond_the_cap_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three that are due after the deepest one is left; a later turn over the same path would make up for them."""
    monkeypatch.setattr(writing, "DUE_AT_MOST", 1)
    world = TieredWorld(host={})
    world.turn(A)
    world.settle()
    kinds = [name.rpartition("/")[2] for name in world.far.objects]
    assert (kinds.count(FULL), kinds.count(MAMBA)) == (8, 2)
    world.at_rest()


def test_what_is_due_is_forgotten_when_the_tiers_close() -> None:
    world = TieredWorld()
    world.far.prompt = False
    world.turn(A)
    assert not world.cache.tiers.idle
    world.cache.tiers.close()
    world.cache.check()
    assert world.cache.tiers.idle


def test_what_did_not_land_outside_is_no_loss_and_may_be_written_again() -> None:
    world = TieredWorld()
    world.far.prompt = False
    world.turn(A)
    while not world.cache.tiers.idle:
        world.far.land_all(nothing)
        world.look()
    assert outside(world) == 0
    assert world.hit(A[:32]) == 32
    world.at_rest()


def test_a_copy_of_what_has_left_meanwhile_is_not_made() -> None:
    """Room for three states: the fourth boundary takes the first one's, before the turn ends."""
    world = TieredWorld(host={}, device={FULL: 12, SWA: 8, MAMBA: 3})
    world.turn(A)
    world.settle()
    kinds = [name.rpartition("/")[2] for name in world.far.objects]
    assert {kind: kinds.count(kind) for kind in kinds} == {FULL: 8, SWA: 6, MAMBA: 3}
    world.at_rest()


# soft classes


def test_what_a_session_wants_back_is_dear_outside_until_it_ends() -> None:
    world = TieredWorld()
    world.turn(A, "s")
    world.settle()
    assert {world.far.classes[name] for name in names_of(A[:32])} == {Keep.REFERENCED}
    world.cache.close_session("s")
    assert {world.far.classes[name] for name in names_of(A[:32])} == {Keep.LOOSE}
    world.at_rest()


def test_what_nobody_wants_back_is_loose_outside() -> None:
    world = TieredWorld()
    world.turn(A)
    world.settle()
    assert {world.far.classes[name] for name in names_of(A[:32])} == {Keep.LOOSE}
    world.at_rest()


def test_a_session_that_idles_out_lets_its_pages_go() -> None:
    """R250: to the class that leaves first, not away."""
    world = TieredWorld()
    world.turn(A, "s")
    world.settle()
    world.wait(4000)
    world.cache.sweep()
    assert {world.far.classes[name] for name in names_of(A[:32])} == {Keep.LOOSE}
    assert world.hit(A[:32]) == 32
    world.at_rest()


def test_a_superseded_branch_lets_its_pages_go() -> None:
    world = TieredWorld()
    world.turn(A, "s")
    world.settle()
    other = text(2, 33)
    other[:16] = A[:16]
    world.turn(other, "s", superseded=True)
    world.settle()
    classes = [world.far.classes[name] for name in names_of(A[:32])]
    assert classes == [Keep.REFERENCED] * 4 + [Keep.LOOSE] * 4
    assert {world.far.classes[name] for name in names_of(other[:32])} == {Keep.REFERENCED}
    world.at_rest()
