"""Engines that keep account, for tests: as small as those of `tests.engines`, or an account of such a one."""

from collections.abc import Callable

from agentcache.clock import Clock, ManualClock, SystemClock
from agentcache.config import EngineSettings
from agentcache.engine.accounting_build import CountedModel, built_in, keep_account
from agentcache.engine.api import Event
from agentcache.engine.engine import Engine
from agentcache.engine.loading import NO_EVENTS
from agentcache.events import EventSink
from agentcache.types import ComponentSpec
from tests.chosen import CORE
from tests.engines import GRID, PAGE, VOCABULARY

SIZES: dict[str, object] = {
    "core": CORE,
    "page_tokens": PAGE,
    "grid_tokens": GRID,
    "full_slots": 256,
    "swa_slots": 128,
    "mamba_slots": 32,
}
WORDS = ((5, 6), (7,), (8, 9, 10))


def account(
    specs: tuple[ComponentSpec, ...] = (),
    clock: Clock | None = None,
    events: EventSink = NO_EVENTS,
    **changes: object,
) -> Engine:
    """An account of tiny-all, or of a model of these components, over the small pools of `tests.engines`."""
    settings = EngineSettings.model_validate({"engine": "accounting", **SIZES, **changes})
    known = built_in(settings)
    model = CountedModel(known.name, specs, 4096, VOCABULARY, WORDS) if specs else known
    return keep_account(model, settings, clock or SystemClock(), events)


def play(engine: Engine, clock: ManualClock, told: Callable[[Event], None]) -> None:
    """Step until nothing is left to do; the clock goes on as far as the engine would wait."""
    while not engine.idle():
        for event in engine.step():
            told(event)
        engine.cache.check()
        clock.advance(round(engine.pause_s() * 1e9))
