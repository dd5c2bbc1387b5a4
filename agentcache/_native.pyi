"""The extension module, built from `agentcache/_rust/`. `agentcache.tree.native` is how to use it."""

from typing import Self

from typing_extensions import disjoint_base

from agentcache.keys import Key, Namespace
from agentcache.tree.api import CoreConfig
from agentcache.types import (
    Boundary,
    Committed,
    ComponentName,
    Evicted,
    Insert,
    Inserted,
    Job,
    Lease,
    Locked,
    MatchResult,
    Piece,
    Planned,
    Released,
    ReleaseMode,
    SessionId,
    TierName,
    Turn,
    Wait,
)
from agentcache.views import CoreStats, Outline, Snapshot

__all__ = ["TreeCore"]

@disjoint_base
class TreeCore:
    """`UnifiedTreeCore` (agentcache/tree/api.py, which says what each method does) over one Rust tree.

    One call at a time: another one meanwhile, from another thread or from an argument's own code, is refused with
    IN_USE. Beyond 64 bits, numbers that are only compared count as the largest, kept ones are refused. Buffers
    (tokens, slots) are read in place, not copied. A bug of the core, a Rust panic, is an AssertionError in that call
    and in every later one.
    """

    def __new__(cls, config: CoreConfig, instance: int) -> Self:
        """`instance` (32 bits) parts the handles of this core from those of every other in the process."""

    @property
    def config(self) -> CoreConfig:
        """What it was built from."""

    def match(self, key: Key, limit: int, now_ns: int) -> MatchResult: ...
    def peek(self, key: Key, limit: int) -> MatchResult: ...
    def insert(self, key: Key, offer: Insert, now_ns: int) -> Inserted: ...
    def lock(self, boundary: Boundary, now_ns: int) -> Locked: ...
    def relock(self, lease: Lease, boundary: Boundary, now_ns: int) -> Locked: ...
    def unlock(self, lease: Lease, component: ComponentName | None, now_ns: int) -> None: ...
    def evict(
        self,
        component: ComponentName,
        tier: TierName,
        want: int,
        room: dict[ComponentName, int],
        now_ns: int,
        before: Wait | None = None,
    ) -> Evicted: ...
    def plan_backup(
        self,
        boundary: Boundary,
        source: TierName,
        target: TierName,
        now_ns: int,
        room: dict[ComponentName, int] | None = None,
    ) -> Planned: ...
    def plan_load(self, boundary: Boundary, source: TierName, target: TierName, now_ns: int) -> Planned: ...
    def commit(self, job: Job, landed: tuple[Piece, ...], now_ns: int) -> Committed: ...
    def reference(self, session: SessionId, generation: int, turn: Turn, now_ns: int) -> Released: ...
    def release(
        self, session: SessionId, through_generation: int, mode: ReleaseMode, now_ns: int
    ) -> Released: ...
    def expect(self, session: SessionId, wait: Wait, now_ns: int) -> None: ...
    def snapshot(self) -> Snapshot: ...
    def outline(self, limit: int) -> Outline: ...
    def check(self) -> None: ...
    def stats(self) -> CoreStats: ...
    def clear(self, namespace: Namespace | None, now_ns: int) -> Released: ...
    def _panic(self, words: str) -> None:
        """Panic as a bug would. For the test of what follows."""
