"""What a queued request gets from the external tier before it begins.

    asking ──► loading ──► … one stretch after the other, each grafted when it has landed … ──► over
       ▲          │
       └──────────┘  another request is loading these pages: wait for it, then look again

Existence is a hint. What does not arrive shortens the reuse; what arrives is grafted into the tree, which votes again.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from agentcache.clock import Clock
from agentcache.controller import HybridCacheController, Names
from agentcache.executor import Executor
from agentcache.keys import Key, PathNames
from agentcache.pools.api import Pool
from agentcache.restoring import missing, questions, restorable, slots_of, stretches
from agentcache.tiers.api import Presence
from agentcache.tree.api import UnifiedTreeCore
from agentcache.turns import Ledger
from agentcache.types import FULL, NO_SLOTS, ComponentName, Insert, Piece, PoolName, TierName


class PrefetchPolicy(StrEnum):
    """How long a request that could begin waits for what is being loaded for it."""

    BEST_EFFORT = "best_effort"  # not at all: it takes what has landed
    WAIT_COMPLETE = "wait_complete"
    TIMEOUT = "timeout"  # so long, and longer for more tokens


@dataclass(frozen=True, slots=True)
class PrefetchRules:
    """Limits of prefetching.

    Units  timeout_s from the first moment that the request could have begun, and timeout_per_1k_s for each 1,024
           tokens asked for; stretch_tokens are loaded and grafted at a time; `share` of a pool is what requests that
           have not begun may hold of it (one request alone may hold more)
    """

    policy: PrefetchPolicy = PrefetchPolicy.TIMEOUT
    timeout_s: float = 1.0
    timeout_per_1k_s: float = 0.25
    stretch_tokens: int = 2048
    share: float = 0.5

    def patience_ns(self, tokens: int) -> int:
        return int((self.timeout_s + self.timeout_per_1k_s * tokens / 1024) * 1e9)


DEFAULT_RULES = PrefetchRules()


class Stage(StrEnum):
    ASKING = "asking"
    LOADING = "loading"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A load in flight: `pieces` with the slots that it was given, FULL of it from `full` on, to boundary `end`."""

    full: int
    end: int
    pages: frozenset[bytes]


NO_STRETCH = Stretch(0, 0, frozenset())


@dataclass(slots=True, eq=False)
class Prefetch:
    """One request's prefetch.

    `began` is the boundary that voted when it was first looked at (-1: not yet), `voted` the one that votes now, `full`
    how far FULL alone is resident, `ends` the boundaries still to be loaded, `held` what it has taken of the pools.
    """

    key: Key
    limit: int
    names: PathNames
    began: int = -1
    voted: int = 0
    full: int = 0
    stage: Stage = Stage.ASKING
    wanted: tuple[tuple[ComponentName, bytes], ...] = ()
    ends: deque[int] = field(default_factory=deque)
    flight: int = 0
    stretch: Stretch = NO_STRETCH
    held: Counter[ComponentName] = field(default_factory=Counter)
    blocked_ns: int | None = None

    def look_again(self) -> None:
        self.stage, self.wanted = Stage.ASKING, ()

    @property
    def brought(self) -> tuple[int, int]:
        """The tokens that count because they came from outside, `[start, end)`."""
        return (max(0, self.began), max(0, self.began, self.voted))


