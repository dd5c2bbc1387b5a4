"""From a config to a cache, and what cannot be one."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentcache.build import Tiers, build_cache
from agentcache.cache import Prompt
from agentcache.clock import ManualClock
from agentcache.errors import CacheError, Kind
from agentcache.events import NullEvents
from agentcache.keys import Namespace
from agentcache.records import SessionRules
from agentcache.tree.api import CoreConfig
from agentcache.types import (
    FULL,
    MAMBA,
    NO_SLOTS,
    SWA,
    ComponentName,
    Event,
    EventKind,
    SessionId,
    SessionTag,
    TierName,
    full_spec,
    mamba_spec,
    swa_spec,
)
from tests.chosen import CORE

ROOT = Path(__file__).resolve().parents[2]
CONFIG = CoreConfig(16, (full_spec(), swa_spec(48), mamba_spec(64)), 64)
SLOTS = {FULL: 8, SWA: 4, MAMBA: 2}


def test_build_gives_an_empty_cache_over_its_pools() -> None:
    cache = build_cache(CONFIG, SLOTS, ManualClock(), CORE)
    cache.check()
    uses = cache.stats().pools
    assert {use.pool.component: (use.size, use.free) for use in uses} == {
        FULL: (8, 8),
        SWA: (4, 4),
        MAMBA: (2, 2),
    }
    assert {use.pool.tier for use in uses} == {TierName.DEVICE}
    assert cache.config is CONFIG


class Heard(NullEvents):
    """Keeps what it is told."""

    listening = True

    def __init__(self) -> None:
        self.events: list[Event] = []

    def publish(self, event: Event) -> None:
        self.events.append(event)


def test_whoever_listens_is_told_and_for_nobody_there_are_no_events() -> None:
    heard = Heard()
    cache = build_cache(CONFIG, SLOTS, ManualClock(), CORE, tiers=Tiers(events=heard))
    assert cache.config == replace(CONFIG, emit_events=True)
    cache.flush()
    assert [(event.kind, event.tier) for event in heard.events] == [(EventKind.CLEARED, TierName.DEVICE)]


def test_build_passes_the_rules_of_sessions_on() -> None:
    clock = ManualClock()
    cache = build_cache(CONFIG, SLOTS, clock, CORE, rules=SessionRules(ttl_s=1))
    turn = cache.begin(cache.enter(SessionTag(SessionId("s"))), Prompt(NO_SLOTS, Namespace(), 0))
    cache.finish(turn, 0)
    clock.advance(2 * 10**9)
    assert cache.sweep() == 1


@pytest.mark.parametrize(
    ("change", "slots", "says"),
    [
        ({"specs": ()}, {}, "first component is FULL"),
        ({"specs": (swa_spec(48), full_spec())}, SLOTS, "first component is FULL"),
        ({"specs": (full_spec(), full_spec())}, SLOTS, "names are unique, unlike FULL, FULL"),
        ({"grid_tokens": 40}, SLOTS, "grid_tokens 40 is not a multiple of page_tokens 16"),
        ({"page_tokens": 0}, SLOTS, "at least one token, not 0"),
        ({"specs": (full_spec(), swa_spec(0))}, SLOTS, "the window of SWA has at least one token"),
        ({"specs": (full_spec(), mamba_spec(40))}, SLOTS, "the grid of MAMBA, 40, is not a multiple"),
        ({"order": "mru"}, SLOTS, "no eviction order is called 'mru'; there are lru, session, ert"),
        ({"base": "fifo"}, SLOTS, "there are lru, lfu, priority"),
        ({"host_tier": True}, SLOTS, "one host pool size for each of FULL, SWA, MAMBA, not for none"),
        ({}, {FULL: 8, SWA: 4}, "one device pool size for each of FULL, SWA, MAMBA, not for FULL, SWA"),
        ({}, SLOTS | {ComponentName("X"): 1}, "not for FULL, SWA, MAMBA, X"),
        ({}, SLOTS | {SWA: 0}, "the device pool of SWA has at least one slot, not 0"),
    ],
)
def test_build_says_what_cannot_be(
    change: dict[str, Any], slots: Mapping[ComponentName, int], says: str
) -> None:
    with pytest.raises(CacheError, match=says) as refused:
        build_cache(replace(CONFIG, **change), slots, ManualClock())
    assert refused.value.kind is Kind.BAD_CONFIG


def test_build_names_the_cores_that_exist() -> None:
    with pytest.raises(CacheError, match="there are native, reference"):
        build_cache(CONFIG, SLOTS, ManualClock(), core="fast")


@pytest.mark.parametrize("core", [pytest.param("native", marks=pytest.mark.native), "reference"])
def test_build_takes_the_core_that_was_asked_for(core: str) -> None:
    cache = build_cache(CONFIG, SLOTS, ManualClock(), core=core)
    assert type(cache._core).__name__ == f"{core.title()}Core"


BLIND = "import sys; sys.modules['agentcache._native'] = None  # as if it had not been compiled\n"

WITHOUT_EXTENSION = """
from agentcache.errors import CacheError
from tests.unit.test_build import CONFIG, SLOTS, ManualClock, build_cache
build_cache(CONFIG, SLOTS, ManualClock(), core="reference")
try:
    build_cache(CONFIG, SLOTS, ManualClock(), core="native")
except CacheError as refused:
    print(refused, file=sys.stderr)
"""

ENGINE_WITHOUT = """
from agentcache.config import EngineSettings
from agentcache.engine import build, loading
from agentcache.errors import CacheError
loading.load_named = lambda _settings: print("a model was loaded")
try:
    build.build_engine(EngineSettings(core="native"))
except CacheError as refused:
    print(refused, file=sys.stderr)
"""

COMMAND_WITHOUT = """
import runpy
sys.argv[1:] = ["--core", "native", "--op", "bytes_per_node"]
runpy.run_module("agentcache.bench.tree", run_name="__main__")
"""


@pytest.mark.parametrize("script", [WITHOUT_EXTENSION, ENGINE_WITHOUT, COMMAND_WITHOUT])
def test_a_native_core_that_was_not_built_is_refused_at_once_and_nothing_takes_its_place(script: str) -> None:
    """In one line that says what to do: by the builder, by the engine before it loads a model, by a benchmark."""
    done = subprocess.run([sys.executable, "-c", BLIND + script], cwd=ROOT, capture_output=True, text=True)
    said = done.stderr.removeprefix("agentcache: ")
    assert said.startswith("bad_config: the native core does not load"), done.stderr
    assert said.count("\n") == 1
    assert done.stdout == ""
    for way in (
        "`make environment` builds it",
        'core="reference"',
        "--core reference",
        "AGENTCACHE_CORE=reference",
    ):
        assert way in said
