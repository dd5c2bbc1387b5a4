"""What a queued request gets from the external tier before it begins, and a session before it returns.

    asking ──► loading ──► … one stretch after the other, each grafted when it has landed … ──► over
       ▲          │
       └──────────┘  another request is loading these pages, or some have left: look again

Existence is a hint. What does not arrive shortens the reuse; what arrives is grafted into the tree, which votes again.
"""

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import structlog

from agentcache.claims import Claims
from agentcache.controller import Names
from agentcache.executor import MovingParts
from agentcache.keys import Key, PathNames
from agentcache.pools.api import Pool
from agentcache.restoring import missing, names_per_chunk, questions, restorable, slots_of, stretches
from agentcache.tiers.api import Presence
from agentcache.types import (
    FULL,
    NO_SLOTS,
    ComponentName,
    Insert,
    MatchResult,
    Piece,
    PoolName,
    TierName,
    Wait,
)

log = structlog.get_logger(__name__)

MOST_NAMES = 16_384
"""Questions of one request; what lies beyond them is not looked for."""
MOST_AT_ONCE = 8
"""Requests looked up at a time. Together they ask less than a tier remembers, or answers would be forgotten unread."""


class PrefetchPolicy(StrEnum):
    """How long a request that could begin waits for what is being loaded for it."""

    BEST_EFFORT = "best_effort"  # not at all: it takes what has landed
    WAIT_COMPLETE = "wait_complete"
    TIMEOUT = "timeout"  # so long, and longer for more tokens


