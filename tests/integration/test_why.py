"""Why turns hit or did not: one short history for every reason, worked out on paper, on both cores.

Pages of 4 tokens, a grid of 16: a prompt of 100 leaves 96 tokens, and may reuse as many.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from agentcache.cache import Prompt
from agentcache.clock import ManualClock
from agentcache.engine.api import Admitted
from agentcache.engine.engine import Engine
from agentcache.stats import CachedTokens
from agentcache.turn_history import TURNS, SeenTurn, TurnHistory
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentName,
    ComponentSpec,
    ReleaseMode,
    SessionId,
    full_spec,
    mamba_spec,
    swa_spec,
)
from agentcache.why import Finding, Why
from tests.accounting import account
from tests.engines import GRID, ask, drain, of, prompt_of, tag

NEW, EVICTED, CLOSED = Why.NEVER_STORED, Why.EVICTED, Why.CLOSED
FULL_ONLY = (full_spec(),)
Small = Callable[..., "World"]


class World:
    """An account of a model, and its turns one after the other."""

    def __init__(self, core: str, **changes: object) -> None:
        self.clock = ManualClock(10**12)
        self.engine: Engine = account(clock=self.clock, core=core, **changes)  # type: ignore[arg-type]
        self.cache = self.engine.cache
        self._number = 0

    def turn(self, tokens: Sequence[int], session: str = "", **fields: object) -> Finding:
        """A whole turn; what its answer says ended its hit."""
        self._number += 1
        self.clock.advance(10**9)
        named = tag(session) if session else None
        self.engine.submit(ask(f"r{self._number}", tokens, session=named, **fields))  # type: ignore[arg-type]
        (admitted,) = of(Admitted, drain(self.engine))
        if session:
            assert self.turns(session)[0].finding == admitted.found
            assert self.turns(session)[0].cached == admitted.cached
        return admitted.found

    def turns(self, session: str) -> tuple[SeenTurn, ...]:
        return self.cache.history.turns(SessionId(session))


@pytest.fixture(params=["native", "reference"])
def small(request: pytest.FixtureRequest) -> Small:
    return lambda **changes: World(request.param, **{"specs": FULL_ONLY, **changes})


A, B = prompt_of(100, seed=1), prompt_of(100, seed=2)


def ended(why: Why, at: int, component: ComponentName = FULL, changed_at: int | None = None) -> Finding:
    return Finding(why, component, at, changed_at)


def test_a_conversation_that_grows(small: Small) -> None:
    world = small()
    assert world.turn(A, "a") == ended(NEW, 0)
    assert world.turn([*A, *B], "a") == ended(NEW, 96)
    assert world.turn([*A, *B], "a") == ended(Why.NOTHING, 0)
    assert [(turn.prompt_tokens, turn.cached) for turn in world.turns("a")] == [
        (200, CachedTokens(192)),
        (200, CachedTokens(96)),
        (100, CachedTokens(0)),
    ]
    assert [turn.at_ns for turn in world.turns("a")] == [10**12 + second * 10**9 for second in (3, 2, 1)]


def test_a_prompt_that_leaves_the_path_before_it(small: Small) -> None:
    """A date in the head: what follows it is new, wherever it begins."""
    world = small()
    world.turn(A, "a")
    changed = [*A[:50], 3 + (A[50] % 500), *A[51:]]
    assert changed[50] != A[50]
    assert world.turn(changed, "a") == ended(Why.PREFIX_CHANGED, 50, changed_at=50)
    assert world.turns("a")[0].cached == CachedTokens(48)
    assert world.turn(A, "a") == ended(Why.NOTHING, 0, changed_at=50), "the old branch is there still"


def test_what_others_have_pushed_out(small: Small) -> None:
    """32 pages, 24 for each: 16 of the first have to go."""
    world = small(full_slots=32)
    world.turn(A, "a")
    world.turn(B, "b")
    assert world.turn(A, "a") == ended(EVICTED, 32)
    assert world.turn(B).why is EVICTED, "nobody's turns have reasons too"


def test_what_has_gone_after_its_session_was_closed(small: Small) -> None:
    world = small(full_slots=32)
    world.turn(A, "a")
    world.cache.close_session("a")
    assert world.turn(A, "heir") == ended(Why.NOTHING, 0)
    world.cache.close_session("heir")
    world.turn(B, "b")
    assert world.turn(A, "later").why is CLOSED


def test_what_was_dropped_with_its_session(small: Small) -> None:
    world = small()
    world.turn(A, "a")
    world.cache.close_session("a", mode=ReleaseMode.DROP)
    world.cache.open_session("a")
    assert world.turn(A, "a") == ended(CLOSED, 0)
    assert world.turn(A, "a") == ended(Why.NOTHING, 0)


def test_an_open_session_loses_its_own_to_others_whoever_had_it_last(small: Small) -> None:
    world = small(full_slots=32)
    world.turn(A, "a")
    world.turn(A, "guest")
    world.cache.close_session("guest")
    world.turn(B, "b")
    assert world.turn(A, "a").why is EVICTED


def test_a_fork_between_two_states(small: Small) -> None:
    """States at 64 and 96; another prompt shares 40 tokens, so it might go on at 32."""
    fork = [*A[:40], *B]
    for spec, why, name in (
        (mamba_spec(GRID), Why.NO_CHECKPOINT, MAMBA),
        (swa_spec(8), Why.WINDOW_GAP, SWA),
    ):
        world = small(specs=(full_spec(), spec))
        world.turn(A, "a")
        assert world.turn(fork, "b") == ended(why, 32, name)


@pytest.mark.parametrize(
    ("spec", "sizes", "why"),
    [
        (mamba_spec(GRID), {"mamba_slots": 6}, Why.CHECKPOINT_EVICTED),
        (swa_spec(8), {"swa_slots": 12}, Why.WINDOW_EVICTED),
    ],
)
def test_boundaries_that_made_way_on_a_path_that_goes_on(
    small: Small, spec: ComponentSpec, sizes: dict[str, int], why: Why
) -> None:
    """Two at 64 and 96, two more of a longer prompt, two of another: six is all there is room for.

    The first two are nobody's after a close, and leave with 128 for two more conversations; 192 keeps the path.
    """
    world = small(specs=(full_spec(), spec), eviction_policy="session", **sizes)
    world.turn(A, "a")
    world.turn([*A, *B], "b")
    world.cache.close_session("a")
    world.turn(prompt_of(100, seed=3), "c")
    fork = [*A[:96], *prompt_of(40, seed=4)]
    assert world.cache.peek(asked(world, fork)) == 96
    for seed in (5, 6):
        world.turn(prompt_of(100, seed), f"d{seed}")
    assert world.turn(fork, "e") == ended(why, 96, spec.name)


def asked(world: World, tokens: Sequence[int]) -> Prompt:
    return Prompt(np.array(tokens, dtype=np.int32), world.engine.namespace(""), len(tokens) - 1)


def test_another_salt(small: Small) -> None:
    """Of its own session only: nobody learns what other tenants have."""
    world = small()
    world.turn(A, "a", tenant_salt="x")
    assert world.turn(A, "a", tenant_salt="y") == ended(Why.NAMESPACE, 0)
    assert world.turn(B, "b", tenant_salt="x") == ended(NEW, 0)
    assert world.turn(B, "c", tenant_salt="y") == ended(NEW, 0)


def test_an_emptied_cache(small: Small) -> None:
    world = small()
    world.turn(A, "a")
    world.cache.flush()
    assert world.turn(A, "a") == ended(Why.FLUSHED, 0)
    assert world.turn([*A, *B], "a") == ended(NEW, 96)


def test_a_turn_that_did_not_ask(small: Small) -> None:
    world = small()
    world.turn(A, "a")
    assert world.turn(A, "a", reuse=False) == ended(Why.REUSE_OFF, 0)


def test_what_is_not_remembered_is_not_known(small: Small) -> None:
    """Eight pages are remembered: what a new session asks for may have been here before them."""
    world = small()
    world.cache.history = TurnHistory(world.cache._core, world.cache.paths, pages=8)
    assert world.turn(A, "a") == ended(NEW, 0)
    world.turn(B, "b")
    assert world.turn(prompt_of(100, seed=3), "c") == ended(Why.UNKNOWN, 0)
    assert world.turn([*A, *B], "a") == ended(NEW, 96), "its own turn before says that it is new"


def test_what_is_kept_of_turns_is_bounded(small: Small) -> None:
    world = small()
    world.cache.history = TurnHistory(world.cache._core, world.cache.paths, sessions=2)
    for number in range(TURNS + 3):
        world.turn(A[: 20 + number], "a")
    assert [turn.prompt_tokens for turn in world.turns("a")] == [*range(22 + TURNS, 22, -1)]
    world.turn(A, "b")
    world.turn(A, "c")
    assert (len(world.turns("a")), len(world.turns("b"))) == (0, 1)
