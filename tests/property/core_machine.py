"""A hypothesis machine over every operation of the tree contract, with tiny pools and a model of its own.

The rules come in layers: a bed that builds and checks, requests, transfers, sessions.
"""

import random
import sys
from collections import Counter
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentcache.errors import CacheError, Kind
from agentcache.keys import Key
from agentcache.tree.api import Order, OrderBase
from agentcache.types import FULL, Boundary, ComponentName, Inserted, Lease, Piece, TierName, Wait, WaitState
from tests.builders import AWAY, CORES, HOME, MakeCore, all_kinds, config_of, pages_of
from tests.check import check_all
from tests.driver import Driver
from tests.flight import HeldLease
from tests.oracle import Poll, Residency, Vote
from tests.property.marker_model import MarkerModel, check_previews, shown_markers, shown_references
from tests.property.order_model import OrderModel, check_cascade, lost

LETTERS = st.text("ab", min_size=2, max_size=6)
SHORT = st.text("ab", min_size=1, max_size=3)
SPACES = st.sampled_from([HOME, HOME, HOME, HOME, HOME, AWAY])
SEEDS = st.integers(0, 2**16)
TIERS = st.sampled_from([TierName.DEVICE, TierName.DEVICE, TierName.HOST])
PICK = st.integers(0, 99)
ORDERS = [
    (Order.LRU, OrderBase.LRU),
    *((Order.SESSION, base) for base in OrderBase),
    *[(Order.ERT, OrderBase.LRU)] * 3,
]