class Prefetcher:
    """The prefetches of all queued requests, first come, first served."""

    def __init__(
        self,
        core: UnifiedTreeCore,
        executor: Executor,
        controller: HybridCacheController,
        pools: Mapping[PoolName, Pool],
        clock: Clock,
        rules: PrefetchRules,
    ) -> None:
        self._core = core
        self._config = core.config
        self._executor = executor
        self._controller = controller
        self._clock = clock
        self._rules = rules
        self._target = TierName.HOST if core.config.host_tier else TierName.DEVICE
        self._pools = {name.component: pool for name, pool in pools.items() if name.tier is self._target}
        self._queued: dict[int, Prefetch] = {}
        self._flying: dict[int, Prefetch] = {}
        self.tokens_total = 0

    @property
    def idle(self) -> bool:
        """Nothing is asked for or loaded, nothing is held for anybody."""
        return not self._flying and all(one.stage is Stage.OVER for one in self._queued.values())

    @property
    def queued(self) -> int:
        """Requests that hold, or may take, a part of the quota."""
        return len(self._queued)

    def start(self, number: int, key: Key, limit: int, names: PathNames) -> None:
        """Look for what a queued request could restore up to `limit`."""
        if self._controller.has_external and limit >= self._config.grid:
            self._queued[number] = Prefetch(key, limit, names)

    def arrived(self, number: int) -> bool:
        """Whether a request that could begin now should; asked again until it should."""
        one = self._queued.get(number)
        if one is None or one.stage is Stage.OVER or self._rules.policy is PrefetchPolicy.BEST_EFFORT:
            return True
        now = self._clock.now_ns()
        if one.blocked_ns is None:
            one.blocked_ns = now
        patience = self._rules.patience_ns(one.limit - max(0, one.began))
        return self._rules.policy is PrefetchPolicy.TIMEOUT and now - one.blocked_ns >= patience

    def leave(self, number: int) -> tuple[int, int]:
        """A request begins or goes away: its quota is free, its load ends. Answers which tokens came from outside."""
        one = self._queued.pop(number, None)
        if one is None:
            return (0, 0)
        if one.flight:
            self._controller.cancel(one.flight)
            self._executor.settle()
            self._graft_fetched()
        return one.brought

    def step(self, ledger: Ledger) -> None:
        """Graft what has landed, ask and load further."""
        self._graft_fetched()
        for one in self._queued.values():
            if one.stage is Stage.ASKING:
                self._ask(one)
            if one.stage is Stage.LOADING and not one.flight and not self._load(one, ledger):
                return  # short of quota or room: nobody overtakes

    def stop(self) -> None:
        """End every prefetch; the requests go on with what they have."""
        for number in tuple(self._queued):
            self.leave(number)

    # asking

    def _ask(self, one: Prefetch) -> None:
        hashes, page = one.names.of(one.key), self._config.page_tokens
        if not one.wanted:
            match = self._core.peek(one.key, one.limit)
            one.voted, one.full = match.any_tier.length, match.full_tokens
            one.began = one.voted if one.began < 0 else one.began
            asked = questions(self._config, one.voted, one.full, one.limit)
            one.wanted = tuple((name, hashes[end // page - 1]) for name, end in asked)
        answers = self._controller.lookup(one.wanted)
        if Presence.PENDING in answers:
            return
        hits = {name for name, answer in zip(one.wanted, answers, strict=True) if answer is Presence.HIT}
        ends = restorable(
            self._config,
            one.voted,
            one.full,
            one.limit,
            lambda name, end: (name, hashes[end // page - 1]) in hits,
        )
        one.ends = deque(stretches(ends, self._rules.stretch_tokens))
        one.stage = Stage.LOADING if one.ends else Stage.OVER

    # loading

    def _load(self, one: Prefetch, ledger: Ledger) -> bool:
        """Start the next stretch. False: quota or room is short just now."""
        end = one.ends[0]
        match = self._core.match(
            one.key, one.limit, self._clock.now_ns()
        )  # a use: what is below must not leave now
        stretch = self._stretch(one, end)
        if match.full_tokens < min(one.full, one.limit) or any(
            stretch.pages & other.stretch.pages for other in self._flying.values()
        ):
            one.look_again()
            return True
        bare = missing(self._config, stretch.full, end)
        needs: Counter[ComponentName] = Counter()
        for piece in bare:
            needs[piece.component] += slots_of(piece, self._config.page_tokens)
        if any(count > self._pools[name].size for name, count in needs.items()):
            one.stage = Stage.OVER
            return True
        if not self._may_hold(one, needs) or not self._make_room(needs, ledger):
            return False
        one.held += needs
        one.stretch = stretch
        one.flight = self._controller.fetch(
            tuple(self._placed(piece) for piece in bare), self._target, Names(one.names.of(one.key))
        )
        self._flying[one.flight] = one
        return True

    def _stretch(self, one: Prefetch, end: int) -> Stretch:
        page, hashes = self._config.page_tokens, one.names.of(one.key)
        full = min(one.full, end)
        first = min(full, end - page)
        return Stretch(full, end, frozenset(hashes[first // page : end // page]))

    def _may_hold(self, one: Prefetch, needs: Counter[ComponentName]) -> bool:
        """Whether the requests that have not begun may hold so much; one alone may hold all that there is."""
        others: Counter[ComponentName] = Counter()
        for other in self._queued.values():
            if other is not one:
                others += other.held
        if not others:
            return True
        return all(
            others[name] + one.held[name] + count <= self._rules.share * self._pools[name].size
            for name, count in needs.items()
        )

    def _make_room(self, needs: Counter[ComponentName], ledger: Ledger) -> bool:
        if self._target is TierName.HOST:
            return self._executor.make_host_room(needs)
        return self._executor.make_room(needs, ledger)

    def _placed(self, piece: Piece) -> Piece:
        slots = self._pools[piece.component].alloc(slots_of(piece, self._config.page_tokens))
        assert slots is not None, "room was made for these slots"
        return replace(piece, slots=slots)

    # grafting

    def _graft_fetched(self) -> None:
        for result in self._controller.fetched():
            one = self._flying.pop(result.job.number)
            reached = self._graft(one, result.landed)
            whole = reached >= one.stretch.end
            self.tokens_total += max(0, reached - one.voted)
            one.voted = max(one.voted, reached)
            one.full = max(one.full, reached)
            one.flight = 0
            one.ends.popleft()
            if not whole or not one.ends:
                one.stage = Stage.OVER

    def _graft(self, one: Prefetch, landed: tuple[Piece, ...]) -> int:
        """Offer what landed to the tree, as far as FULL has no gap; the rest is free again. Answers the frontier."""
        reach, full = one.stretch.full, NO_SLOTS
        for piece in sorted(
            (piece for piece in landed if piece.component == FULL), key=lambda piece: piece.start
        ):
            if piece.start == reach:
                reach, full = piece.end, np.concatenate([full, piece.slots])
            else:
                self._free(piece)
        aux = [piece for piece in landed if piece.component != FULL]
        for piece in aux:
            if piece.end > reach:
                self._free(piece)
        if not reach:
            return 0
        offer = Insert(
            full,
            tuple(piece for piece in aux if piece.end <= reach),
            tier=self._target,
            full_from=one.stretch.full,
        )
        key = Key(one.key.tokens[:reach], one.key.namespace)
        inserted = self._core.insert(key, offer, self._clock.now_ns())
        self._executor.apply(inserted.effects)
        for piece in inserted.kept:
            self._free(piece)
        return inserted.frontier.length

    def _free(self, piece: Piece) -> None:
        self._pools[piece.component].free(piece.slots)
