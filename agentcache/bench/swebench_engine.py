"""`bench swebench` on engines: the same calls at the same moments for every order, real prefills and logits.

Every order has an engine of its own, with device and host pools too small for all live sessions. The engines take turns
call by call, so a neighbour's load hits all of them; the cache's time is the script's, the first token's is the
machine's. What is on its way between tiers arrives before the next call comes.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from agentcache.bench.endings import OF_ITSELF, complete
from agentcache.bench.swebench_report import against_lru
from agentcache.bench.swebench_script import Ask, Close, Moment, prompts
from agentcache.clock import Clock, ManualClock
from agentcache.config import EngineSettings
from agentcache.engine.api import CachedTokens, Finished, GenerateRequest
from agentcache.engine.build import build_engine
from agentcache.engine.engine import Engine
from agentcache.engine.publish import POOL_SETTINGS, PublishPolicy
from agentcache.replay.lab.cells import p95
from agentcache.tree.api import Order
from agentcache.types import SessionId, SessionTag

ORDERS = (Order.LRU, Order.SESSION, Order.ERT)
MIB = 2**20
Build = Callable[[EngineSettings, Clock], Engine]


@dataclass(frozen=True, slots=True)
class EngineSize:
    """`device` and `host` are rooms in sessions: what one publishes on the average, at its end."""

    batches: Sequence[int] = (4, 8)
    sessions: int = 8
    turns: int = 6
    device: float = 2.0
    host: float = 2.0


ENGINE, FULL_ENGINE = EngineSize(), EngineSize((4, 8, 16), 16, 12)


@dataclass(frozen=True, slots=True)
class Heard:
    """What one call came to. `logits` is the sha256 of its first token's."""

    prompt_tokens: int
    cached: CachedTokens
    ttft_ms: float
    logits: str


@dataclass(slots=True)
class Side:
    """One order's engine, on a clock that the script moves; `timer` measures."""

    order: Order
    engine: Engine
    clock: ManualClock
    timer: Clock
    heard: list[Heard] = field(default_factory=list)

    def play(self, moment: Moment) -> None:
        """Errors: those of `Engine.submit`, the request's own; ENGINE_FAILED for one that ended early."""
        self.clock.advance(max(0, moment.at_ns - self.clock.now_ns()))
        if isinstance(moment, Close):
            self.engine.cache.close_session(moment.session)
            return
        self.heard.append(self._ask(moment))
        self._settle()

    def _ask(self, call: Ask) -> Heard:
        session = SessionTag(SessionId(call.session))
        name = f"{call.session}/{call.turn}"
        request = GenerateRequest(
            name,
            call.tokens,
            max_tokens=1,
            session=session,
            user_end_tokens=call.user_end_tokens,
            digest_logits=True,
        )
        began_ns = self.timer.now_ns()
        self.engine.submit(request)
        ends: list[Finished] = []
        while not ends:
            events = self.engine.step()
            ends = [event for event in events if isinstance(event, Finished)]
            if not events:
                self.engine.rest()
        ttft_ms = (self.timer.now_ns() - began_ns) / 1e6
        end = complete(ends[0], OF_ITSELF)
        return Heard(end.prompt_tokens, end.cached, ttft_ms, end.first_logits)

    def _settle(self) -> None:
        """Until nothing is on its way between tiers."""
        while not self.engine.cache.tiers.idle:
            self.engine.step()
            self.engine.rest()


def slots_for(policy: PublishPolicy, script: Sequence[Moment], sessions: float) -> dict[str, int]:
    """Device slots, by setting, for so many sessions; at least what the longest prompt needs."""
    calls = prompts(script)
    held = [_published(policy, asks) for asks in calls.values()]
    slots: dict[str, int] = {}
    for spec in policy.specs:
        setting = POOL_SETTINGS[type(spec.rule)]
        wanted = sessions * fmean(one[spec.name] for one in held)
        slots[setting] = max(slots.get(setting, 1), round(wanted))
    longest = max(len(ask.tokens) for asks in calls.values() for ask in asks)
    while short := policy.over_pool(
        longest, {one.name: slots[POOL_SETTINGS[type(one.rule)]] for one in policy.specs}
    ):
        slots[short.setting] = short.least
    return slots


