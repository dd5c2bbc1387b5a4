"""How long until a session is served again: the one place where waits become numbers.

    idle     `Forecast`: learned gaps, return rates, and hints that are trusted while they are true
    queued   its place in the queue; under a cache-aware scheduler the start that `Throughput` lets expect
    running  since when

A gap is the time from the end of a session's last request to its next arrival. Log gaps are what is averaged: gaps are
spread over many orders of magnitude. The order `ert` turns all this into keys (decisions/0009, 0016).
"""

import heapq
import math
from dataclasses import dataclass, field
from enum import StrEnum

from agentcache.types import Wait, WaitState

SHORTEST_S, LONGEST_S = 0.1, 6 * 3600.0
"""Gaps, hints and forecasts lie between these."""

NEWEST = 0.3
"""The weight of the newest gap in a session's own mean; the first three weigh alike."""

SKILL = 0.01
"""The weight of the newest error in the meters that compare a session's own mean with that of its kind."""

KIND_GAPS, KIND_ENDS = 200, 400
"""How many gaps the mean of a kind remembers, and after how many ends the return rates forget a half."""

STAYS_AWAY = 1.5
"""A session counts as one that does not return when it has been away for so many times what is usual."""

BELIEVED = 10
"""How many sessions are taken to have returned before any was seen."""

MISTRUST = 1.5
"""A session's hints count while they are off by less than this in natural logarithm, a factor of 4.5."""

REGULAR, STEADY = 3, 0.7
"""A session that nobody says anything of is expected back as usual, after so many gaps of a kind, as long as they are
off its mean by less than this in natural logarithm, a factor of two."""

TYPICAL_TOKENS_PER_S = 10_000.0
"""The prompt tokens that a worker computes in a second, until it has been seen at work."""

REMEMBERED_NS = 60_000_000_000
"""How much of the time under pressure a throughput remembers; of more it forgets a half."""


class WaitKind(StrEnum):
    """Whom a session waits for."""

    TOOL = "tool"
    HUMAN = "human"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Told:
    """What a client or an engine says of a gap: whom the session waits for, and for how long from now (seconds)."""

    kind: WaitKind = WaitKind.UNKNOWN
    gap_s: float | None = None


NOTHING_TOLD = Told()


def kind_of(reason: str) -> WaitKind:
    """Whom a session waits for after a turn that ended for this reason, in OpenAI's words."""
    return {"tool_calls": WaitKind.TOOL, "stop": WaitKind.HUMAN}.get(reason, WaitKind.UNKNOWN)


@dataclass(slots=True)
class Mean:
    """A mean that forgets: the newest value never weighs less than `floor`."""

    floor: float
    value: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += (value - self.value) * max(self.floor, 1 / self.count)


@dataclass(slots=True)
class Away:
    """What one session's gaps were like, and the one it may be in. Lives and goes with the session's record."""

    idle: bool = False
    since_ns: int = 0  # idle or running since
    kind: WaitKind = WaitKind.UNKNOWN
    turns: int = 0
    gap_s: float = 0.0  # what this gap is expected to take, running the last; 0: none went before
    missed_ns: int = 0  # when it counts as one that does not return
    missing: bool = False  # it does so
    hint_s: float = 0.0  # the last that was said of this gap, from its beginning; 0: nothing
    shortest_s: float = 0.0  # the shortest that was said of it
    called_s: float = 0.0  # when it was said, first, that the gap ends now; 0: it was not
    habits: dict[WaitKind, Mean] = field(default_factory=dict)  # log gaps
    surprise: Mean = field(default_factory=lambda: Mean(NEWEST))  # how far they were off their mean
    mistrust: Mean = field(default_factory=lambda: Mean(NEWEST))  # how far its hints were off

    def running(self) -> Wait:
        """The running session as the order sees it.

        What its request does not hold, as another agent's branch, is read after it and a gap, taken to be as long as
        was expected of the one before; else the branches of whoever runs would outlive those of all that wait. Where no
        gap went before, agents of the session overlap, and read at any moment.
        """
        return Wait(WaitState.RUNNING, self.since_ns, self._key_ns())

    def wait(self) -> Wait:
        """The idle session as the order sees it."""
        hint_ns = _nanoseconds(self.hint_s) if self._believed() else None
        return Wait(WaitState.IDLE, self.since_ns, self._key_ns(), hint_ns)

    def _key_ns(self) -> int:
        return self.since_ns - _nanoseconds(self.gap_s)

    def due_ns(self) -> int | None:
        """When an idle session is expected back, where that is worth doing something for; None: it is not known.

        Somebody said so who is believed; or it is a session whose gaps are alike, and then the shorter ones count.
        """
        if not self.idle:
            return None
        gap_s = self.hint_s if self._believed() else 0.0
        if not self.hint_s and self.mistrust.value <= MISTRUST:
            gap_s = self.called_s
        habit = self.habits.get(self.kind, Mean(NEWEST))
        if not gap_s and habit.count >= REGULAR and self.surprise.value <= STEADY:
            gap_s = math.exp(habit.value - self.surprise.value)
        return self.since_ns + _nanoseconds(gap_s) if gap_s else None

    def _believed(self) -> bool:
        """Its hints were true so far, and it has not moved its return further and further away in this gap."""
        trusted = self.hint_s > 0 and self.mistrust.value <= MISTRUST
        return trusted and math.log(self.hint_s / self.shortest_s) <= MISTRUST


