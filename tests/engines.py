"""Small engines for tests: real models of a few thousand weights, pools and grids that a test can fill."""

import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

from agentcache.clock import Clock, SystemClock
from agentcache.config import EngineSettings
from agentcache.engine.api import Admitted, Event, Finished, GenerateRequest, Token
from agentcache.engine.engine import Engine
from agentcache.engine.loading import NamedModel, assemble
from agentcache.types import SessionId, SessionTag
from tests.chosen import CORE
from tests.patience import PATIENCE_S
from tests.zoo import ZOO

VOCABULARY = 512
GRID, PAGE = 16, 4
Kind = TypeVar("Kind", Admitted, Token, Finished)


PATIENT = {"l3_deadline_s": PATIENCE_S, "prefetch_timeout_s": PATIENCE_S}
"""An external store is late where a test says so, not where the machine stands still."""


def small_engine(family: str = "lara_mini", clock: Clock | None = None, **changes: object) -> Engine:
    """An engine over a model of the zoo: pages of 4, a grid of 16, windows of 32 (31 tokens before a boundary)."""
    sizes = {
        "core": CORE,
        "full_slots": 256,
        "swa_slots": 128,
        "mamba_slots": 32,
        "page_tokens": PAGE,
        "grid_tokens": GRID,
    }
    settings = EngineSettings.model_validate({"threads": 1, **PATIENT, **sizes, **changes})
    named = NamedModel(ZOO[family].build(settings.dtype), family, random_weights=True)
    return assemble(named, settings, clock or SystemClock())


def prompt_of(count: int, seed: int = 0) -> tuple[int, ...]:
    source = random.Random(seed)
    return tuple(source.randrange(3, VOCABULARY) for _ in range(count))


def ask(name: str, tokens: Sequence[int], max_tokens: int = 4, **fields: object) -> GenerateRequest:
    return GenerateRequest(name, tuple(tokens), max_tokens, **fields)  # type: ignore[arg-type]


def tag(session: str) -> SessionTag:
    return SessionTag(SessionId(session))


def drain(engine: Engine) -> list[Event]:
    """Step until nothing is left to do, checking every invariant of the cache after each step."""
    events: list[Event] = []
    while not engine.idle():
        events.extend(engine.step())
        engine.cache.check()
    return events


def run(engine: Engine, *requests: GenerateRequest) -> list[Event]:
    for request in requests:
        engine.submit(request)
    return drain(engine)


def of(kind: type[Kind], events: Iterable[Event], name: str = "") -> list[Kind]:
    """The events of one kind (and one request)."""
    return [event for event in events if isinstance(event, kind) and name in ("", event.request_id)]


def said(events: Iterable[Event], name: str = "") -> list[int]:
    return [event.token for event in of(Token, events, name)]


def at_rest(engine: Engine) -> bool:
    """Nothing runs: every slot is free or cached, no lease, no turn, nothing queued or running in a session."""
    stats = engine.cache.stats()
    engine.cache.check()
    pools = all(pool.leased == pool.protected == pool.in_flight == 0 for pool in stats.pools)
    sessions = all(view.queued == view.running == 0 for view in engine.cache.sessions())
    return pools and sessions and not (stats.active_turns or stats.jobs_in_flight) and engine.idle()