def _published(policy: PublishPolicy, asks: Sequence[Ask]) -> Mapping[str, int]:
    """Slots that a session alone in an endless cache holds at its end."""
    held: dict[str, int] = {spec.name: 0 for spec in policy.specs}
    start = 0
    for ask in asks:
        boundaries = policy.full(start, len(ask.tokens), ask.user_end_tokens)
        for name, count in policy.need(start, boundaries).items():
            held[name] += count
        start = max((start, *boundaries))
    return held


@dataclass(frozen=True, slots=True)
class EngineBench:
    """All orders on a script for each batch. `build` makes an engine of settings and a clock."""

    settings: EngineSettings
    size: EngineSize
    timer: Clock
    on_call: Callable[[], None]
    build: Build = build_engine

    def run(self, scripts: Mapping[int, Sequence[Moment]]) -> dict[str, Any]:
        """What all orders came to, as JSON.

        Errors  BAD_REQUEST for a prompt over the model's context; those of building an engine and of its requests
        Cost    an engine for each batch and order, and their prefills
        """
        engine = self.build(self.settings, ManualClock())
        policy = PublishPolicy(
            engine.info.page_tokens,
            engine.info.grid_tokens,
            engine.cache.config.specs,
            self.settings.fork_chunks,
        )
        engine.close()
        whole = next(iter(scripts.values()))
        slots = slots_for(policy, whole, self.size.device)
        by_name = {spec.name: slots[POOL_SETTINGS[type(spec.rule)]] for spec in policy.specs}
        device_bytes = sum(by_name[spec.name] * spec.slot_bytes for spec in policy.specs)
        host_mib = device_bytes * self.size.host / self.size.device / MIB
        room = {**slots, "host_mib": host_mib}
        rows: list[dict[str, Any]] = []
        different: dict[int, int] = {}
        for batch, script in scripts.items():
            sides = self._play(script, room)
            rows += [_row(batch, side) for side in sides]
            different[batch] = _different(sides)
        shape = {"model": engine.info.model, "device_slots": slots, "host_mib": host_mib}
        shape |= {"sessions": self.size.sessions, "turns": self.size.turns}
        shape |= {"device_sessions": self.size.device, "host_sessions": self.size.host}
        return {"shape": shape, "rows": against_lru(rows), "different_answers": different}

    def _play(self, script: Sequence[Moment], room: Mapping[str, object]) -> list[Side]:
        sides = [self._side(order, room) for order in ORDERS]
        try:
            for number, moment in enumerate(script):
                first = number % len(sides)
                for side in (*sides[first:], *sides[:first]):
                    side.play(moment)
                if isinstance(moment, Ask):
                    self.on_call()
        finally:
            for side in sides:
                side.engine.close()
        return sides

    def _side(self, order: Order, room: Mapping[str, object]) -> Side:
        clock = ManualClock()
        changes = {**self.settings.model_dump(), **room, "eviction_policy": order.value}
        return Side(order, self.build(EngineSettings.model_validate(changes), clock), clock, self.timer)


def _row(batch: int, side: Side) -> dict[str, Any]:
    heard = side.heard
    prompt_tokens = sum(one.prompt_tokens for one in heard)
    device, host = (sum(getattr(one.cached, tier) for one in heard) for tier in ("device", "host"))
    waits = [one.ttft_ms for one in heard]
    return {
        "batch": batch,
        "order": side.order.value,
        "calls": len(heard),
        "prompt_tokens": prompt_tokens,
        "device_tokens": device,
        "host_tokens": host,
        "device_hit_rate": device / prompt_tokens,
        "host_hit_rate": host / prompt_tokens,
        "hit_rate": (device + host) / prompt_tokens,
        "ttft_ms": fmean(waits),
        "ttft_median_ms": median(waits),
        "ttft_p95_ms": p95(waits),
    }


def _different(sides: Sequence[Side]) -> int:
    """Calls that were not answered alike by all."""
    answers = ([one.logits for one in side.heard] for side in sides)
    return sum(len(set(same)) > 1 for same in zip(*answers, strict=True))
