"""The real cache under replay: sessions, tickets, leases, evictions as an engine uses them, of slots without bytes.

One tree token stands for a page of the workload, so a slot is a page (or a state), and capacities are in pages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentcache.build import NO_TIERS, Tiers, accounting_host, build_cache
from agentcache.cache import ActiveTurn, Prompt, Ticket, UnifiedRadixCache
from agentcache.clock import Clock
from agentcache.keys import Namespace
from agentcache.prefetch import DEFAULT_RULES
from agentcache.records import SessionRules
from agentcache.replay.lab.external import bring, by_tier, ready, with_external
from agentcache.replay.lab.history import Cut, History
from agentcache.replay.lab.parts import FULL_ONLY, Parts
from agentcache.replay.lab.publishing import Publishing, Reserved
from agentcache.replay.lab.serving import Found
from agentcache.replay.paged import PAGE_TOKENS, PagedCall, Pages, Workload
from agentcache.tree.api import CoreConfig, Order, WritePolicy
from agentcache.types import SessionId, SessionTag
from agentcache.waits import Told

NAMESPACE = Namespace(model="replay")
FOR_EVER_S = 1e9
Tells = Callable[[PagedCall], Told]
"""What is told at the end of a call of the gap that follows it."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """The cache of a replay. Units: pages of FULL, of `page_tokens` each; 0: there is no host, or external tier.

    Windows and states of `parts` get their share on device and host, and as much beside FULL's in the one external cap.
    `ttl_s`: the idle lease of sessions. `stretch_tokens`: what a prefetch loads at a time.
    """

    order: Order
    device_pages: int
    host_pages: int = 0
    core: str = "native"
    ttl_s: float = FOR_EVER_S
    write_policy: WritePolicy = WritePolicy.WRITE_BACK
    parts: Parts = FULL_ONLY
    page_tokens: int = PAGE_TOKENS
    external_pages: int = 0
    stretch_tokens: int = DEFAULT_RULES.stretch_tokens


class PassingTime:
    """A clock on which every look is later than the one before, as on a machine, by a nanosecond at least.

    A prompt's boundaries are published at one moment of a replay; the order in which they were is what ranks them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ns = -1

    def now_ns(self) -> int:
        self._last_ns = max(self._last_ns + 1, self._clock.now_ns())
        return self._last_ns


