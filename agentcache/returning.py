"""Sessions that are expected back: what has left the device is on it again before their next turn.

A session is looked at so early before it is due that all of it can have landed, and nothing is brought that is computed
in less time. Requests come first: while one waits nothing is begun, and one that finds no slots ends what is on its
way.
"""

import heapq
from dataclasses import dataclass, replace
from typing import Final

import structlog

from agentcache.bringing import Bring, Bringer, Stage
from agentcache.clock import Clock
from agentcache.keys import Key, Namespace
from agentcache.paths import Paths
from agentcache.stats import ReturnCounts
from agentcache.types import NO_SLOTS, SessionId, Wait, WaitState
from agentcache.waits import Throughput

log = structlog.get_logger(__name__)

SHORT_NS: Final = 1_000_000_000
"""For a wait that is shorter nothing is moved."""
MARGIN_NS: Final = 250_000_000
"""So much earlier than the measured times say: an engine at rest looks now and then only."""
CAUTION: Final = 1.5
"""How many times longer than measured a load may take."""
MOST_AT_ONCE: Final = 2
LOOKS_A_STEP: Final = 4
MOST_LOOKS: Final = 6
"""How often one wait is looked at, and once more for each word of it: what is there may leave again, and room may come
free."""
TRIED_ANYWAY: Final = 8
"""One in so many is brought although that seems to take too long: it may be otherwise by now."""


@dataclass(slots=True, eq=False)
class Awaited:
    """A session that is away since then. `look_ns`: when to look at it next, 0: no more; `looks`: how often it was."""

    bring: Bring
    since_ns: int = 0
    due_ns: int = 0
    look_ns: int = 0
    looks: int = 0


NOWHERE: Final = Awaited(Bring(Key(NO_SLOTS, Namespace()), Wait(WaitState.RUNNING)))


