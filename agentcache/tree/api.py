"""The tree contract: "the tree decides, the cache executes".

`UnifiedTreeCore` owns topology, residency by component and tier, leases, jobs' claims, recency, session references
and the order of eviction. It knows slots as integers and never touches memory. Every call is synchronous and total:
an error changes nothing. Mutating calls take `now_ns` (monotonic) and return plain values with effects.

Caller, of every method: apply the effects in order before the next call, which may come from any thread.
Implementer, of every method: results, effects, victims and events depend on positions, never on how the
implementation cuts paths into nodes. Pieces come in spec order, then by position.
Errors, of every method: IN_USE while another call of the same core runs (on a second thread, or from an argument's
own code); BAD_REQUEST for times, generations, sequence numbers and priorities beyond 64 bits. Counts that are only
compared (`limit`, `want`, `room`, `through_generation`) may be of any size.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agentcache.keys import Key, Namespace
from agentcache.types import (
    Boundary,
    Committed,
    ComponentName,
    ComponentSpec,
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


class Order(StrEnum):
    """Eviction order (design §7)."""

    LRU = "lru"
    SESSION = "session"
    ERT = "ert"  # expected return time: how long until a piece is read again, longest first


class OrderBase(StrEnum):
    """What breaks ties of the `session` order between equally referenced pieces."""

    LRU = "lru"
    LFU = "lfu"
    PRIORITY = "priority"


class WritePolicy(StrEnum):
    """When the host gets a copy. Only `write_back` makes eviction itself move data."""

    WRITE_THROUGH = "write_through"
    WRITE_THROUGH_SELECTIVE = "write_through_selective"
    WRITE_BACK = "write_back"


@dataclass(frozen=True, slots=True)
class CoreConfig:
    """What a core is built from. `grid_tokens` 0 means one page. FULL is always the first spec.

    `unclaimed_ns`: under `ert`, what no session has, or had, is expected so much later than its last use says.
    Cores refuse what cannot be a tree with BAD_CONFIG (shapes.py).
    """

    page_tokens: int
    specs: tuple[ComponentSpec, ...]
    grid_tokens: int = 0
    order: Order = Order.ERT
    base: OrderBase = OrderBase.LRU
    write_policy: WritePolicy = WritePolicy.WRITE_THROUGH
    host_tier: bool = False
    emit_events: bool = False
    max_markers: int = 8
    unclaimed_ns: int = 300_000_000_000

    @property
    def tiers(self) -> tuple[TierName, ...]:
        """The tiers whose residency is in the tree."""
        return (TierName.DEVICE, TierName.HOST) if self.host_tier else (TierName.DEVICE,)

    @property
    def grid(self) -> int:
        return self.grid_tokens or self.page_tokens


class Lookup(Protocol):
    """Finding, adding, protecting and evicting."""

    def match(self, key: Key, limit: int, now_ns: int) -> MatchResult:
        """Vote on the deepest reusable boundary of `key`, not beyond `limit` tokens, and mark its regions used.

        Implementer  topology does not change; exactly the pieces of the regions at `any_tier` become recent
        Errors       BAD_REQUEST when the tokens are not one flat int32 array, UNALIGNED when they are not whole pages
        """

    def peek(self, key: Key, limit: int) -> MatchResult:
        """`match` without a trace: recency stays."""

    def insert(self, key: Key, offer: Insert, now_ns: int) -> Inserted:
        """Offer slots for `[after, key end)`; the tree takes what is missing up to the deepest boundary that votes.

        Caller       owns every slot that comes back in `kept`, none other
        Implementer  present copies win: an incoming slot for a present place is a duplicate and freed; absent data
                     (a tombstoned window, a FULL page that is on the host only) is revived from the offer.
                     Where a page before `full_from` is gone, or for tier DEVICE not on the device, nothing is taken,
                     all comes back in `kept`, and `frontier` is the deepest boundary on the key as it is
        Errors       as `match`; UNALIGNED for pieces and `full_from`, too; BAD_INSERT (slots do not fit the range, are
                     below 0, given twice, or owned by the tree already; `full_from` before after or beyond the key),
                     UNKNOWN_COMPONENT, LEASE_REUSED
        """

    def lock(self, boundary: Boundary, now_ns: int) -> Locked:
        """Protect every component's region at `boundary` on the device and name its slots.

        Errors  STALE_BOUNDARY (of another epoch or core, or no position on its node's path); NOT_RESIDENT when a region
                is not on the device
        """

    def relock(self, lease: Lease, boundary: Boundary, now_ns: int) -> Locked:
        """Move a lease to another boundary in one step; the old protection goes only when the new one stands.

        Errors  as `lock`, and LEASE_REUSED; the lease then covers what it covered
        """

    def unlock(self, lease: Lease, component: ComponentName | None, now_ns: int) -> None:
        """Release a lease, or early only one of its aux components (a window that decode has left behind).

        Errors  LEASE_REUSED; UNKNOWN_COMPONENT, for FULL too: it is released with the whole lease
        """

    def evict(
        self,
        component: ComponentName,
        tier: TierName,
        want: int,
        room: dict[ComponentName, int],
        now_ns: int,
        before: Wait | None = None,
    ) -> Evicted:
        """Give up at least `want` slots of `component` on `tier`, lowest ranked first (design §4.2, §7).

        With `before` it ends at the first piece that is not expected later than what a session which waits so has for
        itself; under an order that knows no waits at the first that a session references.

        Caller       `room` = free slots per component on the host tier; commits every Move exactly once
        Implementer  never touches a locked device piece or a piece of a job; never waits; frees on the host precede
                     the Move that uses them; all at most once
        """


class Tiering(Protocol):
    """Copies between tiers, planned by region and committed by what landed."""

    def plan_backup(
        self,
        boundary: Boundary,
        source: TierName,
        target: TierName,
        now_ns: int,
        room: dict[ComponentName, int] | None = None,
    ) -> Planned:
        """Name the pieces of the regions at `boundary` that are on `source` and not on `target`, and protect them.

        With target EXTERNAL residency is not in the tree: all pieces on `source` are named, and `room` is ignored.
        With `room`, as in `evict`, only those that fit are: into it and what this call frees on the host.

        Caller       votes again after a plan with `room`: what it drops makes `boundary` stale
        Implementer  asks for room piece by piece, FULL before the others, each from the shallowest on; on a full host
                     the lowest ranked piece of that component makes way as for a demotion (design §7), but none of
                     the regions at `boundary`; its Free precedes the Move; what finds no room is left out
        Errors       STALE_BOUNDARY; BAD_INSERT when that is no way down between tiers that are there
        """

    def plan_load(self, boundary: Boundary, source: TierName, target: TierName, now_ns: int) -> Planned:
        """Name the pieces of the regions at `boundary` that `target` lacks and `source` has; protect both sides.

        The lease covers the part of the regions that is on the device already.

        Errors  STALE_BOUNDARY; NOT_RESIDENT when a region is on no tier; BAD_INSERT but for host to device
        """

    def commit(self, job: Job, landed: tuple[Piece, ...], now_ns: int) -> Committed:
        """Say what arrived: `landed` pieces carry destination slots. Called exactly once; total for every subset.

        Implementer  FULL keeps its longest contiguous landed part; landed aux pieces without FULL below are freed;
                     a leaving piece that did not land is dropped with its subtree, unless locked or used meanwhile,
                     or with a lease or job below it
                     `dropped` names every piece of the job that is on no tier any more
        Errors       UNKNOWN_JOB; BAD_INSERT when `landed` is no part of the job, or its slots are not its own
        """


class Sessions(Protocol):
    """References that order eviction (design §4.5). Whether a completion may register is `sessions.py`'s matter."""

    def reference(self, session: SessionId, generation: int, turn: Turn, now_ns: int) -> Released:
        """Register a finished turn: move, leave, revive or drop the session's markers; answers what was let go.

        Implementer  a boundary of the turn that does not vote counts as the deepest above it that does
        """

    def release(
        self, session: SessionId, through_generation: int, mode: ReleaseMode, now_ns: int
    ) -> Released:
        """Let go of the session's markers with generation <= `through_generation`. Idempotent.

        DROP frees only unlocked pieces that no other session references and that carry nothing kept.
        """

    def expect(self, session: SessionId, wait: Wait, now_ns: int) -> None:
        """Say what a session is doing; orders that do not use it ignore it.

        Kept until the next word or until the session's last marker goes; of a session without markers, ignored.
        An idle session leaves `key_ns` as a note on all that it references, for when several share it.
        Cost  O(what the session references)
        """


class Inspect(Protocol):
    """Looking at the whole."""

    def snapshot(self) -> Snapshot:
        """Everything observable, by position, in a canonical order."""

    def outline(self, limit: int) -> Outline:
        """At most so many branches, the one used last first, and each behind its parent.

        Cost  O(pages of these branches + markers)
        """

    def check(self) -> None:
        """Verify every invariant of design §4.2 against a recomputation; AssertionError names the first broken one."""

    def stats(self) -> CoreStats:
        """Counts per pool. Cost O(pools)."""

    def clear(self, namespace: Namespace | None, now_ns: int) -> Released:
        """Drop everything (of one namespace) and say what that was.

        Errors  IN_USE while leases or jobs are outstanding
        """


class UnifiedTreeCore(Lookup, Tiering, Sessions, Inspect, Protocol):
    """The four contracts together, over one tree."""

    @property
    def config(self) -> CoreConfig: ...