class Bed(RuleBasedStateMachine):
    """Builds a core of any combination, checks everything after every step, empties it at the end."""

    make_core: ClassVar[MakeCore] = CORES["reference"]
    reached: ClassVar[Counter[str]] = Counter()

    @initialize(
        kinds=st.sampled_from(all_kinds()),
        shape=st.sampled_from([(1, 1, 0), (4, 1, 0), (4, 2, 0), (2, 1, 2), (64, 1, 0)]),
        order=st.sampled_from(ORDERS),
        tiers=st.sampled_from([(0, False), (0, False), (6, False), (6, True), (3, True), (12, True)]),
        slots=st.sampled_from([9, 18, 30]),
        paths=st.lists(st.text("ab", min_size=4, max_size=6), min_size=1, max_size=4),
    )
    def build(
        self,
        kinds: str,
        shape: tuple[int, int, int],
        order: tuple[Order, OrderBase],
        tiers: tuple[int, bool],
        slots: int,
        paths: list[str],
    ) -> None:
        host, write_back = tiers
        more: dict[str, Any] = {
            "order": order[0],
            "base": order[1],
            "host_tier": host > 0,
            "emit_events": True,
            "max_markers": 3,
            "unclaimed_ns": 9,
        }
        config = config_of(kinds, *shape, write_back=write_back, **more)
        self.driver = Driver(type(self).make_core(config), slots, host)
        self.driver.watch = self.after_each_call
        self.page = shape[0]
        self.keys: list[Key] = []
        self.model = MarkerModel(config)
        self.ranks = OrderModel(config)
        self.held: list[HeldLease] = []
        self.kept: list[tuple[Key, Boundary]] = []
        self.published: list[Key] = []
        self.reached["steps"] += 1
        self.populate(paths)

    def populate(self, paths: list[str]) -> None:
        """What is in the tree before the first step."""

    def key(self, letters: str, space: object) -> Key:
        """A key that is remembered for voting."""
        made = pages_of(letters, self.page, AWAY if space == AWAY else HOME)
        self.keys = [*self.keys[-4:], made]
        return made

    def refusal(self, error: CacheError, *allowed: Kind) -> None:
        assert error.kind in allowed, error
        self.reached[f"refused {error.kind}"] += 1

    @invariant()
    def everything_holds(self) -> None:
        """Slots, marks, locks, invariants; the vote of the last keys; markers and references against the model."""
        self.reached["steps"] += 1
        self.compare_votes(self.after_each_call(self.driver))
        self.reached["eviction under a marker"] = max(
            self.reached["eviction under a marker"], self.model.moved
        )
        snapshot = self.driver.core.snapshot()
        assert shown_markers(snapshot) == self.model.seen(), (shown_markers(snapshot), self.model.seen())
        assert shown_references(snapshot) == self.model.references()
        check_previews(self.driver.core, snapshot, self.driver.now)

    def after_each_call(self, driver: Driver) -> Residency:
        """A rule may make several calls, and data that left in one may be back after the next."""
        places = check_all(driver)
        self.model.settle(places)
        self.ranks.forget(places)
        self.ranks.follow(self.model, places)
        return places

    def compare_votes(self, places: Residency) -> None:
        chunk = self.driver.config.grid
        for key in self.keys:
            poll = Poll(places, key, self.driver.config)
            for limit in {len(key), len(key) - 1, len(key) // 2, chunk + 1, chunk - 1}:
                found = self.driver.peek(key, limit)
                miss = (found.miss.component, found.miss.position, found.miss.reason) if found.miss else None
                assert Vote(found.device.length, found.any_tier.length, found.full_tokens, miss) == poll.vote(
                    limit
                )

    def teardown(self) -> None:
        """Everything is released and cleared, and every pool is full again."""
        if not hasattr(self, "driver") or sys.exc_info()[0]:
            return  # a step failed: its error is the one to see
        for number in list(self.driver.flights):
            self.driver.commit(self.driver.flights[number].job)
        for held in list(self.driver.leases.values()):
            self.driver.unlock(held)
        for session in self.model.marks:
            self.driver.release(session, through=10**6)
        assert self.driver.core.snapshot().markers == ()
        self.driver.clear()
        check_all(self.driver)
        assert all(len(ledger.free) == ledger.size for ledger in self.driver.ledgers())


class Requests(Bed):
    """What running requests do: match, lock, publish, release, and room made for them."""

    def populate(self, paths: list[str]) -> None:
        for at, letters in enumerate(paths):
            self.publish_key(self.key(letters, HOME), 4 * at + 1, TierName.DEVICE)

    def chosen(self, key: Key, seed: int) -> list[tuple[ComponentName, int]]:
        """Everything that could be offered, or now and then a part of it."""
        whole = self.driver.everything(len(key))
        if seed % 4:
            return whole
        return [place for place in whole if random.Random(f"{seed}{place}").random() < 0.6]

    def offer(self, key: Key, seed: int, after: HeldLease | None, tier: TierName) -> Inserted | None:
        """Insert if the slots are there; else make room first and try once more."""
        wanted = self.chosen(key, seed)
        for _ in range(2):
            if self.driver.fits(key, wanted, after, tier):
                before = self.driver.peek(key).device.length
                answer = self.driver.insert(key, wanted, after, tier, priority=seed % 3)
                self.ranks.inserted(key, answer, seed % 3, self.driver.now)
                self.published = [*self.published[-7:], key]
                self.reached["revival"] += before < answer.frontier.length and any(
                    piece.component != FULL
                    and piece.end <= self.driver.peek(key).full_tokens
                    and not _full(answer)
                    for piece in answer.taken
                )
                return answer
            for spec in self.driver.config.specs:
                self.make_room(spec.name, tier, 3)
        return None

    def make_room(self, component: ComponentName, tier: TierName, want: int) -> None:
        """Evict; where no host and no job interferes, the lowest ranked candidate must be among what went."""
        before, now = self.driver.core.snapshot(), self.driver.now + 1
        first = self.ranks.lowest(before, component, now)
        reasons = {self.ranks.why(spot, now) for spot in first}
        self.driver.evict(component, want, tier)
        after = self.driver.core.snapshot()
        assert after.epoch > before.epoch or not lost(before, after), "data went and boundaries are not stale"
        if self.driver.config.host_tier or tier is TierName.HOST or want == 0:
            return
        check_cascade(self.driver.config, before, after, component)
        gone = lost(before, after)
        assert bool(first) == any(spot[2] == component for spot in gone)
        assert not first or gone & set(first), f"{component}: {first} ranked lowest, {gone} went"
        self.reached["victim as ranked"] += bool(first)
        if self.driver.config.order is Order.ERT:
            self.reached.update(f"ert: {reason}" for reason in reasons)

    @rule(letters=LETTERS, space=SPACES, seed=SEEDS, tier=TIERS)
    def publish(self, letters: str, space: object, seed: int, tier: TierName) -> None:
        if tier is TierName.HOST and not self.driver.config.host_tier:
            return
        self.publish_key(self.key(letters, space), seed, tier)

    @rule(pick=PICK, keep=st.integers(1, 4), letters=SHORT, seed=SEEDS, tier=TIERS)
    def publish_near(self, pick: int, keep: int, letters: str, seed: int, tier: TierName) -> None:
        """A fork or an extension of something published before."""
        if self.published and (tier is TierName.DEVICE or self.driver.config.host_tier):
            other = self.published[pick % len(self.published)]
            head = self.letters_of(other, keep * self.page)
            self.publish_key(self.key(head + letters, other.namespace), seed, tier)

    def letters_of(self, key: Key, tokens: int) -> str:
        return "".join(chr(int(token) // 100) for token in key.tokens[: tokens : self.page])

    def publish_key(self, key: Key, seed: int, tier: TierName) -> None:
        forks = self.fork_of(key)
        if self.offer(key, seed, None, tier) and forks:
            self.reached["fork under a lease"] += forks[0]
            self.reached["fork under a marker"] += forks[1]

    def fork_of(self, key: Key) -> tuple[bool, bool]:
        """Whether a lease or a marker ends below the place where this key leaves the tree."""
        full, tokens = self.driver.peek(key).full_tokens, tuple(key.tokens.tolist())
        if full == len(key):
            return False, False
        leased = [tuple(held.key.tokens[: held.length].tolist()) for held in self.driver.leases.values()]
        marked = [mark.path for marks in self.model.marks.values() for mark in marks]
        crossing = [
            any(len(p) > full and p[:full] == tokens[:full] for p in paths) for paths in (leased, marked)
        ]
        return crossing[0] and full > 0, crossing[1] and full > 0

    @rule(letters=LETTERS, space=SPACES, limit=st.integers(0, 30))
    def match(self, letters: str, space: object, limit: int) -> None:
        key = self.key(letters, space)
        found = self.driver.match(key, limit * self.page // 4)
        self.ranks.matched(key, found.any_tier.length, self.driver.now)
        self.kept = [*self.kept[-5:], (key, found.device)]

    @rule(pick=PICK)
    def hold(self, pick: int) -> None:
        if self.published and len(self.driver.leases) < 4:
            self.driver.lock(self.published[pick % len(self.published)])

    @rule(pick=PICK)
    def lock_an_old_boundary(self, pick: int) -> None:
        """A boundary of an earlier epoch is refused, whether or not its data survived."""
        if not self.kept or len(self.driver.leases) > 5:
            return
        key, boundary = self.kept[pick % len(self.kept)]
        fresh = boundary.epoch == self.driver.core.snapshot().epoch
        try:
            self.driver.lock(key, boundary)
            assert fresh, "a stale boundary was locked"
        except CacheError as error:
            self.refusal(error, Kind.NOT_RESIDENT if fresh else Kind.STALE_BOUNDARY)

    @rule(pick=PICK, letters=SHORT, seed=SEEDS)
    def extend(self, pick: int, letters: str, seed: int) -> None:
        """A running request publishes more, and its lease moves to the frontier."""
        held = self.pick_lease(pick)
        if held is None:
            return
        key = self.key(self.letters_of(held.key, held.length) + letters, held.key.namespace)
        answer = self.offer(key, seed, held, TierName.DEVICE)
        if answer is None:
            return
        at = self.driver.peek(key, answer.frontier.length).device
        if seed % 3:
            self.driver.relock(held, key, at)

    def pick_lease(self, pick: int) -> HeldLease | None:
        leases = list(self.driver.leases.values())
        return leases[pick % len(leases)] if leases else None

    @rule(pick=PICK, letters=LETTERS)
    def relock(self, pick: int, letters: str) -> None:
        held = self.pick_lease(pick)
        if held is not None:
            key = self.key(letters, held.key.namespace)
            self.driver.relock(held, key, self.driver.peek(key).device)

    @rule(pick=PICK)
    def unlock(self, pick: int) -> None:
        held = self.pick_lease(pick)
        if held is None:
            return
        self.driver.unlock(held)
        for lease in (held.lease, Lease(10**6)):
            try:
                self.driver.core.unlock(lease, None, self.driver.tick())
                raise AssertionError("released twice")
            except CacheError as error:
                self.refusal(error, Kind.LEASE_REUSED)

    @rule(pick=PICK, which=PICK)
    def unlock_early(self, pick: int, which: int) -> None:
        held = self.pick_lease(pick)
        aux = [name for name in held.covered if name != FULL] if held else []
        if held is not None and aux:
            self.driver.unlock(held, aux[which % len(aux)])
            self.reached["early release"] += 1

    @rule(which=PICK, tier=TIERS, want=st.integers(0, 5))
    def evict(self, which: int, tier: TierName, want: int) -> None:
        specs = self.driver.config.specs
        self.make_room(specs[which % len(specs)].name, tier, want)

    @rule(which=PICK, tier=TIERS, state=st.sampled_from(WaitState), ago=PICK, hint=st.none() | PICK)
    def evict_for_a_guest(
        self, which: int, tier: TierName, state: WaitState, ago: int, hint: int | None
    ) -> None:
        """What it has for itself, and what is expected earlier, stays."""
        specs, since = self.driver.config.specs, self.driver.now - ago
        guest = Wait(state, since, since - which, hint, seq=ago, eta_ns=hint)
        self.driver.evict(specs[which % len(specs)].name, 3, tier, guest)


def _full(answer: Inserted) -> bool:
    return any(piece.component == FULL for piece in answer.taken)


class Transfers(Requests):
    """Jobs outstanding, committed late, in reverse, partly or empty."""

    @rule(pick=PICK, onto=st.sampled_from([TierName.HOST, TierName.EXTERNAL]))
    def backup(self, pick: int, onto: TierName) -> None:
        if self.driver.config.host_tier and self.published and len(self.driver.flights) < 4:
            self.driver.backup(self.published[pick % len(self.published)], onto)

    @rule(pick=PICK)
    def load(self, pick: int) -> None:
        room = len(self.driver.flights) < 4 and len(self.driver.leases) < 6
        if self.driver.config.host_tier and self.published and room:
            planned = self.driver.load(self.published[pick % len(self.published)])
            self.reached["load"] += planned.job is not None

    @rule(pick=PICK, seed=SEEDS, share=st.sampled_from([0.0, 0.5, 0.8, 1.0, 1.0]))
    def commit(self, pick: int, seed: int, share: float) -> None:
        """Any job that is out, not the oldest first, with any part of its pages."""
        numbers = list(self.driver.flights)
        if not numbers:
            return
        self.complete(numbers[pick % len(numbers)], seed, share)

    @rule(which=PICK, want=st.integers(1, 4), seed=SEEDS, share=st.sampled_from([0.0, 0.5, 1.0]))
    def demote(self, which: int, want: int, seed: int, share: float) -> None:
        """Device pressure whose moves complete at once, or fail."""
        before = set(self.driver.flights)
        specs = self.driver.config.specs
        self.driver.evict(specs[which % len(specs)].name, want)
        for number in set(self.driver.flights) - before:
            self.complete(number, seed, share)

    def complete(self, number: int, seed: int, share: float) -> None:
        first, job = min(self.driver.flights), self.driver.flights[number].job
        total = sum(len(piece.slots) for piece in job.pieces)
        answer = self.driver.commit(job, lambda piece, end: _lands(seed, share, piece, end))
        landed = sum(len(piece.slots) for piece in answer.landed)
        self.reached["late job"] += number != first
        self.reached["partial commit"] += 0 < landed < total
        self.reached["empty commit"] += landed == 0
        self.reached["demotion landed"] += job.leaving and landed > 0
        self.reached["demotion dropped"] += bool(answer.dropped)
        try:
            self.driver.core.commit(job, (), self.driver.tick())
            raise AssertionError("committed twice")
        except CacheError as error:
            self.refusal(error, Kind.UNKNOWN_JOB)

    @rule(space=st.sampled_from([None, HOME, AWAY]), seldom=st.integers(0, 5))
    def clear(self, space: object, seldom: int) -> None:
        """Refused while anything is out; else the namespace is empty, markers and all."""
        if not (self.driver.leases or self.driver.flights or seldom):
            namespace = next((name for name in (HOME, AWAY) if name == space), None)
            self.driver.clear(namespace)
            self.reached["clear"] += 1
        elif self.driver.leases or self.driver.flights:
            try:
                self.driver.core.clear(None, self.driver.tick())
                raise AssertionError("cleared under a lease")
            except CacheError as error:
                self.refusal(error, Kind.IN_USE)


def _lands(seed: int, share: float, piece: Piece, end: int) -> bool:
    return random.Random(f"{seed}{piece.component}{end}").random() < share