@dataclass(slots=True)
class KindFigures:
    """All sessions' gaps of one kind; ends and returns by how many turns the session had."""

    mean: Mean  # log gaps
    own_error: float = 0.0
    kind_error: float = 0.0
    ends: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    returns: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def ended(self, turns: int) -> None:
        """It is known of one more gap after so many turns whether the session returned."""
        at = _experience(turns)
        self.ends[at] += 1
        if self.ends[at] > KIND_ENDS:
            self.ends[at] /= 2
            self.returns[at] /= 2


class Forecast:
    """What all sessions together teach. Plain arithmetic; time by argument (monotonic nanoseconds).

    Cost  amortized O(log n) with n the sessions that ended a turn lately
    """

    def __init__(self) -> None:
        typical_s = {WaitKind.TOOL: 5.0, WaitKind.HUMAN: 60.0, WaitKind.UNKNOWN: 60.0}
        self._kinds = {
            kind: KindFigures(Mean(1 / KIND_GAPS, math.log(gap_s))) for kind, gap_s in typical_s.items()
        }
        self._awaited: list[tuple[int, int, Away]] = []  # until when, a tie break, who
        self._left = 0

    def returned(self, away: Away, arrived_ns: int) -> None:
        """A request begins that arrived then. Where the session was not idle no gap ends, and nothing is learned."""
        if not away.idle:
            away.gap_s = 0.0
            return
        away.idle = False
        log_gap = math.log(_clamped((arrived_ns - away.since_ns) / 1e9))
        figures, habit = self._kinds[away.kind], away.habits.setdefault(away.kind, Mean(NEWEST))
        if habit.count:
            guess = _blend(habit, figures.mean.value)
            figures.own_error += SKILL * (abs(guess - log_gap) - figures.own_error)
            figures.kind_error += SKILL * (abs(figures.mean.value - log_gap) - figures.kind_error)
            away.surprise.add(abs(habit.value - log_gap))
        figures.mean.add(log_gap)
        habit.add(log_gap)
        if said := [hint for hint in (away.shortest_s, away.hint_s, away.called_s) if hint]:
            away.mistrust.add(max(abs(log_gap - math.log(hint)) for hint in said))
        if not away.missing:
            figures.ended(away.turns)
        at = _experience(away.turns)
        figures.returns[at] = min(figures.returns[at] + 1, figures.ends[at])

    def left(self, away: Away, told: Told, now_ns: int) -> None:
        """The last request of a session ends: it is idle from now on, and expected back.

        Its own history counts only while it predicts better than the mean of the kind. A gap that rarely ends is
        taken as that much longer.
        """
        self._miss(now_ns)
        away.idle, away.since_ns, away.kind, away.turns = True, now_ns, told.kind, away.turns + 1
        away.hint_s, away.shortest_s, away.called_s, away.missing = 0.0, 0.0, 0.0, False
        self._hint(away, told, now_ns)
        figures, habit = self._kinds[told.kind], away.habits.get(told.kind, Mean(NEWEST))
        skilled = figures.own_error <= figures.kind_error
        log_gap = _blend(habit, figures.mean.value) if skilled else figures.mean.value
        at = _experience(away.turns)
        rate = (figures.returns[at] + BELIEVED) / (figures.ends[at] + BELIEVED)
        away.gap_s = _clamped(math.exp(log_gap) / rate)
        away.missed_ns = now_ns + _nanoseconds(STAYS_AWAY * _clamped(math.exp(log_gap)))
        self._left += 1
        heapq.heappush(self._awaited, (away.missed_ns, self._left, away))

    def _miss(self, now_ns: int) -> None:
        """Who has stayed away for long counts as one that did not return; who has just left does not yet."""
        while self._awaited and self._awaited[0][0] <= now_ns:
            missed_ns, _, away = heapq.heappop(self._awaited)
            if away.idle and away.missed_ns == missed_ns and not away.missing:
                away.missing = True
                self._kinds[away.kind].ended(away.turns)

    def told(self, away: Away, told: Told, now_ns: int) -> None:
        """More is known of the gap that an idle session is in. What `told` leaves open stays as it was said before."""
        if not away.idle:
            return
        if told.kind not in (away.kind, WaitKind.UNKNOWN):
            said = away.hint_s, away.shortest_s, away.called_s
            self.closed(away)  # an end of another kind: it is counted again
            away.turns -= 1
            self.left(away, Told(told.kind), away.since_ns)
            away.hint_s, away.shortest_s, away.called_s = said
        self._hint(away, told, now_ns)

    def taken_back(self, away: Away, now_ns: int) -> None:
        """The session goes on, somebody says, any moment now. That moves no key; it is held against what the gap takes,
        as all that was said of it before."""
        if away.idle:
            away.hint_s = 0.0
            away.called_s = away.called_s or _clamped((now_ns - away.since_ns) / 1e9)

    def _hint(self, away: Away, told: Told, now_ns: int) -> None:
        if told.gap_s is not None:
            away.hint_s = _clamped(told.gap_s + (now_ns - away.since_ns) / 1e9)
            away.shortest_s = min(away.shortest_s or away.hint_s, away.hint_s)

    def closed(self, away: Away) -> None:
        """The session says that it will not come back: that teaches nothing about those that stay away unsaid."""
        if away.idle and away.missing:
            ends = self._kinds[away.kind].ends
            at = _experience(away.turns)
            ends[at] = max(0.0, ends[at] - 1)
        away.idle = False


