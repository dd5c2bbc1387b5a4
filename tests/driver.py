"""Drives a core as the cache does: owns the pools, applies effects, and reads every slot that an answer names."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from agentcache.keys import Key, Namespace
from agentcache.tree.api import CoreConfig, UnifiedTreeCore
from agentcache.types import (
    FULL,
    Boundary,
    Committed,
    ComponentName,
    Effects,
    Event,
    Evicted,
    Free,
    Insert,
    Inserted,
    Job,
    Lease,
    Locked,
    MatchResult,
    Move,
    Piece,
    Planned,
    PoolName,
    Released,
    ReleaseMode,
    SessionId,
    TierName,
    Turn,
    Wait,
)
from tests.builders import checkpoint_grids, slots_of, window_names
from tests.flight import Flight, HeldLease, KeepPage, piece_ends, region_ends
from tests.ledger import Ledger, mark_of
from tests.listening import Listener
from tests.oracle import line_of, residency

TREE_TIERS = (TierName.DEVICE, TierName.HOST)
Watch = Callable[["Driver"], object]  # called after every step


class Driver:
    """A core with accounting pools. `slots` is the size of every pool, `now` grows with every call."""

    def __init__(self, core: UnifiedTreeCore, slots: int = 32, host_slots: int = 32) -> None:
        self.core = core
        self.config: CoreConfig = core.config
        self.now = 0
        self.leases: dict[Lease, HeldLease] = {}
        self.flights: dict[int, Flight] = {}
        self.events: list[Event] = []
        self.listener = Listener(core.config)
        self.watch: Watch = lambda _driver: None
        sizes = {TierName.DEVICE: slots, TierName.HOST: host_slots if core.config.host_tier else 0}
        names = [PoolName(spec.name, tier) for spec in core.config.specs for tier in TREE_TIERS]
        self._ledgers = {name: Ledger(name, sizes[name.tier]) for name in names}

    def ledgers(self) -> Iterable[Ledger]:
        return self._ledgers.values()

    def ledger(self, component: ComponentName, tier: TierName = TierName.DEVICE) -> Ledger:
        return self._ledgers[PoolName(component, tier)]

    def being_read(self) -> set[tuple[ComponentName, int]]:
        """Device copies that a job reads; aux data among them may have lost their page meanwhile."""
        jobs = [flight.job for flight in self.flights.values() if flight.job.source is TierName.DEVICE]
        return {
            (piece.component, slot) for job in jobs for piece in job.pieces for slot in piece.slots.tolist()
        }

    def tick(self) -> int:
        self.now += 1
        return self.now

    def room(self) -> dict[ComponentName, int]:
        return {spec.name: len(self.ledger(spec.name, TierName.HOST).free) for spec in self.config.specs}

    # finding

    def match(self, key: Key, limit: int | None = None) -> MatchResult:
        found = self.core.match(key, len(key) if limit is None else limit, self.tick())
        self.watch(self)
        return found

    def peek(self, key: Key, limit: int | None = None) -> MatchResult:
        return self.core.peek(key, len(key) if limit is None else limit)

    def depth(self, key: Key, limit: int | None = None) -> int:
        return self.peek(key, limit).device.length

    # offering

    def offer_pieces(
        self, key: Key, after: int, wanted: Iterable[tuple[ComponentName, int]]
    ) -> tuple[Piece, ...]:
        """Unslotted one-page pieces and states for (component, page end) pairs beyond `after`."""
        grids, page = checkpoint_grids(self.config), self.config.page_tokens
        ends = sorted({(name, end) for name, end in wanted if after < end <= len(key)})
        return tuple(Piece(name, end if name in grids else end - page, end) for name, end in ends)

    def everything(self, length: int) -> list[tuple[ComponentName, int]]:
        """Every window page and every checkpoint on the grid up to `length`."""
        grids = checkpoint_grids(self.config)
        ends = range(self.config.page_tokens, length + 1, self.config.page_tokens)
        windows = [(name, end) for name in window_names(self.config) for end in ends]
        return windows + [(name, end) for name, grid in grids.items() for end in ends if end % grid == 0]

    def insert(
        self,
        key: Key,
        wanted: Sequence[tuple[ComponentName, int]] | None = None,
        after: HeldLease | None = None,
        tier: TierName = TierName.DEVICE,
        priority: int = 0,
        full_from: int | None = None,
    ) -> Inserted:
        """Take slots for a key, mark them, offer them, apply the answer; what was kept goes back to the pool."""
        start = after.length if after else 0
        full = Piece(FULL, start if full_from is None else full_from, len(key))
        shape = (full, *self.offer_pieces(key, start, self._wanted(key, wanted)))
        pieces = self.alloc(key, shape, tier)
        assert pieces is not None, "the test's pools are too small"
        lease = after.lease if after else None
        offer = Insert(pieces[0].slots, pieces[1:], lease, tier, priority, full_from)
        answer = self.core.insert(key, offer, self.tick())
        self.settle(key, pieces, answer, tier)
        for kept in answer.kept:
            self.ledger(kept.component, tier).give_back(kept.slots.tolist())
        self.watch(self)
        return answer

    def _wanted(
        self, key: Key, wanted: Sequence[tuple[ComponentName, int]] | None
    ) -> Iterable[tuple[ComponentName, int]]:
        return self.everything(len(key)) if wanted is None else wanted

    def alloc(self, key: Key, shape: Sequence[Piece], tier: TierName) -> tuple[Piece, ...] | None:
        """Give each piece slots and write its marks; all or nothing."""
        page = self.config.page_tokens
        filled: list[Piece] = []
        for piece in shape:
            count = (
                1
                if piece.start == piece.end and piece.component != FULL
                else (piece.end - piece.start) // page
            )
            slots = self.ledger(piece.component, tier).take(count)
            if slots is None:
                self.return_pieces(filled, tier)
                return None
            filled.append(Piece(piece.component, piece.start, piece.end, slots_of(slots)))
            for end, slot in zip(piece_ends(filled[-1], page), slots, strict=True):
                self.ledger(piece.component, tier).write(slot, mark_of(key, end, piece.component))
        return tuple(filled)

    def fits(
        self, key: Key, wanted: Sequence[tuple[ComponentName, int]], after: HeldLease | None, tier: TierName
    ) -> bool:
        """Whether the pools have the slots that such an insert would take."""
        start = after.length if after else 0
        needed = Counter(piece.component for piece in self.offer_pieces(key, start, wanted))
        needed[FULL] = (len(key) - start) // self.config.page_tokens
        return all(count <= len(self.ledger(name, tier).free) for name, count in needed.items())

    def return_pieces(self, pieces: Iterable[Piece], tier: TierName) -> None:
        for piece in pieces:
            self.ledger(piece.component, tier).give_back(piece.slots.tolist())

    def settle(self, key: Key, offered: Sequence[Piece], answer: Inserted, tier: TierName) -> None:
        """Apply an insert: taken + duplicates + kept = offered, slot by slot, each where it was offered."""
        for taken in answer.taken:
            ledger = self.ledger(taken.component, tier)
            self._verify_marks(key, taken, tier)
            ledger.to_tree(taken.slots.tolist())
        for kept in answer.kept:
            assert set(kept.slots.tolist()) <= self.ledger(kept.component, tier).private
            self._verify_marks(key, kept, tier)
        self.apply(answer.effects)
        kept_slots = {(piece.component, slot) for piece in answer.kept for slot in piece.slots.tolist()}
        mine = {(piece.component, slot) for piece in offered for slot in piece.slots.tolist()}
        still = {(name, slot) for name, slot in mine if slot in self.ledger(name, tier).private}
        assert still == kept_slots, f"neither taken, freed nor kept: {still - kept_slots}"

    def _verify_marks(self, key: Key, piece: Piece, tier: TierName) -> None:
        for end, slot in zip(piece_ends(piece, self.config.page_tokens), piece.slots.tolist(), strict=True):
            self.ledger(piece.component, tier).verify(slot, mark_of(key, end, piece.component))

    # protecting

    def lock(self, key: Key, boundary: Boundary | None = None) -> HeldLease:
        """Lock a boundary of `key` (the deepest on the device if none is named) and read what it names."""
        at = self.peek(key).device if boundary is None else boundary
        return self._hold(key, self.core.lock(at, self.tick()), at)

    def relock(self, held: HeldLease, key: Key, boundary: Boundary) -> HeldLease:
        locked = self.core.relock(held.lease, boundary, self.tick())
        del self.leases[held.lease]
        return self._hold(key, locked, boundary)

    def _hold(self, key: Key, locked: Locked, boundary: Boundary) -> HeldLease:
        page = self.config.page_tokens
        assert locked.boundary.length == boundary.length
        assert [piece.component for piece in locked.pieces] == [spec.name for spec in self.config.specs]
        covered = {}
        for spec, piece in zip(self.config.specs, locked.pieces, strict=True):
            region = spec.rule.region(boundary.length, page)
            ends = region_ends(region, page)
            assert (piece.start, piece.end) == (region.start, region.end)
            assert len(piece.slots) == len(ends)
            self._verify_marks(key, piece, TierName.DEVICE)
            covered[spec.name] = ends
        held = HeldLease(locked.lease, key, boundary.length, covered)
        assert held.lease not in self.leases, "one number for two leases"
        self.leases[held.lease] = held
        self.watch(self)
        return held

    def unlock(self, held: HeldLease, component: ComponentName | None = None) -> None:
        self.core.unlock(held.lease, component, self.tick())
        if component is None:
            del self.leases[held.lease]
        else:
            del held.covered[component]
        self.watch(self)

    # making room

    def evict(
        self,
        component: ComponentName,
        want: int = 1,
        tier: TierName = TierName.DEVICE,
        before: Wait | None = None,
    ) -> Evicted:
        """Evict with the true room; the answer's counts must be what the effects do."""
        cached = self.ledger(component, tier).cached()
        answer = self.core.evict(component, tier, want, self.room(), self.tick(), before)
        moving = self._moving(answer.effects, component)
        self.apply(answer.effects, must_fit=True)
        assert answer.freed == len(cached - self.ledger(component, tier).cached())
        assert answer.moving == (moving if tier is TierName.DEVICE else 0)
        assert answer.short == max(0, want - answer.freed - answer.moving)
        self.watch(self)
        return answer

    def _moving(self, effects: Effects, component: ComponentName) -> int:
        jobs = [effect.job for effect in effects if isinstance(effect, Move)]
        return sum(len(piece.slots) for job in jobs for piece in job.pieces if piece.component == component)

    # moving

    def plan(self, planned: Planned, key: Key, boundary: Boundary, must_fit: bool = False) -> Planned:
        """Take note of a plan: its job, and the lease on what the device has of the region already."""
        if planned.lease is not None:
            self.leases[planned.lease] = self._partial(planned.lease, key, boundary)
        self.apply(planned.effects, must_fit)
        if planned.job is not None and planned.job.number not in self.flights:
            self._depart(planned.job, must_fit=False)
        self.watch(self)
        return planned

    def _partial(self, lease: Lease, key: Key, boundary: Boundary) -> HeldLease:
        """A load's lease: the regions as far as FULL reaches on the device; parts of them may be on the host only."""
        page = self.config.page_tokens
        line = line_of(residency(self.core.snapshot()), key, self.config)
        reach = max((end for end, held in line.items() if (FULL, TierName.DEVICE) in held), default=0)
        covered = {}
        for spec in self.config.specs:
            ends = region_ends(spec.rule.region(boundary.length, page), page)
            covered[spec.name] = tuple(end for end in ends if end <= reach)
        return HeldLease(lease, key, min(reach, boundary.length), covered, for_load=True)

    def backup(self, key: Key, target: TierName = TierName.HOST) -> Planned:
        at = self.peek(key).device
        return self.plan(self.core.plan_backup(at, TierName.DEVICE, target, self.tick()), key, at)

    def back_up_what_fits(self, key: Key, room: dict[ComponentName, int] | None = None) -> Planned:
        """Copy to the host what finds room there: the true room, or less of it."""
        at, free = self.peek(key).device, self.room() if room is None else room
        planned = self.core.plan_backup(at, TierName.DEVICE, TierName.HOST, self.tick(), free)
        return self.plan(planned, key, at, must_fit=True)

    def load(self, key: Key) -> Planned:
        at = self.peek(key).any_tier
        return self.plan(self.core.plan_load(at, TierName.HOST, TierName.DEVICE, self.tick()), key, at)

    def _depart(self, job: Job, must_fit: bool) -> None:
        self.flights[job.number] = flight = Flight(job, {}, {})
        flight.depart(self.ledger, self.config.page_tokens, must_fit)

    def commit(self, job: Job, keep: KeepPage = lambda _piece, _end: True) -> Committed:
        """Complete a job with the pages that `keep` lets through and that had a destination."""
        landed = self.flights.pop(job.number).land(self.ledger, self.config.page_tokens, keep)
        answer = self.core.commit(job, landed, self.tick())
        for piece in answer.landed:
            self.ledger(piece.component, job.target).to_tree(piece.slots.tolist())
        self.apply(answer.effects)
        self.watch(self)
        return answer

    # sessions

    def turn(
        self,
        session: str,
        key: Key,
        seqs: tuple[int, int],
        generation: int = 1,
        alternate: int = 0,
        superseded: bool = False,
    ) -> Released:
        """Register a turn that took (start, finish) = `seqs`, at the deepest boundary of `key` on any tier.

        The alternate is the deepest boundary not after `alternate` tokens; 0 means none.
        """
        at, other = self.peek(key).any_tier, self.peek(key, alternate).any_tier
        turn = Turn(at, other if other.length else None, *seqs, superseded=superseded)
        answer = self.core.reference(SessionId(session), generation, turn, self.tick())
        self.apply(answer.effects)
        self.watch(self)
        return answer

    def release(self, session: str, mode: ReleaseMode = ReleaseMode.RELEASE, through: int = 1) -> Released:
        answer = self.core.release(SessionId(session), through, mode, self.tick())
        self.apply(answer.effects)
        self.watch(self)
        return answer

    def expect(self, session: str, wait: Wait) -> None:
        """Say what a session is doing; nothing that a snapshot shows may change."""
        before = self.core.snapshot()
        self.core.expect(SessionId(session), wait, self.tick())
        assert self.core.snapshot() == before
        self.watch(self)

    def clear(self, namespace: Namespace | None = None) -> Released:
        answer = self.core.clear(namespace, self.tick())
        self.apply(answer.effects)
        self.watch(self)
        return answer

    # applying

    def apply(self, effects: Effects, must_fit: bool = False) -> None:
        """The only place that frees and submits. A job that `must_fit` was planned within the room that there was."""
        for effect in effects:
            if isinstance(effect, Free):
                self.ledger(effect.pool.component, effect.pool.tier).give_back(effect.slots.tolist())
            elif isinstance(effect, Move):
                self._depart(effect.job, must_fit)
        self.events += self.listener.hear(effects)
