"""The real cache under replay: sessions, tickets, leases, evictions as an engine uses them, of slots without bytes.

One tree token stands for a page of the workload, so a slot is a page, and capacities are in pages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from agentcache.build import NO_TIERS, Tiers, accounting_host, build_cache
from agentcache.cache import ActiveTurn, Prompt, Ticket, UnifiedRadixCache
from agentcache.clock import Clock
from agentcache.keys import Namespace
from agentcache.records import SessionRules
from agentcache.replay.lab.serving import Found, Why
from agentcache.replay.paged import PagedCall, Pages, Workload
from agentcache.tree.api import CoreConfig, Order, WritePolicy
from agentcache.types import FULL, NO_SLOTS, SessionId, SessionTag, full_spec
from agentcache.waits import Told

NAMESPACE = Namespace(model="replay")
SPECS = (full_spec(),)
FOR_EVER_S = 1e9
Tells = Callable[[PagedCall], Told]
"""What is told at the end of a call of the gap that follows it."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """The cache of a replay. Units: pages; `host_pages` 0: no host tier. `ttl_s`: the idle lease of sessions."""

    order: Order
    device_pages: int
    host_pages: int = 0
    core: str = "native"
    ttl_s: float = FOR_EVER_S
    write_policy: WritePolicy = WritePolicy.WRITE_BACK


def replay_cache(sizing: Sizing, clock: Clock) -> UnifiedRadixCache:
    """A cache of FULL pages. Errors: BAD_CONFIG for sizes that cannot be."""
    config = CoreConfig(
        page_tokens=1,
        specs=SPECS,
        order=sizing.order,
        write_policy=sizing.write_policy,
        host_tier=sizing.host_pages > 0,
    )
    tiers = Tiers({FULL: sizing.host_pages}, accounting_host(SPECS)) if sizing.host_pages else NO_TIERS
    rules = SessionRules(ttl_s=sizing.ttl_s)
    return build_cache(config, {FULL: sizing.device_pages}, clock, sizing.core, rules, tiers)


@dataclass(slots=True)
class _Begun:
    """A call that has begun. `there`: pages on any tier then; `room`: slots that its pages will fill."""

    turn: ActiveTurn
    there: int
    room: Pages = field(default_factory=lambda: NO_SLOTS)


class CachedPages:
    """`Served` by a `UnifiedRadixCache`.

    A call that must start and finds no slots has its pages to itself: computed or read from the host, they are its own
    and nobody's after it. `supersedes`: a prompt that leaves its path says so, as harnesses do that compact; otherwise
    the cache finds out by itself.
    """

    def __init__(
        self, workload: Workload, cache: UnifiedRadixCache, tells: Tells, supersedes: bool = False
    ) -> None:
        self.cache = cache
        self._workload = workload
        self._tells = tells
        self._supersedes = supersedes
        self._queued: dict[tuple[int, int], Ticket] = {}
        self._begun: dict[tuple[int, int], _Begun] = {}
        self._history = _History(workload)

    def arrive(self, call: PagedCall, now_ns: int) -> None:
        session = self._workload.sessions[call.session]
        parent = SessionId(_name(session.parent)) if session.parent >= 0 else None
        superseded = self._supersedes and not call.extends
        tag = SessionTag(SessionId(_name(call.session)), parent=parent, superseded=superseded)
        self._queued[_key(call)] = self.cache.enter(tag)

    def uncached(self, call: PagedCall) -> int:
        return len(call.prompt) - self.cache.peek(_prompt(call))

    def expects(self, starts: Sequence[tuple[PagedCall, int]], now_ns: int) -> None:
        for call, start_ns in starts:
            if ticket := self._queued.get(_key(call)):
                self.cache.expects(ticket, start_ns)

    def start(self, call: PagedCall, now_ns: int, must: bool) -> Found | None:
        begun = self._begun.get(_key(call)) or self._begin(call)
        turn = begun.turn
        if not self.cache.ready(turn, alone=must):
            return None
        if not self._lease(begun, len(call.prompt) - turn.boundary_tokens, must):
            return None
        cached = turn.cached
        read = max(cached.host, begun.there - cached.device - cached.external)
        why = self._history.why(call, cached.device + read + cached.external)
        return Found(cached.device, read, cached.external, why)

    def computed(self, call: PagedCall, now_ns: int) -> None:
        self._publish(self._begun[_key(call)], call.prompt)

    def finish(self, call: PagedCall, now_ns: int) -> None:
        begun = self._begun.pop(_key(call))
        if len(call.output) and begun.turn.boundary_tokens == len(call.prompt):
            self._lease(begun, len(call.output), must=True)
            self._publish(begun, np.concatenate((call.prompt, call.output)))
        self.cache.finish(begun.turn, len(call.prompt), self._tells(call))
        self.cache.tiers.step()
        self._history.ended(call)

    def close(self, session: int, now_ns: int) -> None:
        self.cache.close_session(_name(session))
        self._history.closed(session)

    def _begin(self, call: PagedCall) -> _Begun:
        there = self.cache.peek(_prompt(call))
        turn = self.cache.begin(self._queued.pop(_key(call)), _prompt(call))
        self._begun[_key(call)] = _Begun(turn, there)
        return self._begun[_key(call)]

    def _lease(self, begun: _Begun, pages: int, must: bool) -> bool:
        """Slots for so many pages; with `must` for as many as can be had."""
        leased = self.cache.reserve(begun.turn, {FULL: pages})
        if not leased and must:
            device = self.cache.stats().pools[0]
            there = device.free + device.cached - device.protected
            leased = self.cache.reserve(begun.turn, {FULL: min(pages, there)})
        if leased:
            begun.room = leased[FULL]
        return bool(leased)

    def _publish(self, begun: _Begun, path: Pages) -> None:
        end = begun.turn.boundary_tokens + len(begun.room)
        self.cache.publish(begun.turn, path[:end], begun.room, ())


class _History:
    """What was once there, to say why it is not any more."""

    def __init__(self, workload: Workload) -> None:
        self._user = np.full(len(workload.before), -1, dtype=np.int32)  # the last session that had a page
        self._closed: set[int] = set()

    def why(self, call: PagedCall, hit: int) -> Why:
        """Why the hit of `hit` pages is not longer."""
        if hit >= call.reusable:
            return Why.NOTHING
        user = int(self._user[call.prompt[hit]])
        if user < 0:
            return Why.NEVER_STORED if call.extends else Why.PREFIX_CHANGED
        return Why.CLOSED if user in self._closed else Why.EVICTED

    def ended(self, call: PagedCall) -> None:
        self._user[call.prompt] = call.session
        self._user[call.output] = call.session

    def closed(self, session: int) -> None:
        self._closed.add(session)


def _prompt(call: PagedCall) -> Prompt:
    return Prompt(call.prompt, NAMESPACE, call.reusable)


def _key(call: PagedCall) -> tuple[int, int]:
    return call.session, call.turn


def _name(session: int) -> str:
    return f"session-{session}"