def replay_cache(sizing: Sizing, clock: Clock) -> UnifiedRadixCache:
    """A cache for a model's parts. Errors: BAD_CONFIG for sizes that cannot be."""
    parts, page = sizing.parts, sizing.page_tokens
    specs = parts.specs(page, unit=page)
    config = CoreConfig(
        page_tokens=1,
        specs=specs,
        grid_tokens=parts.grid(page) // page,
        order=sizing.order,
        write_policy=sizing.write_policy,
        host_tier=sizing.host_pages > 0,
    )
    tiers = NO_TIERS
    if sizing.host_pages:
        tiers = Tiers(parts.slots(sizing.host_pages, page), accounting_host(specs))
    if sizing.external_pages:
        outside = sum(parts.slots(sizing.external_pages, page).values())
        tiers = with_external(tiers, outside, max(1, sizing.stretch_tokens // page))
    rules = SessionRules(ttl_s=sizing.ttl_s)
    passing = PassingTime(clock) if parts.hybrid else clock
    return build_cache(config, parts.slots(sizing.device_pages, page), passing, sizing.core, rules, tiers)


@dataclass(slots=True)
class _Begun:
    """A call that has begun. `there`: pages on any tier then; `cut`: how far FULL alone would have gone."""

    turn: ActiveTurn
    there: int
    cut: Cut
    reserved: Reserved = field(default_factory=Reserved)


class CachedPages:
    """`Served` by a `UnifiedRadixCache`, which was made for the same `parts`.

    A call that must start and finds no slots has its pages to itself: computed or read from the host, they are its own
    and nobody's after it. `supersedes`: a prompt that leaves its path says so, as harnesses do that compact; otherwise
    the cache finds out by itself.
    """

    def __init__(
        self,
        workload: Workload,
        cache: UnifiedRadixCache,
        tells: Tells,
        supersedes: bool = False,
        parts: Parts = FULL_ONLY,
    ) -> None:
        self.cache = cache
        self._workload = workload
        self._tells = tells
        self._supersedes = supersedes
        self._queued: dict[tuple[int, int], Ticket] = {}
        self._begun: dict[tuple[int, int], _Begun] = {}
        self._publishing = Publishing(cache, parts, workload.page_tokens)
        self._history = History(workload, parts)

    def arrive(self, call: PagedCall, now_ns: int) -> None:
        session = self._workload.sessions[call.session]
        parent = SessionId(_name(session.parent)) if session.parent >= 0 else None
        superseded = self._supersedes and not call.extends
        tag = SessionTag(SessionId(_name(call.session)), parent=parent, superseded=superseded)
        self._queued[call.key] = ticket = self.cache.enter(tag)
        self.cache.tiers.expect(ticket, _prompt(call))
        bring(self.cache.tiers, ticket)

    def uncached(self, call: PagedCall) -> int:
        return len(call.prompt) - self.cache.peek(_prompt(call))

    def expects(self, starts: Sequence[tuple[PagedCall, int]], now_ns: int) -> None:
        for call, start_ns in starts:
            if ticket := self._queued.get(call.key):
                self.cache.expects(ticket, start_ns)

    def start(self, call: PagedCall, now_ns: int, must: bool) -> Found | None:
        begun = self._begun.get(call.key) or self._begin(call)
        if not ready(self.cache, begun.turn, must):
            return None
        reserved = self._publishing.reserve(begun.turn, call, must)
        if reserved is None:
            return None
        begun.reserved = reserved
        return self._history.found(call, by_tier(begun.turn, begun.there), begun.cut)

    def computed(self, call: PagedCall, now_ns: int) -> None:
        begun = self._begun[call.key]
        self._publishing.publish(begun.turn, call.prompt, begun.reserved)
        self._note(call, call.prompt, begun.turn)

    def finish(self, call: PagedCall, now_ns: int) -> None:
        begun = self._begun.pop(call.key)
        turn, path = begun.turn, np.concatenate((call.prompt, call.output))
        if len(call.output) and turn.boundary_tokens == self._publishing.end(len(call.prompt)):
            self._publishing.answer(turn, path)
        self.cache.finish(turn, len(call.prompt), self._tells(call))
        self.cache.tiers.step()
        self._note(call, path, turn)

    def close(self, session: int, now_ns: int) -> None:
        self.cache.close_session(_name(session))
        self._history.closed(session)

    def _begin(self, call: PagedCall) -> _Begun:
        prompt, ticket = _prompt(call), self._queued.pop(call.key)
        bring(self.cache.tiers, ticket)
        there = self.cache.peek(prompt)
        turn = self.cache.begin(ticket, prompt)
        cut = Cut(turn.full_tokens, turn.miss.reason if turn.miss else None)
        self._begun[call.key] = _Begun(turn, there, cut)
        return self._begun[call.key]

    def _note(self, call: PagedCall, path: Pages, turn: ActiveTurn) -> None:
        """Remember what of a path was published, and what found no room."""
        kept, end = turn.boundary_tokens, self._publishing.end(len(path))
        self._history.kept(call.session, path[:kept], turn.published)
        if kept < end:
            there = self.cache.peek(Prompt(path, NAMESPACE, len(path)))
            self._history.found_no_room(path[max(kept, there) : end])


def _prompt(call: PagedCall) -> Prompt:
    return Prompt(call.prompt, NAMESPACE, call.reusable)


def _name(session: int) -> str:
    return f"session-{session}"
