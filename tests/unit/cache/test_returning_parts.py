"""Sessions that are expected back where there is room for a part of what they left: that part is brought."""

from agentcache.tree.api import WritePolicy
from agentcache.types import FULL, MAMBA, SWA
from tests.unit.cache.test_returning import WIDE, A, B, C, Room
from tests.unit.cache.tiered import TieredWorld

HALF = 32
WRITE_THROUGH = WritePolicy.WRITE_THROUGH
SOON_S, LATE_S = 28.9, 3000.0


class Shared(Room):
    """A is away for 30 seconds, and B and C have taken its place, up to `free` pages: B is back before it."""

    def __init__(
        self, c_s: float = LATE_S, free: int = 0, states: int = 8, policy: WritePolicy = WRITE_THROUGH
    ) -> None:
        pages = 2 * HALF // 4 + free
        super().__init__()
        TieredWorld.__init__(self, WIDE, policy, device={FULL: pages, SWA: pages, MAMBA: states})
        self.turn(A, "a")
        self.pause(30.0)
        self.steps(1)
        self.turn(B[:HALF], "b")
        self.pause(SOON_S, "b")
        self.turn(C[:HALF], "c")
        self.pause(c_s, "c")
        self.steps(1)
        if free:
            self.cache._executor.make_room({FULL: free}, self.cache._ledger)
        assert self.there == (0, HALF, HALF)

    @property
    def there(self) -> tuple[int, int, int]:
        return self.on_device(A), self.on_device(B), self.on_device(C)


def test_half_of_the_room_is_used_for_half_of_the_path() -> None:
    world = Shared()
    world.steps(27.84)
    assert world.there == (HALF, HALF, 0)
    assert world.cache.stats().returns.tokens == HALF
    assert world.frontiers("a") == [(64, 64)], "on the host it has all of it"
    assert world.back().device == HALF
    world.at_rest()


def test_where_nobody_makes_room_what_is_free_is_used() -> None:
    world = Shared(c_s=SOON_S, free=7, states=9)
    world.steps(27.84)
    assert world.there == (24, HALF, HALF), "and only up to where a turn can go on"
    world.at_rest()


def test_where_nobody_makes_room_and_none_is_free_nothing_moves() -> None:
    world = Shared(c_s=SOON_S)
    world.steps(27.84)
    assert world.there == (0, HALF, HALF)
    world.at_rest()


def test_what_it_has_brought_makes_no_room_for_the_rest() -> None:
    """The state at which the part ends is worth less than the one at the end of the path: it would go in circles."""
    world = Shared(c_s=SOON_S, free=7, states=9)
    for _ in range(20):
        world.steps(1.45)
        assert world.cache.stats().returns.tokens in (0, 24)
    world.at_rest()


def test_a_part_is_found_while_others_still_leave() -> None:
    """What C has goes to the host first, and until it has landed there its slots are taken."""
    world = Shared(policy=WritePolicy.WRITE_BACK)
    world.near.prompt = False
    world.steps(27.8)
    assert world.on_device(A) == 0
    assert world.controller.leaving(FULL) == HALF // 4
    world.near.prompt = True
    world.steps(0.05)
    assert world.there == (HALF, HALF, 0)
    world.at_rest()
