"""Settings to an engine: one that computes with a model, or one that only keeps account.

Both are found by name only when they are built: a model's libraries take seconds to import, and the accounting engine
needs none of them.
"""

import pkgutil
from collections.abc import Callable, Mapping

from agentcache.clock import Clock, SystemClock
from agentcache.config import EngineSettings
from agentcache.engine.engine import Engine
from agentcache.engine.models import BUILT_IN
from agentcache.engine.tokenizer import ChatTokenizer, load_tokenizer
from agentcache.events import EventSink, NullEvents

CLOCK = SystemClock()
NO_EVENTS = NullEvents()
ENGINES: Mapping[str, str] = {
    "transformers": "agentcache.engine.loading:load_engine",
    "accounting": "agentcache.engine.accounting_build:accounting_engine",
}


def build_engine(settings: EngineSettings, clock: Clock = CLOCK, events: EventSink = NO_EVENTS) -> Engine:
    """The engine that the settings name, with its cache and a scheduler; `events` hears what the cache holds.

    Errors  UNSUPPORTED_MODEL, BAD_CHECKPOINT, BAD_CONFIG
    Cost    with a model: importing and loading it, about 40 short forwards, and writing every pool's bytes once
    """
    build: Callable[[EngineSettings, Clock, EventSink], Engine] = pkgutil.resolve_name(
        ENGINES[settings.engine]
    )
    return build(settings, clock, events)


def load_tokenizer_for(settings: EngineSettings) -> ChatTokenizer:
    """The tokenizer that belongs to the settings' model. Errors: BAD_CHECKPOINT."""
    if settings.model in BUILT_IN:
        return load_tokenizer()
    load: Callable[[EngineSettings], ChatTokenizer] = pkgutil.resolve_name(
        "agentcache.engine.loading:load_checkpoint_tokenizer"
    )
    return load(settings)
