"""How long tools keep sessions waiting, learned from what passes, and told to the workers that have the sessions.

    turn ends with calls ──► waiting ──request with their results──► the gap is learned
              └─ known long enough, and how long ──► a hint to the worker, in the background

Each router process learns for itself. Log gaps are averaged, as in `waits.py`. A client's own word is stronger: nothing
is told after a turn for which it said a time, and a worker never lets a learned pause replace a client's.
"""

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Final

from agentcache.clock import Clock
from agentcache.router.tool_results import results_in
from agentcache.router.turn_end import TurnEnd
from agentcache.router.wait_counts import WaitCounts
from agentcache.store.api import SessionRef
from agentcache.waits import LONGEST_S, SHORTEST_S, Mean, WaitKind, kind_of

ENOUGH: Final = 3
"""Gaps of a tool before anybody is told."""
LEAST_S: Final = 1.0
"""Shorter waits are not worth a word: nothing could be moved and be back in time."""
SPREAD: Final = 0.5
"""A tool whose log gaps are usually off by more than this from their mean is not foreseen: one time for all sessions
then orders them worse than the history of each does (decisions/0022)."""
REMEMBERED: Final = 50
"""How many gaps of a tool its mean remembers."""
TENANTS: Final = 256
TOOLS: Final = 128
"""Tools of one tenant, and tenants, of which something is known; least recently used ones are forgotten."""
SESSIONS: Final = 20_000
"""Sessions that may wait; the one that has waited longest teaches nothing."""
AT_ONCE: Final = 256
"""Hints on their way at a time; what would be more is lost, as one that fails."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a session waits for, and how long from now."""

    tool: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn that has ended, where, and how. `said`: its client has said itself when the session is back. `prefill`
    computed its session's prompts last, "" for nobody."""

    ref: SessionRef
    worker: str
    generation: int
    turn: TurnEnd
    said: bool = False
    prefill: str = ""


Tell = Callable[[Ended, Expected], Awaitable[bool]]
"""Tells the worker of an ended turn what its session is expected to wait for; whether it was heard."""
Begin = Callable[[Coroutine[object, object, None]], None]
"""Runs something in the background."""


@dataclass(slots=True)
class _Tool:
    """The log gaps of one tool, and how far each was from the mean before it."""

    gaps: Mean = field(default_factory=lambda: Mean(1 / REMEMBERED))
    off: Mean = field(default_factory=lambda: Mean(1 / REMEMBERED))

    def learn(self, log_gap: float) -> None:
        if self.gaps.count:
            self.off.add(abs(log_gap - self.gaps.value))
        self.gaps.add(log_gap)

    @property
    def usual_s(self) -> float:
        return math.exp(self.gaps.value)

    @property
    def foreseen(self) -> bool:
        return self.gaps.count >= ENOUGH and self.off.value <= SPREAD


@dataclass(slots=True)
class _Waiting:
    """A session whose last turn has called tools. `hint_s`: what a worker was told, 0: nothing.

    `quiet`: no worker is to be told any more.
    """

    since_ns: int
    turn: TurnEnd
    quiet: bool = False
    hint_s: float = 0.0