@dataclass(frozen=True, slots=True)
class PrefetchRules:
    """Limits of prefetching.

    Units  timeout_s from the first moment that the request could have begun, and timeout_per_1k_s for each 1,024
           tokens asked for; stretch_tokens are loaded and grafted at a time; `share` of a pool is what the paths of
           requests that have not begun may take of it (one alone may take more)
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
    """A load, from boundary `start` to boundary `end`, the names of its pages, and its number while in `flight`."""

    start: int
    end: int
    pages: frozenset[bytes]
    flight: int = 0


NO_STRETCH = Stretch(0, 0, frozenset())


@dataclass(slots=True, eq=False)
class Prefetch:
    """One request's prefetch, to the `target` tier, where its whole path takes `cost` slots.

    `began` is the least boundary that voted when it was looked at (-1: not looked at), `voted` the one that votes now
    (on the device alone where that is the target), `grafted` the deepest that was reached with what was brought;
    `wanted` is what has been asked for, `ends` are the boundaries still to be loaded. With `before` it is for a session
    that is away and waits so: nothing that is expected earlier makes room for it.
    """

    number: int
    key: Key
    limit: int
    names: PathNames
    target: TierName
    cost: Counter[ComponentName]
    before: Wait | None = None
    began: int = -1
    voted: int = 0
    grafted: int = 0
    stage: Stage = Stage.ASKING
    wanted: tuple[tuple[ComponentName, bytes], ...] = ()
    ends: deque[int] = field(default_factory=deque)
    stretch: Stretch = NO_STRETCH
    blocked_ns: int | None = None

    def look_again(self) -> None:
        self.stage, self.wanted = Stage.ASKING, ()

    @property
    def brought(self) -> tuple[int, int]:
        """The tokens that count because they came from outside, `[start, end)`."""
        return (max(0, self.began), max(0, self.began, self.grafted))


class Prefetcher:
    """The prefetches of queued requests, and of sessions that are about to return; the numbers of these are below 0.

    Only the first of the queue, as many as may share the pools, are worked on. What they have found or been brought is
    kept for them until they begin (`claims`). Who is still away has its turn when nobody waits.
    """

    def __init__(self, parts: MovingParts, rules: PrefetchRules) -> None:
        self._core = parts.core
        self._config = parts.core.config
        self._executor = parts.executor
        self._controller = parts.controller
        self._pools = parts.pools
        self._clock = parts.clock
        self._ledger = parts.ledger
        self._rules = rules
        self.claims = Claims(parts)
        self._queued: dict[int, Prefetch] = {}
        self._flying: dict[int, Prefetch] = {}
        self._window: frozenset[int] = frozenset()
        self.tokens_total = 0

    @property
    def idle(self) -> bool:
        """Nothing is asked for, loaded or kept for anybody."""
        return not self._flying and not self._queued

    def start(self, number: int, key: Key, limit: int, names: PathNames, before: Wait | None = None) -> None:
        """Look for what a queued request, or a session that waits like `before`, could restore up to `limit`."""
        if not self._controller.has_external or limit < self._config.grid:
            return
        cost = self._cost(limit)
        target = TierName.HOST if self._fits(cost, TierName.HOST, 1.0) else TierName.DEVICE
        self._queued[number] = Prefetch(number, key, limit, names, target, cost, before)

    def over(self, number: int) -> bool:
        """Whether nothing more will come for this number."""
        return number not in self._queued or self._queued[number].stage is Stage.OVER

    def names(self, number: int, key: Key) -> PathNames:
        """The page hashes of this path, as far as they were computed for a queued request that asks for it."""
        one = self._queued.get(number)
        if one and one.key.namespace == key.namespace and np.array_equal(one.key.tokens, key.tokens):
            return one.names
        return PathNames(self._config.page_tokens)

    def arrived(self, number: int) -> bool:
        """Whether a request that could begin now should; asked again until it should."""
        one = self._queued.get(number)
        if one is None or one.stage is Stage.OVER or self._rules.policy is PrefetchPolicy.BEST_EFFORT:
            return True
        now = self._clock.now_ns()
        if one.blocked_ns is None and number in self._window:
            one.blocked_ns = now
        if one.blocked_ns is None or self._rules.policy is PrefetchPolicy.WAIT_COMPLETE:
            return False
        return now - one.blocked_ns >= self._rules.patience_ns(one.limit - max(0, one.began))

    def leave(self, number: int) -> tuple[int, int]:
        """A request begins or goes away: nothing is kept for it, its load ends. Answers what came from outside."""
        one = self._queued.pop(number, None)
        if one is None:
            return (0, 0)
        if one.stretch.flight:
            self._controller.cancel(one.stretch.flight)
            self._executor.settle()
            self._graft_fetched()
        self.claims.release(number)
        return one.brought

    def step(self) -> None:
        """Graft what has landed, ask and load further. Short of room nobody overtakes, and who is away has none."""
        self._graft_fetched()
        for one in self._first():
            if self._advance(one):
                continue
            if not one.before:
                for number in [other.number for other in self._queued.values() if other.before]:
                    self.leave(number)
                return
            one.stage = Stage.OVER

    def _advance(self, one: Prefetch) -> bool:
        """Take one prefetch further; what goes wrong ends this one and no other. False: room is short just now."""
        try:
            if one.stage is Stage.ASKING:
                self._ask(one)
            return one.stage is not Stage.LOADING or one.stretch.flight != 0 or self._load(one)
        except Exception:
            log.exception("prefetch.failed", ticket=one.number)
            one.stage = Stage.OVER
            return True

    def stop(self) -> None:
        """End every prefetch; the requests go on with what they have."""
        for number in tuple(self._queued):
            self.leave(number)

    def _first(self) -> list[Prefetch]:
        """Those of the queue whose whole paths fit into their share of the pools; the first always does."""
        first: list[Prefetch] = []
        held: dict[TierName, Counter[ComponentName]] = {tier: Counter() for tier in self._config.tiers}
        nobody_waits = all(one.before for one in self._queued.values())
        for one in self._queued.values():
            if one.before and not nobody_waits:
                continue
            held[one.target] += one.cost
            fits = self._fits(held[one.target], one.target, self._rules.share)
            if first and (len(first) == MOST_AT_ONCE or not fits):
                break
            first.append(one)
        self._window = frozenset(one.number for one in first)
        return first

    def _cost(self, limit: int) -> Counter[ComponentName]:
        """Slots of a whole path: its pages, and the other regions once for each stretch."""
        cost: Counter[ComponentName] = Counter()
        for piece in missing(self._config, 0, limit - limit % self._config.grid):
            regions = 1 if piece.component == FULL else 1 + limit // self._rules.stretch_tokens
            cost[piece.component] = regions * slots_of(piece, self._config.page_tokens)
        return cost

    def _fits(self, cost: Counter[ComponentName], tier: TierName, share: float) -> bool:
        pools = self._pools
        return all(
            PoolName(name, tier) in pools and count <= share * pools[PoolName(name, tier)].size
            for name, count in cost.items()
        )

    # keeping

    def _look(self, one: Prefetch) -> None:
        """Where the tree ends for this path now. A use, but for who is away; and what is found is kept."""
        if one.before:
            match = self._core.peek(one.key, one.limit)
        else:
            match = self._core.match(one.key, one.limit, self._clock.now_ns())
        one.voted = _voted(match, one.target)
        one.began = one.voted if one.began < 0 else min(one.began, one.voted)
        self.claims.keep(one.number, match, one.target)

    # asking

    def _ask(self, one: Prefetch) -> None:
        lookup, page = self._controller.external.lookup, self._config.page_tokens
        if one.wanted and lookup(one.wanted[-1:]) == (Presence.PENDING,):
            return  # asked as one, answered as one
        hashes = one.names.of(one.key)
        if not one.wanted:
            self._look(one)
            chunks = MOST_NAMES // names_per_chunk(self._config)
            one.limit = min(one.limit, one.voted + max(1, chunks) * self._config.grid)
            asked = questions(self._config, one.voted, one.limit)
            one.wanted = tuple((name, hashes[end // page - 1]) for name, end in asked)
        answers = lookup(one.wanted)
        if Presence.PENDING in answers:
            return
        hits = {name for name, answer in zip(one.wanted, answers, strict=True) if answer is Presence.HIT}
        ends = restorable(
            self._config,
            one.voted,
            one.limit,
            lambda name, end: (name, hashes[end // page - 1]) in hits,
        )
        there = self._core.peek(one.key, one.limit).any_tier.length
        gains = bool(ends) and ends[-1] > there  # else the host has as much
        one.ends = deque(stretches(ends, self._rules.stretch_tokens) if gains else ())
        one.stage = Stage.LOADING if one.ends else Stage.OVER

    # loading

    def _load(self, one: Prefetch) -> bool:
        """Start the next stretch that is not there yet. False: room is short just now."""
        while one.ends and one.ends[0] <= one.voted:  # somebody else has computed or brought it
            one.ends.popleft()
        if not one.ends:
            one.stage = Stage.OVER
            return True
        page = self._config.page_tokens
        stretch = _stretch(one, page)
        loading = [other.stretch.pages for other in self._flying.values()]
        resident = _voted(self._core.peek(one.key, one.limit), one.target)
        if resident != one.voted or any(stretch.pages & pages for pages in loading):
            one.look_again()
            return True
        bare = missing(self._config, stretch.start, stretch.end)
        needs: Counter[ComponentName] = Counter()
        for piece in bare:
            needs[piece.component] += slots_of(piece, page)
        if not self._fits(needs, one.target, 1.0):
            one.stage = Stage.OVER
            return True
        if not self._make_room(needs, one):
            return False
        pieces = tuple(
            _placed(piece, self._pools[PoolName(piece.component, one.target)], page) for piece in bare
        )
        names = Names(one.names.of(one.key)[: one.ends[-1] // page])
        flight = self._controller.fetch(pieces, one.target, names)
        one.stretch = replace(stretch, flight=flight)
        self._flying[flight] = one
        return True

    def _make_room(self, needs: Counter[ComponentName], one: Prefetch) -> bool:
        if one.target is TierName.HOST:
            return self._executor.make_host_room(needs, one.before)
        return self._executor.make_room(needs, self._ledger, one.before)

    # grafting

    def _graft_fetched(self) -> None:
        for result in self._controller.fetched():
            one = self._flying.pop(result.job.number)
            end, one.stretch = one.ends.popleft(), replace(one.stretch, flight=0)
            reached = self._graft(one, result.landed)
            if reached > one.voted:
                one.grafted = reached
                self.tokens_total += reached - one.voted
            if one.number in self._queued:
                self._look(one)  # and keep it
            if reached < end or not one.ends:
                one.stage = Stage.OVER

    def _graft(self, one: Prefetch, landed: tuple[Piece, ...]) -> int:
        """Offer what landed to the tree, as far as FULL has no gap; the rest is free again. Answers the frontier."""
        reach, full = one.stretch.start, NO_SLOTS
        for piece in sorted(
            (piece for piece in landed if piece.component == FULL), key=lambda piece: piece.start
        ):
            if piece.start == reach:
                reach, full = piece.end, np.concatenate([full, piece.slots])
            else:
                self._free(piece, one.target)
        aux = [piece for piece in landed if piece.component != FULL]
        for piece in aux:
            if piece.end > reach:
                self._free(piece, one.target)
        if not reach:
            return 0
        whole = tuple(piece for piece in aux if piece.end <= reach)
        offer = Insert(full, whole, tier=one.target, full_from=one.stretch.start)
        key = Key(one.key.tokens[:reach], one.key.namespace)
        inserted = self._core.insert(key, offer, self._clock.now_ns())
        self._executor.apply(inserted.effects)
        for piece in inserted.kept:
            self._free(piece, one.target)
        return inserted.frontier.length

    def _free(self, piece: Piece, tier: TierName) -> None:
        self._pools[PoolName(piece.component, tier)].free(piece.slots)


def _voted(match: MatchResult, target: TierName) -> int:
    """Behind which boundary a graft may begin: on the device nothing is filed behind what only the host has."""
    return (match.device if target is TierName.DEVICE else match.any_tier).length


def _stretch(one: Prefetch, page_tokens: int) -> Stretch:
    """What is to be loaded next: from the boundary that votes to the next end."""
    start, end = one.voted, one.ends[0]
    pages = one.names.of(one.key)[start // page_tokens : end // page_tokens]
    return Stretch(start, end, frozenset(pages))


def _placed(piece: Piece, pool: Pool, page_tokens: int) -> Piece:
    slots = pool.alloc(slots_of(piece, page_tokens))
    assert slots is not None, "room was made for these slots"
    return replace(piece, slots=slots)
