"""The accounting engine's cache is the real one: the same traffic, step by step the same.

A real engine on a tiny model and an account of it take the same requests at the same steps. What the model said is
what the account is told to say; all else must come out by itself: what is cached, why no more, what is stored, moved
and evicted, every marker and every slot.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agentcache.clock import ManualClock
from agentcache.config import EngineSettings
from agentcache.engine.api import Event, Finished, GenerateRequest, Token
from agentcache.engine.engine import Engine
from agentcache.engine.loading import NamedModel, assemble
from agentcache.tiers.lanes import InlineLane, Lane
from agentcache.types import Event as Placement
from agentcache.types import SessionId, SessionTag
from tests.accounting import SIZES, account
from tests.engines import at_rest, prompt_of
from tests.zoo import ZOO

TURNS = 40
TIGHT: dict[str, object] = {
    "full_slots": 70,
    "swa_slots": 50,
    "mamba_slots": 8,
    "max_running": 3,
    "prefill_tokens": 32,
}


class Heard:
    """Placement events without their hashes, which differ with the namespace."""

    listening = True

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def publish(self, event: Placement) -> None:
        self.events.append((event.kind, event.tier, event.component, len(event.hashes), event.tokens))


@dataclass(frozen=True)
class Act:
    """What happens before a step: a request, an abort of one, a close of a session; time passes."""

    request: GenerateRequest | None = None
    abort: str = ""
    close: str = ""
    wait_ns: int = 0


@dataclass
class Record:
    """One step: what was told, and the cache after it."""

    told: list[Event]
    placed: list[tuple[object, ...]]
    stats: Any
    sessions: Any


@dataclass
class Run:
    """What an engine did with a script."""

    records: list[Record] = field(default_factory=list)

    def said(self, name: str) -> tuple[int, ...]:
        told = (event for record in self.records for event in record.told)
        return tuple(event.token for event in told if isinstance(event, Token) and event.request_id == name)


def script_of(seed: int) -> Iterator[list[Act]]:
    """Agents that grow, fork, edit, leave and close, over a shared beginning; several acts before some steps."""
    source = random.Random(seed)
    shared = prompt_of(40, 99)
    chats = {f"s{number}": list(shared[: source.randrange(10, 40)]) for number in range(6)}
    for turn in range(TURNS):
        session = source.choice(sorted(chats))
        chat = chats[session]
        if source.random() < 0.2:
            del chat[source.randrange(len(chat) // 2, len(chat)) :]
        chat += [source.randrange(3, 500) for _ in range(source.randrange(5, 60))]
        del chat[250:]
        parent = SessionId("s0") if source.random() < 0.3 and session != "s0" else None
        request = GenerateRequest(
            str(turn),
            tuple(chat),
            source.randrange(1, 24),
            session=SessionTag(SessionId(session), parent=parent),
            user_end_tokens=source.randrange(len(chat)),
            reuse=source.random() < 0.9,
            tenant_salt=source.choice(["", "other"]),
        )
        yield [Act(request), Act(wait_ns=source.randrange(10**9))]
        for _ in range(source.randrange(6)):
            yield [Act(abort=str(source.randrange(turn + 1)))] if source.random() < 0.1 else []
        if source.random() < 0.15:
            yield [Act(close=source.choice(sorted(chats)))]


def perform(engine: Engine, clock: ManualClock, act: Act, told: Run | None) -> None:
    if act.request:
        output = {"output": told.said(act.request.request_id)} if told else {}
        engine.submit(replace(act.request, **output))  # type: ignore[arg-type]
    if act.abort:
        engine.abort(act.abort)
    if act.close in {view.session for view in engine.cache.sessions()}:
        engine.cache.close_session(act.close)
    clock.advance(act.wait_ns)


def run(engine: Engine, heard: Heard, clock: ManualClock, seed: int, told: Run | None) -> Run:
    """Play a script, one step after every list of acts, then until nothing is left to do."""
    done = Run()
    script = script_of(seed)
    while (acts := next(script, None)) is not None or not (engine.idle() and engine.cache.tiers.idle):
        for act in acts or ():
            perform(engine, clock, act, told)
        events = [_timeless(event) for event in engine.step()]
        engine.cache.check()
        placed, heard.events = heard.events, []
        done.records.append(Record(events, placed, engine.cache.stats(), engine.cache.sessions()))
    assert at_rest(engine)
    return done


def _timeless(event: Event) -> Event:
    """Tokens without their margins."""
    return replace(event, top_margin=0.0) if isinstance(event, Token) else event


def both(family: str, seed: int, **changes: object) -> tuple[Run, Run]:
    """The same script on a real engine and on an account of it."""
    settings = EngineSettings.model_validate({**SIZES, **TIGHT, "threads": 1, "ttl_s": 20.0, **changes})
    clock, heard = ManualClock(), Heard()
    named = NamedModel(ZOO[family].build(settings.dtype), family, random_weights=True)
    real = assemble(named, settings, clock, heard)
    truth = run(real, heard, clock, seed, None)
    clock, heard = ManualClock(), Heard()
    kept = account(real.cache.config.specs, clock, heard, **{**TIGHT, "ttl_s": 20.0, **changes})
    return truth, run(kept, heard, clock, seed, truth)


def require_same(truth: Run, kept: Run) -> None:
    for step, (one, other) in enumerate(zip(truth.records, kept.records, strict=True)):
        assert other.told == one.told, step
        assert other.placed == one.placed, step
        assert other.stats == one.stats, step
        assert other.sessions == one.sessions, step


@pytest.mark.parametrize(
    ("family", "policy"),
    [
        ("qwen3", "session"),
        ("gemma3", "session"),
        ("qwen3_next", "session"),
        ("lara_mini", "session"),
        ("lara_mini", "lru"),
        ("lara_mini", "ert"),
    ],
)
def test_the_same_traffic_is_the_same_turn_for_turn(family: str, policy: str) -> None:
    truth, kept = both(family, seed=1, eviction_policy=policy)
    require_same(truth, kept)
    last = truth.records[-1].stats
    assert last.turns.cached_tokens, "nothing was ever cached: the comparison says nothing"
    assert last.turns.evicted_slots, "nothing was ever evicted"
    assert any(isinstance(event, Finished) for record in kept.records for event in record.told)


@pytest.mark.parametrize("seed", range(2, 4))
def test_other_traffic_is_the_same_too(seed: int) -> None:
    require_same(*both("lara_mini", seed, prefill_order="longest_prefix", prompt_only=seed % 2 == 0))


@pytest.mark.parametrize("policy", ["write_through", "write_through_selective", "write_back"])
def test_a_host_tier_is_the_same_too(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def inline(*_: object) -> Lane:
        return InlineLane()

    monkeypatch.setattr("agentcache.engine.tiers._lane", inline)
    truth, kept = both("lara_mini", seed=7, host_mib=0.6, write_policy=policy)
    require_same(truth, kept)
    assert truth.records[-1].stats.turns.cached_by_tier["host"], "nothing ever came from the host"
