"""A cache over tiers that a test holds in its hand: copies land when told, and every slot remembers who wrote it."""

from collections.abc import Callable, Mapping
from typing import Any

from agentcache.build import CORES
from agentcache.cache import ActiveTurn, CacheParts, Prompt, Ticket, UnifiedRadixCache
from agentcache.clock import ManualClock
from agentcache.controller import HybridCacheController
from agentcache.pools.slots import SlotPool
from agentcache.prefetch import PrefetchPolicy, PrefetchRules
from agentcache.records import SessionRules
from agentcache.sessions import SessionRegistry
from agentcache.stats import Counters
from agentcache.tiers.null import NullTier
from agentcache.tree.api import CoreConfig, WritePolicy
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentName,
    Piece,
    PoolName,
    Slots,
    TierName,
    Tokens,
    full_spec,
    mamba_spec,
    swa_spec,
)
from tests.chosen import CORE
from tests.moving import Marks, ScriptedTier, ends_of
from tests.unit.cache.world import DEVICE, GRID, HOME, PAGE, WINDOW, Heard, World

HOST = {FULL: 32, SWA: 16, MAMBA: 8}
RULES = PrefetchRules(PrefetchPolicy.WAIT_COMPLETE)
MakePool = Callable[[PoolName, int], SlotPool]


class TieredWorld(World):
    """`near` is the host (prompt: what is sent lands at the next look), `far` the store outside; no `host`: direct."""

    def __init__(
        self,
        host: Mapping[ComponentName, int] = HOST,
        policy: WritePolicy = WritePolicy.WRITE_THROUGH,
        prefetch: PrefetchRules = RULES,
        device: Mapping[ComponentName, int] = DEVICE,
        make_pool: MakePool = SlotPool,
    ) -> None:
        self.marks: dict[TierName, Marks] = {TierName.DEVICE: {}, TierName.HOST: {}}
        self.near = ScriptedTier(TierName.HOST, PAGE, self.marks, prompt=True)
        self.far = ScriptedTier(TierName.EXTERNAL, PAGE, self.marks, prompt=True)
        specs = (full_spec(10), swa_spec(WINDOW, slot_bytes=20), mamba_spec(GRID, slot_bytes=30))
        config = CoreConfig(PAGE, specs, GRID, host_tier=bool(host), write_policy=policy)
        self.core = CORES[CORE](config)
        sizes = {TierName.DEVICE: device, TierName.HOST: host}
        names = [PoolName(name, tier) for tier, slots in sizes.items() for name in slots]
        self.pools = {name: make_pool(name, sizes[name.tier][name.component]) for name in names}
        self.controller = HybridCacheController(self.near if host else NullTier(), self.far, self.pools)
        self.clock, self.heard = ManualClock(10**12), Heard()
        sessions = SessionRegistry(SessionRules())
        parts = (
            self.core,
            self.pools,
            self.controller,
            sessions,
            self.clock,
            self.heard,
            Counters(),
            prefetch,
        )
        self.cache = UnifiedRadixCache(CacheParts(*parts))

    # requests

    def expect(self, tokens: Tokens, session: str | None = None) -> tuple[Ticket, Prompt]:
        """A request that waits, and what it will ask for."""
        ticket, prompt = self.enter(session), Prompt(tokens, HOME, len(tokens) - 1)
        self.cache.tiers.expect(ticket, prompt)
        self.cache.check()
        return ticket, prompt

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            self.wait(0.001)
            self.cache.tiers.step()
            self.cache.check()

    def settle(self) -> None:
        """Whatever is on its way arrives."""
        for _ in range(200):
            if self.cache.tiers.idle:
                return
            self.look()
        raise AssertionError(self.cache.stats())

    def go(self, ticket: Ticket, prompt: Prompt) -> ActiveTurn:
        """The request begins, whatever has arrived for it."""
        turn = self.cache.begin(ticket, prompt)
        self.cache.check()
        while not self.cache.ready(turn, alone=True):
            self.cache.check()
            self.near.land_all()
        self.verify(turn)
        return turn

    def end(self, turn: ActiveTurn) -> ActiveTurn:
        self.finish(turn)
        return turn

    def publish(self, turn: ActiveTurn, tokens: Tokens, leased: Mapping[ComponentName, Slots]) -> None:
        """Write, then offer: a mark for every page and state."""
        end = len(tokens)
        starts = {name: end - len(slots) * PAGE for name, slots in leased.items() if name != MAMBA}
        for name, slots in leased.items():
            self._write(tokens, Piece(name, starts.get(name, end), end, slots))
        super().publish(turn, tokens, leased)

    def compute(self, turn: ActiveTurn, tokens: Tokens) -> None:
        """As an engine: publish at every chunk."""
        for end in range(turn.boundary_tokens + GRID, len(tokens) + 1, GRID):
            super().compute(turn, tokens[:end])

    def verify(self, turn: ActiveTurn) -> None:
        """What the turn is told to reuse was written for its own path, to the slot."""
        marks = self.marks[TierName.DEVICE]
        for piece in turn.locked.pieces:
            for end, slot in zip(ends_of(piece, PAGE), piece.slots.tolist(), strict=True):
                assert marks[piece.component, slot] == self.mark(turn.prompt.tokens, piece.component, end)

    def mark(self, tokens: Tokens, component: ComponentName, end: int) -> tuple[object, bytes]:
        return component, tokens[:end].tobytes()

    def _write(self, tokens: Tokens, piece: Piece) -> None:
        for end, slot in zip(ends_of(piece, PAGE), piece.slots.tolist(), strict=True):
            mark = self.mark(tokens, piece.component, end)
            self.marks[TierName.DEVICE][piece.component, slot] = mark

    # what lies where

    def stored(self, tokens: Tokens) -> None:
        """These lie outside, and nowhere else."""
        self.turn(tokens)
        self.cache.flush()
        self.cache.check()

    def hit_of(self, tokens: Tokens) -> Any:
        """What a request reuses from each tier when nothing holds it up."""
        ticket, prompt = self.expect(tokens)
        while not self.cache.tiers.arrived(ticket):
            self.look()
        return self.end(self.go(ticket, prompt)).cached

    def slots_on(self, tier: TierName) -> dict[ComponentName, int]:
        return {n.component: p.size - p.free_slots for n, p in self.pools.items() if n.tier is tier}

    def at_rest(self) -> None:
        """No job, no lease, no pin, no prefetch; with the data gone, every slot is free."""
        self.settle()
        stats = self.cache.stats()
        assert stats.jobs_in_flight == stats.active_turns == 0
        assert all(pool.leased == pool.in_flight == pool.protected == 0 for pool in stats.pools)
        for view in self.cache.sessions():
            self.cache.close_session(view.session)
        self.cache.flush()
        assert all(pool.free_slots == pool.size for pool in self.pools.values())
