"""Replays a workload in its own time: closed loop, on a clock that jumps from one event to the next.

A session's next call comes its recorded gap after the end of the call before, so a slow cache delays its callers, and
nobody else. Equal runs are equal to the last bit.
"""

import heapq
import itertools
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from agentcache.clock import ManualClock
from agentcache.engine.scheduler import Asked, PrefillOrder, WaitingQueue
from agentcache.replay.lab.serving import Found, Machine, Replayed, Served
from agentcache.replay.paged import PagedCall, PagedSession, Workload
from agentcache.waits import Throughput

ALL = sys.maxsize


def _there(_: PagedCall) -> bool:
    """Whatever a prompt has on lower tiers is loaded when it begins."""
    return True


@dataclass(frozen=True, slots=True)
class Script:
    """When what happens, but for the cache: what two replays with the same seed have in common.

    `closes`: a session is closed when it is over, and all below it are.

    Units  `starts_ns`: of the sessions without a parent, by index; `gaps_ns`: before every call, by session and turn
    """

    workload: Workload
    starts_ns: Mapping[int, int]
    gaps_ns: Sequence[Sequence[int]]
    closes: bool

    def returns_ns(self, call: PagedCall, ended_ns: int) -> int | None:
        """When the session's next call arrives if this one ended then; None: it was the last."""
        gaps = self.gaps_ns[call.session]
        return ended_ns + gaps[call.turn + 1] if call.turn + 1 < len(gaps) else None


class _Event(IntEnum):
    """In the order in which those of one moment happen: room is made before it is asked for."""

    ENDED = 0
    COMPUTED = 1
    ARRIVES = 2


@dataclass(slots=True)
class _Running:
    call: PagedCall
    arrived_ns: int
    started_ns: int
    first_token_ns: int
    found: Found


class World:
    """One replay. `run` may be called once."""

    def __init__(self, script: Script, machine: Machine, served: Served, clock: ManualClock) -> None:
        self._script = script
        self._machine = machine
        self._served = served
        self._clock = clock
        self._events: list[tuple[int, int, int, PagedCall]] = []
        self._order = itertools.count()
        order = machine.turns if machine.queue else PrefillOrder.FCFS
        rate = Throughput(machine.prefill)
        self._queue: WaitingQueue[PagedCall] = WaitingQueue(ALL, order, rate)
        self._arrived_ns: dict[tuple[int, int], int] = {}
        self._running: dict[tuple[int, int], _Running] = {}
        self._next: list[PagedCall] = []
        self._busy = False
        self._children = children(script.workload.sessions)
        below = Counter(session.parent for session in script.workload.sessions)
        self._unfinished = [1 + below[session.index] for session in script.workload.sessions]
        self.replayed: list[Replayed] = []

    def run(self) -> list[Replayed]:
        """Every call of the workload, in the order of their ends. Cost: O(calls log calls) beside the cache's."""
        for session, start_ns in self._script.starts_ns.items():
            first = self._script.workload.sessions[session].calls[0]
            self._later(start_ns, _Event.ARRIVES, first)
        while self._events:
            at_ns, kind, _, call = heapq.heappop(self._events)
            self._clock.advance(at_ns - self._clock.now_ns())
            match kind:
                case _Event.ARRIVES:
                    self._arrives(call, at_ns)
                case _Event.COMPUTED:
                    self._computed(call, at_ns)
                case _Event.ENDED:
                    self._ended(call, at_ns)
            self._begin(at_ns)
        assert len(self.replayed) == self._script.workload.calls, "a call was lost"
        return self.replayed

    def _arrives(self, call: PagedCall, now_ns: int) -> None:
        self._served.arrive(call, now_ns)
        self._arrived_ns[call.key] = now_ns
        self._queue.push(f"{call.session} {call.turn}", call)

    def _begin(self, now_ns: int) -> None:
        """Start what may start now. One that was chosen and found no room stays the next one."""
        while not (self._machine.queue and self._busy) and self._choose(now_ns):
            (call,) = self._next
            must = not self._machine.queue or not self._running
            found = self._served.start(call, now_ns, must)
            if found is None:
                return
            self._next.clear()
            first_ns = now_ns + self._machine.first_token_ns(call, found, self._script.workload.page_tokens)
            arrived_ns = self._arrived_ns.pop(call.key)
            self._running[call.key] = _Running(call, arrived_ns, now_ns, first_ns, found)
            self._busy = self._machine.queue
            self._later(first_ns, _Event.COMPUTED, call)

    def _choose(self, now_ns: int) -> bool:
        """Whether there is a next one; the others hear when they will start."""
        if not self._next and (chosen := self._queue.pop(self._look, _there)):
            self._next.append(chosen)
            if starts := list(self._queue.starts(now_ns)):
                self._served.expects(starts, now_ns)
        return bool(self._next)

    def _look(self, call: PagedCall) -> Asked:
        cached = len(call.prompt) - self._served.uncached(call)
        return Asked(call.prompt_tokens, cached * self._script.workload.page_tokens)

    def _computed(self, call: PagedCall, now_ns: int) -> None:
        self._busy = False
        self._served.computed(call, now_ns)
        self._later(now_ns + self._machine.answer_ns(call), _Event.ENDED, call)

    def _ended(self, call: PagedCall, now_ns: int) -> None:
        ran = self._running.pop(call.key)
        self._served.finish(call, now_ns)
        self.replayed.append(
            Replayed(call, ran.arrived_ns, ran.started_ns, ran.first_token_ns, now_ns, ran.found)
        )
        sessions = self._script.workload.sessions
        again_ns = self._script.returns_ns(call, now_ns)
        if again_ns is not None:
            self._later(again_ns, _Event.ARRIVES, sessions[call.session].calls[call.turn + 1])
        else:
            self._over(call.session, now_ns)
        for child in self._children.get(call.key, ()):
            self._later(now_ns + self._script.gaps_ns[child.index][0], _Event.ARRIVES, child.calls[0])

    def _over(self, session: int, now_ns: int) -> None:
        """A session has had its last call. It is closed after those below it, and its parent perhaps with it."""
        while session >= 0:
            self._unfinished[session] -= 1
            if self._unfinished[session]:
                return
            if self._script.closes:
                self._served.close(session, now_ns)
            session = self._script.workload.sessions[session].parent

    def _later(self, at_ns: int, kind: _Event, call: PagedCall) -> None:
        heapq.heappush(self._events, (at_ns, kind, next(self._order), call))


def children(sessions: Sequence[PagedSession]) -> dict[tuple[int, int], list[PagedSession]]:
    """Who begins at the end of which call: below a parent, after as many of its calls as had ended."""
    begin: dict[tuple[int, int], list[PagedSession]] = {}
    for session in sessions:
        if session.parent >= 0:
            last = len(sessions[session.parent].calls)
            at = (session.parent, min(max(session.after_call, 1), last) - 1)
            begin.setdefault(at, []).append(session)
    return begin
