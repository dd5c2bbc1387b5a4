"""A tree core with the tokens, slots and time that a benchmark feeds it.

What is timed is a call of the contract: its key is made from a plain int32 buffer inside the timed region, its
results and effects are built when it returns. Slots come from a buffer, as from a pool.
"""

import time
from collections.abc import Iterator

import numpy as np

from agentcache.bench.tree_rows import Place
from agentcache.build import CORES
from agentcache.keys import Key, Namespace
from agentcache.tree.api import CoreConfig, Order, UnifiedTreeCore, WritePolicy
from agentcache.types import (
    FULL,
    Boundary,
    ComponentName,
    ComponentSpec,
    Insert,
    Inserted,
    Lease,
    Piece,
    SessionId,
    Slots,
    Tokens,
    Turn,
    full_spec,
    mamba_spec,
    swa_spec,
)

NAMESPACE = Namespace(model="bench")
VOCABULARY = 150_000
POOL_SLOTS = 1 << 22
STEPS = ("match", "lock", "insert", "unlock", "reference")

clock = time.perf_counter


def specs_of(components: str, page: int) -> tuple[ComponentSpec, ...]:
    """`FULL+SWA128+MAMBA` as specs; a state may stand at the end of every page."""
    return tuple(_spec(name, page) for name in components.split("+"))


def _spec(name: str, page: int) -> ComponentSpec:
    if name.startswith("SWA"):
        return swa_spec(int(name.removeprefix("SWA")))
    return mamba_spec(page) if name == "MAMBA" else full_spec()


class World:
    """One core, empty at first. Tokens are random, but the same in every world."""

    def __init__(self, place: Place, order: Order = Order.SESSION, host_tier: bool = False) -> None:
        assert place.page, "a tree has pages"
        self.page = place.page
        self.specs = specs_of(place.components, self.page)
        policy = WritePolicy.WRITE_BACK if host_tier else WritePolicy.WRITE_THROUGH
        config = CoreConfig(self.page, self.specs, order=order, write_policy=policy, host_tier=host_tier)
        self.core: UnifiedTreeCore = CORES[place.core](config)
        self._pool = np.arange(POOL_SLOTS, dtype=np.int32)
        self._used = dict.fromkeys((spec.name for spec in self.specs), 0)
        self._random = np.random.default_rng(7)
        self._now = 0

    def now(self) -> int:
        self._now += 1
        return self._now

    def tokens(self, count: int) -> Tokens:
        """Tokens that no other call gives, but for chance."""
        return self._random.integers(0, VOCABULARY, count, dtype=np.int32)

    def whole(self, length: int) -> int:
        """`length` in whole pages."""
        return length - length % self.page

    def slots(self, component: ComponentName, count: int) -> Slots:
        """Slots that nobody has."""
        start = self._used[component]
        assert start + count <= POOL_SLOTS, "the benchmark's pool is too small"
        self._used[component] = start + count
        return self._pool[start : start + count]

    def offer(self, start: int, end: int, after: Lease | None) -> Insert:
        """Slots for `[start, end)`: all of FULL, the end of each window, the state at the end."""
        pieces = tuple(self._pieces(start, end))
        return Insert(self.slots(FULL, (end - start) // self.page), pieces, after)

    def _pieces(self, start: int, end: int) -> Iterator[Piece]:
        for spec in self.specs[1:]:
            first = max(start, spec.rule.region(end, self.page).start)
            count = (end - first) // self.page if first < end else 1
            yield Piece(spec.name, first, end, self.slots(spec.name, count))

    def add(self, tokens: Tokens) -> Inserted:
        """Insert whole pages, untimed."""
        return self.core.insert(Key(tokens, NAMESPACE), self.offer(0, len(tokens), None), self.now())

    def refer(self, session: str, frontier: Boundary) -> None:
        """Let a new session reference a boundary, untimed."""
        self.core.reference(SessionId(session), 1, Turn(frontier, None, 0, 1), self.now())

    def turn(self, session: SessionId, context: Tokens, asked: int, number: int) -> tuple[float, ...]:
        """One round: `asked` tokens of `context` come in, all of it is published. Seconds of each of STEPS.

        The session's alternate is the boundary that was found: an edited turn would land there.
        """
        core = self.core
        asked, end = self.whole(asked), self.whole(len(context))
        begin = clock()
        found = core.match(Key(context[:asked], NAMESPACE), asked, self.now()).device
        matched = clock()
        locked = core.lock(found, self.now())
        held = clock()
        offer = self.offer(found.length, end, locked.lease)
        ready = clock()
        inserted = core.insert(Key(context[:end], NAMESPACE), offer, self.now())
        added = clock()
        core.unlock(locked.lease, None, self.now())
        released = clock()
        left = Turn(inserted.frontier, found, 2 * number, 2 * number + 1)
        core.reference(session, 1, left, self.now())
        ended = clock()
        assert inserted.frontier.length == end, "everything offered votes"
        return matched - begin, held - matched, added - ready, released - added, ended - released

    def grow(self, context: Tokens, step: int, session: str = "grown") -> Boundary:
        """Publish `context` in turns of `step` tokens; the session ends at the boundary that is answered."""
        for number, end in enumerate(range(step, len(context) + step, step)):
            self.turn(SessionId(session), context[:end], end, number)
        return self.core.peek(Key(context, NAMESPACE), len(context)).device