class _Tools:
    """What is known of every tenant's tools."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, OrderedDict[str, _Tool]] = OrderedDict()

    def known(self, tenant: str, names: tuple[str, ...]) -> dict[str, _Tool]:
        """Those that were seen before, in use from now on."""
        if tenant not in self._tenants:
            return {}
        self._tenants.move_to_end(tenant)
        tools = self._tenants[tenant]
        found = {name: tools[name] for name in names if name in tools}
        for name in found:
            tools.move_to_end(name)
        return found

    def learn(self, tenant: str, names: tuple[str, ...], log_gap: float) -> None:
        """A turn that called these took so long: as long as the slowest of them, and a new one may be that."""
        known = self.known(tenant, names)
        slow = [name for name in names if name not in known] or [max(known, key=lambda n: known[n].usual_s)]
        tools = self._tenants.setdefault(tenant, OrderedDict())
        for name in slow:
            tools.setdefault(name, _Tool()).learn(log_gap)
        while len(tools) > TOOLS:
            tools.popitem(last=False)
        while len(self._tenants) > TENANTS:
            self._tenants.popitem(last=False)


class ToolWaits:
    """The waits of one router process. Cost: O(tools of a turn) for each turn and each request."""

    def __init__(self, clock: Clock, tell: Tell, begin: Begin, counts: WaitCounts) -> None:
        self._clock = clock
        self._tell = tell
        self._begin = begin
        self._counts = counts
        self._tools = _Tools()
        self._waiting: OrderedDict[SessionRef, _Waiting] = OrderedDict()
        self._on_their_way = 0

    def returned(self, ref: SessionRef, body: Mapping[str, object], arrived_ns: int) -> None:
        """A request of a session has come. Its gap is over if it brings the results of the calls.

        Where it brings others, another router has seen turns in between, and the gap teaches nothing. One without any
        (a title, say) ends nothing, unless the calls had no ids.
        """
        waiting = self._waiting.get(ref)
        if not waiting:
            return
        calls = waiting.turn.calls
        results = results_in(body) if calls else frozenset()
        if calls and not results:
            return
        self._forget(ref)
        if calls & results or not calls:
            self._learn(ref.tenant, waiting, arrived_ns)

    def ended(self, ended: Ended) -> None:
        """A turn of a session has ended."""
        kind = kind_of(ended.turn.reason)
        self._counts.ended(kind)
        if kind is not WaitKind.TOOL or not ended.turn.tools:
            return
        self._forget(ended.ref)
        waiting = self._waiting[ended.ref] = _Waiting(self._clock.now_ns(), ended.turn)
        while len(self._waiting) > SESSIONS:
            self._forget(next(iter(self._waiting)))
        expected = self.expected(ended.ref.tenant, ended.turn.tools)
        if expected.seconds >= LEAST_S and not ended.said:
            self._hint(ended, waiting, expected)

    def spoken(self, ref: SessionRef) -> None:
        """A client says itself what its session waits for, or that it goes on: no hint follows any more."""
        if ref in self._waiting:
            self._waiting[ref].quiet = True

    def expected(self, tenant: str, names: tuple[str, ...]) -> Expected:
        """What is known of how long these tools take together: as long as the slowest.

        0 seconds: nothing. That one is not foreseen, or one was never seen, which may be the slowest.
        """
        known = self._tools.known(tenant, names)
        slowest = max(known, key=lambda name: known[name].usual_s, default="")
        if not slowest or len(known) < len(names) or not known[slowest].foreseen:
            return Expected("", 0.0)
        return Expected(slowest, known[slowest].usual_s)

    def _forget(self, ref: SessionRef) -> None:
        if ref in self._waiting:
            self._waiting.pop(ref).quiet = True

    def _learn(self, tenant: str, waiting: _Waiting, arrived_ns: int) -> None:
        gap_s = max(SHORTEST_S, min(LONGEST_S, (arrived_ns - waiting.since_ns) / 1e9))
        self._tools.learn(tenant, waiting.turn.tools, math.log(gap_s))
        if waiting.hint_s:
            self._counts.was_off(abs(math.log(gap_s / waiting.hint_s)))

    def _hint(self, ended: Ended, waiting: _Waiting, expected: Expected) -> None:
        if self._on_their_way >= AT_ONCE:
            self._counts.hinted(sent=False)
            return
        self._on_their_way += 1
        self._begin(self._told(ended, waiting, expected))

    async def _told(self, ended: Ended, waiting: _Waiting, expected: Expected) -> None:
        """Tell the worker, unless the session is back already or its client has spoken."""
        try:
            if waiting.quiet:
                return
            sent = await self._tell(ended, expected)
            self._counts.hinted(sent)
            if sent:
                waiting.hint_s = expected.seconds
        finally:
            self._on_their_way -= 1
