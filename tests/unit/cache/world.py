"""A cache with its clock, and requests as an engine would run them. `check` runs after every step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from agentcache.build import CORES
from agentcache.cache import ActiveTurn, CacheParts, Prompt, Ticket, UnifiedRadixCache
from agentcache.clock import ManualClock
from agentcache.controller import HybridCacheController
from agentcache.errors import CacheError, Kind
from agentcache.keys import Namespace
from agentcache.pools.slots import SlotPool
from agentcache.records import SessionRules
from agentcache.sessions import SessionRegistry
from agentcache.stats import Counters
from agentcache.tiers.api import JobResult, Presence, Tier, Transfer
from agentcache.tiers.null import NullTier
from agentcache.tree.api import CoreConfig, UnifiedTreeCore, WritePolicy
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentName,
    Event,
    Piece,
    PoolName,
    SessionId,
    SessionState,
    SessionTag,
    Slots,
    TierName,
    Tokens,
    full_spec,
    mamba_spec,
    swa_spec,
)
from tests.chosen import CORE

PAGE, GRID, WINDOW = 4, 8, 6  # a window of 6 tokens is two pages
HOME = Namespace(model="m")
DEVICE = {FULL: 32, SWA: 16, MAMBA: 8}
OPEN, CLOSED, EXPIRED = SessionState.OPEN, SessionState.CLOSED, SessionState.EXPIRED


def text(seed: int, count: int = 200) -> Tokens:
    return np.random.default_rng(seed).integers(0, 1000, count).astype(np.int32)


class AccountingTier:
    """A host without bytes: everything that was sent lands, when told."""

    name = TierName.HOST

    def __init__(self) -> None:
        self.waiting: list[Transfer] = []
        self.held_back = False

    def lookup(self, wanted: Sequence[tuple[ComponentName, bytes]]) -> tuple[Presence, ...]:
        return (Presence.MISS,) * len(wanted)

    def submit_load(self, transfer: Transfer) -> None:
        self.waiting.append(transfer)

    def submit_store(self, transfer: Transfer) -> None:
        self.waiting.append(transfer)

    def poll(self) -> tuple[JobResult, ...]:
        if self.held_back:
            return ()
        done, self.waiting = self.waiting, []
        return tuple(JobResult(transfer.job, transfer.targets) for transfer in done)

    def drain(self) -> None:
        self.held_back = False

    def cancel(self, number: int) -> None:
        """What was sent lands."""

    def close(self) -> None:
        self.held_back = False


@dataclass
class Heard:
    """An event sink that remembers."""

    events: list[Event] = field(default_factory=list)
    listening: bool = True

    def publish(self, event: Event) -> None:
        self.events.append(event)


class World:
    """A cache with its clock, and requests as an engine would run them."""

    def __init__(
        self,
        device: Mapping[ComponentName, int] = DEVICE,
        host: int = 0,
        tier: Tier | None = None,
        make_core: Callable[[CoreConfig], Any] = CORES[CORE],
        **config: Any,
    ) -> None:
        specs = (full_spec(10), swa_spec(WINDOW, slot_bytes=20), mamba_spec(GRID, slot_bytes=30))
        self.core: UnifiedTreeCore = make_core(
            CoreConfig(
                PAGE,
                tuple(spec for spec in specs if spec.name in device),
                GRID,
                host_tier=host > 0,
                write_policy=WritePolicy.WRITE_BACK,
                **config,
            )
        )
        self.pools = {(name := PoolName(c, TierName.DEVICE)): SlotPool(name, n) for c, n in device.items()}
        if host:
            self.pools |= {(name := PoolName(c, TierName.HOST)): SlotPool(name, host) for c in device}
        self.clock = ManualClock(10**12)
        self.heard = Heard()
        self.cache = UnifiedRadixCache(
            CacheParts(
                core=self.core,
                pools=self.pools,
                controller=HybridCacheController(tier or NullTier(), NullTier(TierName.EXTERNAL), self.pools),
                sessions=SessionRegistry(SessionRules()),
                clock=self.clock,
                events=self.heard,
                stats=Counters(),
            )
        )

    def wait(self, seconds: float) -> None:
        self.clock.advance(int(seconds * 1e9))

    def used(self) -> dict[ComponentName, int]:
        return {name.component: pool.size - pool.free_slots for name, pool in self.pools.items()}

    def enter(self, session: str | None = None, **tag: Any) -> Ticket:
        ticket = self.cache.enter(SessionTag(SessionId(session), **tag) if session else None)
        self.cache.check()
        return ticket

    def begin(self, tokens: Tokens, session: str | None = None, reuse: bool = True, **tag: Any) -> ActiveTurn:
        self.wait(0.001)
        turn = self.cache.begin(self.enter(session, **tag), Prompt(tokens, HOME, len(tokens) - 1, reuse))
        self.cache.check()
        return turn

    def reserve(self, turn: ActiveTurn, end: int) -> Mapping[ComponentName, Slots] | None:
        """Slots for `[boundary, end)`: all pages, the window before the end, the state at it."""
        full = (end - turn.boundary_tokens) // PAGE
        need = {FULL: full, SWA: min(full, 2), MAMBA: 1}
        leased = self.cache.reserve(turn, {name: n for name, n in need.items() if name in self.used()})
        self.cache.check()
        return leased

    def publish(self, turn: ActiveTurn, tokens: Tokens, leased: Mapping[ComponentName, Slots]) -> None:
        end = len(tokens)
        pieces = []
        if SWA in leased:
            pieces.append(Piece(SWA, end - len(leased[SWA]) * PAGE, end, leased[SWA]))
        if MAMBA in leased:
            pieces.append(Piece(MAMBA, end, end, leased[MAMBA]))
        self.cache.publish(turn, tokens, leased[FULL], tuple(pieces))
        self.cache.check()

    def finish(self, turn: ActiveTurn, user_end: int = 10**9) -> int:
        self.cache.finish(turn, user_end)
        self.cache.check()
        return turn.cached_tokens

    def compute(self, turn: ActiveTurn, tokens: Tokens) -> None:
        """Compute and publish what whole chunks of `tokens` the cache lacks."""
        end = len(tokens) - len(tokens) % GRID
        if end > turn.boundary_tokens:
            leased = self.reserve(turn, end)
            assert leased is not None
            self.publish(turn, tokens[:end], leased)

    def turn(self, tokens: Tokens, session: str | None = None, user_end: int = 10**9, **tag: Any) -> int:
        """A whole request; answers its hit."""
        turn = self.begin(tokens, session, **tag)
        self.compute(turn, tokens)
        return self.finish(turn, user_end)

    def hit(self, tokens: Tokens) -> int:
        """What a request would reuse, without leaving a trace in the tree."""
        return self.finish(self.begin(np.append(tokens, tokens[:1])))

    def frontiers(self, session: str) -> list[tuple[int, int]]:
        markers = self.core.snapshot().markers
        return [(m.frontier, m.alternate) for m in markers if m.session == session]


def refused(kind: Kind) -> pytest.RaisesExc[CacheError]:
    return pytest.RaisesExc(CacheError, check=lambda error: error.kind is kind)
