"""How long a session will be away: learned gaps, return rates, and hints that are trusted while they are true.

A gap is the time from the end of a session's last request to its next arrival. Log gaps are what is averaged: gaps are
spread over many orders of magnitude. The order `ert` turns the forecast into a key (decisions/0009).
"""

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

MISTRUST = 1.5
"""A session's hints count while they are off by less than this in natural logarithm, a factor of 4.5."""


class WaitKind(StrEnum):
    """Whom a session waits for."""

    TOOL = "tool"
    HUMAN = "human"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Told:
    """What a client or an engine says at the end of a turn: whom it waits for, and for how long (seconds)."""

    kind: WaitKind = WaitKind.UNKNOWN
    gap_s: float | None = None


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
    gap_s: float = 0.0  # what this gap is expected to take
    hint_s: float | None = None
    habits: dict[WaitKind, Mean] = field(default_factory=dict)  # log gaps
    mistrust: Mean = field(default_factory=lambda: Mean(NEWEST))  # how far its hints were off

    def wait(self) -> Wait:
        """The idle session as the order sees it."""
        key_ns = self.since_ns - _nanoseconds(self.gap_s)
        believed = self.hint_s is not None and self.mistrust.value <= MISTRUST
        hint_ns = _nanoseconds(self.hint_s or 0) if believed else None
        return Wait(WaitState.IDLE, self.since_ns, key_ns, hint_ns)


@dataclass(slots=True)
class KindFigures:
    """All sessions' gaps of one kind; ends and returns by how many turns the session had."""

    mean: Mean  # log gaps
    own_error: float = 0.0
    kind_error: float = 0.0
    ends: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    returns: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])


class Forecast:
    """What all sessions together teach. Plain arithmetic, O(1) each; time by argument (monotonic nanoseconds)."""

    def __init__(self) -> None:
        typical_s = {WaitKind.TOOL: 5.0, WaitKind.HUMAN: 60.0, WaitKind.UNKNOWN: 60.0}
        self._kinds = {
            kind: KindFigures(Mean(1 / KIND_GAPS, math.log(gap_s))) for kind, gap_s in typical_s.items()
        }

    def returned(self, away: Away, arrived_ns: int) -> None:
        """A request begins that arrived then. Nothing to learn unless the session was idle."""
        if not away.idle:
            return
        away.idle = False
        log_gap = math.log(_clamped((arrived_ns - away.since_ns) / 1e9))
        figures, habit = self._kinds[away.kind], away.habits.setdefault(away.kind, Mean(NEWEST))
        if habit.count:
            guess = _blend(habit, figures.mean.value)
            figures.own_error += SKILL * (abs(guess - log_gap) - figures.own_error)
            figures.kind_error += SKILL * (abs(figures.mean.value - log_gap) - figures.kind_error)
        figures.mean.add(log_gap)
        habit.add(log_gap)
        if away.hint_s is not None:
            away.mistrust.add(abs(log_gap - math.log(away.hint_s)))
        at = _experience(away.turns)
        figures.returns[at] = min(figures.returns[at] + 1, figures.ends[at])

    def left(self, away: Away, told: Told, now_ns: int) -> None:
        """The last request of a session ends: it is idle from now on, and expected back.

        Its own history counts only while it predicts better than the mean of the kind. A gap that rarely ends is
        taken as that much longer.
        """
        away.idle, away.since_ns, away.kind, away.turns = True, now_ns, told.kind, away.turns + 1
        away.hint_s = None if told.gap_s is None else _clamped(told.gap_s)
        figures, habit = self._kinds[told.kind], away.habits.get(told.kind, Mean(NEWEST))
        at = _experience(away.turns)
        figures.ends[at] += 1
        if figures.ends[at] > KIND_ENDS:
            figures.ends[at] /= 2
            figures.returns[at] /= 2
        skilled = figures.own_error <= figures.kind_error
        log_gap = _blend(habit, figures.mean.value) if skilled else figures.mean.value
        rate = (figures.returns[at] + 2) / (figures.ends[at] + 2)
        away.gap_s = _clamped(math.exp(log_gap) / rate)

    def closed(self, away: Away) -> None:
        """The session says that it will not come back: that teaches nothing about those that stay away unsaid."""
        if away.idle:
            ends = self._kinds[away.kind].ends
            at = _experience(away.turns)
            ends[at] = max(0.0, ends[at] - 1)
            away.idle = False


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
