"""On a real model: after a pause in which others took the device a turn computes what it would have, and no more."""

import time
from dataclasses import dataclass

import pytest

from agentcache.engine.engine import Engine
from agentcache.records import Paused
from agentcache.stats import CachedTokens
from agentcache.tiers.stores.api import BlobStore
from agentcache.tiers.stores.memory import MemoryStore
from tests.engines import ask, prompt_of, tag
from tests.faults import ONE_SESSION, ROOMY, SMALL_HOST, MovableClock, engine_over
from tests.golden import Said, serve
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.timeout(300)

FIRST, NEW, MOST = 70, 21, 190
"""Prompts: of a first turn, what a second one adds, and one that needs the whole device."""
SNUG = {**ONE_SESSION, "eviction_policy": "ert"}
WAYS: dict[str, tuple[float | None, bool]] = {
    "host": (8.0, False),
    "host and store": (SMALL_HOST, True),
    "direct": (None, True),
}


@dataclass(frozen=True)
class Turn:
    """What the turn after the pause said, and how many prompt tokens were computed for it."""

    said: Said
    computed_tokens: int


def turn(engine: Engine, session: str, number: int, prompt: tuple[int, ...]) -> Turn:
    before = engine.load().prefill_tokens_total
    request = ask(
        f"{session}.{number}",
        prompt,
        4,
        session=tag(session),
        user_end_tokens=len(prompt),
        digest_logits=True,
    )
    said = serve(engine, request)
    return Turn(said, engine.load().prefill_tokens_total - before)


def returning(engine: Engine, clock: MovableClock, others: bool, waits: bool = True) -> Turn:
    """A session says that it will be away for half a minute; others may take the device meanwhile."""
    prompt = prompt_of(FIRST, seed=1)
    answer = turn(engine, "a", 0, prompt).said.tokens
    engine.cache.pause_session("a", Paused("bash", 30.0))
    if others:
        turn(engine, "b", 0, prompt_of(FIRST, seed=3))
        turn(engine, "c", 0, prompt_of(MOST, seed=4))
    clock.forward(29.6)
    if waits:
        end = time.monotonic() + PATIENCE_S
        while not engine.cache.stats().returns.tokens or engine.cache.returning.due:
            engine.step()
            engine.cache.check()
            engine.rest()
            assert time.monotonic() < end, engine.cache.stats()
    return turn(engine, "a", 1, (*prompt, *answer, *prompt_of(NEW, seed=2)))


def never_evicted() -> Turn:
    clock = MovableClock()
    with engine_over(clock=clock, **ROOMY) as engine:
        return returning(engine, clock, others=False, waits=False)


@pytest.mark.parametrize("way", WAYS)
def test_after_a_pause_no_chunk_is_computed_again(way: str) -> None:
    host_mib, stores = WAYS[way]
    store: BlobStore | None = MemoryStore(64 << 20) if stores else None
    clock, kept = MovableClock(), never_evicted()
    with engine_over(store, clock, host_mib=host_mib, **SNUG) as engine:
        there = returning(engine, clock, others=True)
        assert engine.cache.stats().returns.on_time == 1
    assert there == kept
    assert kept.said.cached == CachedTokens(device=64)
