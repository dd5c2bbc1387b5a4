"""Engines over tiers that a test can break, the run that never saw a tier, and what a fault may cost: hits alone."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from agentcache.clock import Clock
from agentcache.engine.api import Event, GenerateRequest
from agentcache.engine.engine import Engine
from agentcache.tiers.stores.api import BlobStore
from tests.engines import at_rest, small_engine
from tests.golden import Said, Script, bits, serve, totals

FAMILY = "lara_mini"
SCRIPT = Script()
ROOMY: dict[str, Any] = {"full_slots": 256, "swa_slots": 128, "mamba_slots": 32}
ONE_SESSION: dict[str, Any] = {
    "full_slots": 52,
    "swa_slots": 40,
    "mamba_slots": 4,
    "eviction_policy": "lru",
}
"""Device pools in which a session's turn fits, but not with another session's data; who goes is no matter of time."""
SMALL_HOST = 0.16
LAST = SCRIPT.sessions * SCRIPT.turns - 1
"""The number of the last request."""


class MovableClock:
    """The machine's clock, which a test may move forward: for cool-downs, not for copies."""

    def __init__(self) -> None:
        self._ahead_ns = 0

    def now_ns(self) -> int:
        return time.monotonic_ns() + self._ahead_ns

    def forward(self, seconds: float) -> None:
        self._ahead_ns += int(seconds * 1e9)


@contextmanager
def engine_over(
    store: BlobStore | None = None, clock: Clock | None = None, **changes: Any
) -> Iterator[Engine]:
    """A small engine, over a store; whatever happened to it, nothing may be left when the block ends well."""
    settings = {"prefetch": "wait_complete", **ONE_SESSION, **changes}
    engine = small_engine(FAMILY, clock, **settings)
    try:
        if store:
            engine.attach(store)
        yield engine
        nothing_left(engine)
    finally:
        engine.close()


def between_steps(engine: Engine, action: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Something happens before each step, and nobody rests."""
    step = engine.step

    def stepped() -> list[Event]:
        action()
        return step()

    monkeypatch.setattr(engine, "step", stepped)
    monkeypatch.setattr(engine, "rest", lambda: None)


def nothing_left(engine: Engine) -> None:
    """At rest there is no job, pin, quota or lease; and once sessions and data go, every slot is free."""
    assert at_rest(engine)
    assert engine.cache.tiers.idle
    assert engine.cache.stats().jobs_in_flight == 0
    for view in engine.cache.sessions():
        engine.cache.close_session(view.session)
    engine.cache.flush()
    engine.cache.check()
    assert all(pool.free == pool.size for pool in engine.cache.stats().pools), engine.cache.stats().pools


@cache
def golden() -> tuple[Said, ...]:
    """What the trace says with the cache off, and how much of it a roomy device would reuse."""
    with engine_over(**ROOMY) as engine:
        near = SCRIPT.play(lambda _turn: engine)
    with engine_over(**ROOMY) as engine:
        off = SCRIPT.play(lambda _turn: engine, reuse=False)
    assert bits(near) == bits(off)
    return tuple(near)


def play(engine: Engine, before: Callable[[int], None]) -> list[Said]:
    """The trace on one engine; `before(number)` is called ahead of each request."""
    number = -1

    def engine_of(_turn: int) -> Engine:
        nonlocal number
        number += 1
        before(number)
        return engine

    return SCRIPT.play(engine_of)


def only_hits_were_lost(answers: Sequence[Said]) -> None:
    """The same bits as ever, and no more hits than there can be."""
    assert bits(answers) == bits(golden())
    assert all(one <= most for one, most in zip(totals(answers), totals(golden()), strict=True))


def fresh(request: GenerateRequest) -> Said:
    """What an engine of its own says to a request: nothing is cached there."""
    with engine_over(**ROOMY) as engine:
        return serve(engine, request)