class Returning:
    """The sessions that are awaited, and what is on its way for the first of them.

    Caller  calls `step` often while `due`; nothing here blocks
    Cost    O(1) while nothing is due; a look costs a vote on the session's path
    """

    def __init__(self, bringer: Bringer, paths: Paths, clock: Clock) -> None:
        self._bringer = bringer
        self._paths = paths
        self._clock = clock
        self._awaited: dict[SessionId, Awaited] = {}
        self._moving: dict[SessionId, Awaited] = {}
        self._looks: list[tuple[int, SessionId]] = []  # void unless the session is to be looked at then
        self._declined = 0
        self.counts = ReturnCounts()

    # what is known of sessions

    def expect(self, session: SessionId, wait: Wait, due_ns: int | None, at_once: bool = False) -> None:
        """A session waits so, and is due then, where that is to be trusted. `at_once`: a moment is too long for it."""
        if wait.state is not WaitState.IDLE:
            self._returned(session)
            return
        now = self._clock.now_ns()
        soon = at_once and due_ns is not None and due_ns <= now + SHORT_NS
        if due_ns is None or (due_ns - wait.since_ns < SHORT_NS and not soon):
            self._end(session, self._awaited.get(session, NOWHERE))
            return
        one = self._account(session, wait)
        if one is NOWHERE:
            return
        one.bring.wait, one.due_ns = wait, min(due_ns, now) if soon else due_ns
        one.looks = min(one.looks, MOST_LOOKS - 1)
        if session in self._moving:
            self._draw_near(session, one)
        else:
            tokens = len(one.bring.path)
            self._look_at(session, one, one.due_ns - self._lead_ns(tokens, tokens))

    def forget(self, session: SessionId) -> None:
        """A session was closed, has idled out or is another worker's: it is not awaited any more."""
        one = self._awaited.pop(session, NOWHERE)
        self._end(session, one)
        self.counts.unused += one.bring.brought > 0

    def _account(self, session: SessionId, wait: Wait) -> Awaited:
        """Of the wait that a session is in; NOWHERE if there is nothing to bring, or no place to bring it from."""
        one = self._awaited.get(session)
        if one and one.since_ns == wait.since_ns:
            return one
        self.forget(session)
        path = self._paths.of(session)
        if not path or not self._bringer.has_source:
            return NOWHERE
        self._awaited[session] = Awaited(Bring(path, wait), wait.since_ns)
        return self._awaited[session]

    def _returned(self, session: SessionId) -> None:
        """A request of it has arrived, and takes care of itself."""
        one, late = self._awaited.pop(session, NOWHERE), session in self._moving
        self._end(session, one)
        if late:
            self.counts.late += 1
        elif one.bring.brought:
            used = self._bringer.on_device(one.bring) >= one.bring.there
            self.counts.on_time += used
            self.counts.unused += not used

    # when to look

    @property
    def due(self) -> bool:
        """Whether there is something to do for `step`. Cost O(1)."""
        return self.due_in_s() <= 0

    def due_in_s(self) -> float:
        """How long until there is; without bound when nobody is awaited. Cost O(1)."""
        if self._moving:
            return 0.0
        return (self._looks[0][0] - self._clock.now_ns()) / 1e9 if self._looks else float("inf")

    def _look_at(self, session: SessionId, one: Awaited, look_ns: int) -> None:
        if one.looks == MOST_LOOKS:
            return
        one.look_ns = look_ns
        heapq.heappush(self._looks, (look_ns, session))
        if len(self._looks) > 64 + 4 * len(self._awaited):
            self._looks = [(at.look_ns, name) for name, at in self._awaited.items() if at.look_ns]
            heapq.heapify(self._looks)

    def _look_again(self, session: SessionId, one: Awaited) -> None:
        """Halfway to when it would be too late, until it is."""
        now = self._clock.now_ns()
        left_ns = one.due_ns - MARGIN_NS - now
        if left_ns > 0:
            self._look_at(session, one, now + left_ns // 2)

    def _lead_ns(self, tokens: int, far_tokens: int) -> int:
        return MARGIN_NS + int(CAUTION * self._bringer.takes_ns(tokens, far_tokens))

    # moving

    def step(self, prefill: Throughput, pressed: bool) -> None:
        """Go on with what is on its way, and begin what is due. `pressed`: a request waits, and nothing is begun."""
        for session, one in tuple(self._moving.items()):
            self._advance(session, one, pressed)
        if pressed or len(self._moving) == MOST_AT_ONCE:
            return
        near = self._drawn_near()
        for session, one in near:
            if len(self._moving) < MOST_AT_ONCE:
                self._look(session, one, prefill)
            else:
                self._look_at(session, one, self._clock.now_ns())

    def stop(self) -> None:
        """End what is on its way, as far as it can be ended: a request finds no slots, or the tiers are to rest."""
        for session, one in tuple(self._moving.items()):
            self._end(session, one)

    def _look(self, session: SessionId, one: Awaited, prefill: Throughput) -> None:
        """See what is missing on the device, and bring it if that pays."""
        one.looks += 1
        near, far = self._bringer.missing(one.bring)
        if far and not self._pays(far, far, prefill):
            far = 0
        if not near + far:
            self._look_again(session, one)
        elif self._pays(near + far, far, prefill):
            self._bring(session, one, (near + far, far))

    def _drawn_near(self) -> list[tuple[SessionId, Awaited]]:
        """Who is to be looked at now. All of them draw near before one may take another's place."""
        near: list[tuple[SessionId, Awaited]] = []
        now = self._clock.now_ns()
        while self._looks and self._looks[0][0] <= now and len(near) < LOOKS_A_STEP:
            look_ns, session = heapq.heappop(self._looks)
            one = self._awaited.get(session, NOWHERE)
            if one.look_ns == look_ns and session not in self._moving:
                one.look_ns = 0  # or another entry of the same moment would name it again
                self._draw_near(session, one)
                near.append((session, one))
        return near

    def _draw_near(self, session: SessionId, one: Awaited) -> None:
        """From now on what it was told counts by the time that is left of it.

        By all of it a session would be overdue since four fifths: then the order lets what is to be brought go, and
        whoever comes round in less than a quarter of the gap makes no room for it.
        """
        wait, now = one.bring.wait, self._clock.now_ns()
        if wait.hint_ns is not None:
            one.bring.wait = replace(wait, since_ns=now, hint_ns=max(0, one.due_ns - now))
            self._bringer.expect(session, one.bring.wait)

    def _bring(self, session: SessionId, one: Awaited, missing: tuple[int, int]) -> None:
        """Begin, if it is time: tokens that are not on the device, and those of them that are outside only."""
        begin_ns = one.due_ns - self._lead_ns(*missing)
        if begin_ns > self._clock.now_ns() + MARGIN_NS:
            self._look_at(session, one, begin_ns)
            return
        self._moving[session] = one
        self._bringer.begin(one.bring, far=missing[1] > 0)
        self._advance(session, one, pressed=False)

    def _pays(self, tokens: int, far_tokens: int, prefill: Throughput) -> bool:
        """Whether bringing takes less time than computing."""
        if self._bringer.takes_ns(tokens, far_tokens) < prefill.takes_ns(tokens):
            return True
        self._declined += 1
        return self._declined % TRIED_ANYWAY == 0

    def _advance(self, session: SessionId, one: Awaited, pressed: bool) -> None:
        """Take one further; what goes wrong ends this one and no other."""
        before = one.bring.brought
        try:
            self._bringer.advance(one.bring, pressed)
            if one.bring.brought > before:
                self._bringer.reference(one.bring, session, self._paths.generation(session))
        except Exception:
            log.exception("return.failed")
            self._end(session, one)
        self.counts.tokens += one.bring.brought - before
        if one.bring.stage is Stage.RESTING and session in self._moving:
            del self._moving[session]
            self._look_again(session, one)

    def _end(self, session: SessionId, one: Awaited) -> None:
        """Nothing more is done for it until more is known; a copy that runs may land."""
        before, one.look_ns = one.bring.brought, 0
        if self._moving.pop(session, None):
            self._bringer.end(one.bring)
            self.counts.tokens += one.bring.brought - before