class Throughput:
    """How fast prompts are computed while others wait for that: a mean that forgets. Time by argument (nanoseconds).

    Whatever holds the queue up counts: tokens of answers, seats that are taken, tiers that are slow.
    """

    def __init__(self, tokens_per_s: float = TYPICAL_TOKENS_PER_S) -> None:
        """`tokens_per_s` is what is expected, and counts as seen for a tenth of a second. Without a `read` it stays."""
        self._tokens, self._spent_ns = tokens_per_s / 10, 1e8
        self._last: tuple[int, int] = (0, 0)
        self._pressed = False

    def read(self, tokens_total: int, now_ns: int, others_wait: bool) -> None:
        """Read the count of all prompt tokens computed so far. Those since a reading when others waited are learned."""
        if self._pressed:
            self._tokens += tokens_total - self._last[0]
            self._spent_ns += now_ns - self._last[1]
            if self._spent_ns > REMEMBERED_NS:
                self._tokens /= 2
                self._spent_ns /= 2
        self._last, self._pressed = (tokens_total, now_ns), others_wait

    def takes_ns(self, tokens: int) -> int:
        """How long so many tokens keep a queue waiting."""
        return int(tokens * self._spent_ns / max(1.0, self._tokens))


def moved(told_ns: int, start_ns: int, now_ns: int) -> bool:
    """Whether an expected start is to be told anew: it is off by over a quarter of the time until then."""
    return 4 * abs(start_ns - told_ns) > max(start_ns - now_ns, _nanoseconds(SHORTEST_S))


def _blend(habit: Mean, kind: float) -> float:
    """The session's own mean, the more the more it has seen, as far back as that mean remembers."""
    seen = min(habit.count, 1 / NEWEST)
    weight = seen / (seen + 1)
    return (1 - weight) * kind + weight * habit.value


def _experience(turns: int) -> int:
    """The class of a first turn, of an early one, of a later one."""
    return (turns > 1) + (turns > 3)


def _clamped(seconds: float) -> float:
    return max(SHORTEST_S, min(LONGEST_S, seconds))


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
