"""One parent, twelve sub-agents with two turns each, pools that fit half of them: spawned and forked, both engines."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from agentcache.engine.api import Admitted, Finished, FinishReason
from agentcache.engine.engine import Engine
from agentcache.types import FULL, SessionId, SessionTag
from tests.accounting import account
from tests.engines import PAGE, ask, at_rest, drain, of, prompt_of, small_engine

CHILDREN, TURNS = 12, 2
TASK = prompt_of(200)
HALF = {"full_slots": 150, "swa_slots": 60, "mamba_slots": 14, "prefill_tokens": 64}
NAMES = [f"parent/{number}" for number in range(CHILDREN)]


def keeps_account(**sizes: Any) -> Engine:
    """An account of the same model."""
    return account(small_engine().cache.config.specs, **sizes)


ENGINES: dict[str, Callable[..., Engine]] = {"accounting": keeps_account, "real": small_engine}
PARENT = SessionId("parent")


def prompt_for(child: int, turns: int) -> tuple[int, ...]:
    """The parent's task, and what the child has said and heard since."""
    own = [prompt_of(40, 100 * (child + 1) + turn) for turn in range(turns + 1)]
    return TASK + tuple(itertools.chain.from_iterable(own))


def children_turn(engine: Engine, turns: int, fork: bool) -> list[Finished]:
    """All children at once."""
    for child, name in enumerate(NAMES):
        tag = SessionTag(SessionId(name), parent=PARENT, fork=fork)
        engine.submit(ask(name, prompt_for(child, turns), 3, session=tag))
    return of(Finished, drain(engine))


def with_parent(engine: Engine) -> Engine:
    engine.submit(ask("parent", TASK, 3, session=SessionTag(PARENT)))
    drain(engine)
    return engine


@pytest.mark.parametrize("kind", sorted(ENGINES))
@pytest.mark.parametrize("fork", [False, True])
def test_sub_agents_in_half_the_room_end_and_are_closed(kind: str, fork: bool) -> None:
    engine = with_parent(ENGINES[kind](**HALF))
    whole = sum(len(prompt_for(child, TURNS - 1)) - len(TASK) for child in range(CHILDREN)) + len(TASK)
    (room,) = (pool.size for pool in engine.cache.stats().pools if pool.pool.component == FULL)
    assert room * PAGE < whole / 1.9, "the pool fits half of them"
    if fork:
        for name in NAMES:
            engine.cache.open_session(name, parent=PARENT, fork=True)
        assert engine.cache.stats().open_references == 1 + CHILDREN
    for turns in range(TURNS):
        ends = children_turn(engine, turns, fork)
        assert [end.reason for end in ends] == [FinishReason.LENGTH] * CHILDREN
    closed = engine.cache.close_session(PARENT, subtree=True)
    assert {child.session for child in closed.children} == set(NAMES)
    stats = engine.cache.stats()
    assert (stats.open_references, stats.sessions.open) == (0, 0)
    assert at_rest(engine)


@pytest.mark.parametrize("kind", sorted(ENGINES))
def test_sub_agents_that_are_closed_while_they_run_leave_nothing(kind: str) -> None:
    """The close comes between the two turns of half of them."""
    engine = with_parent(ENGINES[kind](**HALF))
    children_turn(engine, 0, fork=True)
    for child, name in enumerate(NAMES):
        tag = SessionTag(SessionId(name), parent=PARENT)
        engine.submit(ask(name, prompt_for(child, 1), 3, session=tag))
    engine.step()
    engine.step()
    engine.cache.close_session(PARENT, subtree=True)
    ends = of(Finished, drain(engine))
    assert len(ends) == CHILDREN
    assert engine.cache.stats().open_references == 0
    assert at_rest(engine)


@pytest.mark.parametrize("kind", sorted(ENGINES))
def test_a_forked_child_reads_what_its_parent_gave_up(kind: str) -> None:
    """The parent forks, is compacted, and strangers fill the pools before the child's first turn."""
    hits = {}
    for fork in (True, False):
        engine = with_parent(ENGINES[kind](**HALF, eviction_policy="session"))
        engine.cache.open_session("child", parent=PARENT, fork=fork)
        summary = SessionTag(PARENT, superseded=True)
        engine.submit(ask("parent", prompt_of(40, 7), 3, session=summary))
        drain(engine)
        for stranger in range(3):
            engine.submit(ask("stranger", prompt_of(180, 50 + stranger), 3))
            drain(engine)
        tag = SessionTag(SessionId("child"), parent=PARENT)
        engine.submit(ask("child", prompt_for(0, 0), 3, session=tag))
        (admitted,) = of(Admitted, drain(engine), "child")
        hits[fork] = admitted.cached_tokens
        engine.cache.close_session(PARENT, subtree=True)
        assert engine.cache.stats().open_references == 0
    assert hits[True] == 192 > hits[False]
