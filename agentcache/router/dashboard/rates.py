"""Where prompts' tokens came from over time, of all workers together, since somebody first looked."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import lt
from typing import Final

from agentcache.types import TierName

TIERS: Final = tuple(TierName)
KEPT: Final = 512
"""Moments that are kept; of more every second one is forgotten."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens that a worker has counted since its start: of prompts, and of these from each of `TIERS`."""

    prompt: int
    cached: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Moment:
    """What was counted until then since the first moment; seconds of any clock."""

    at_s: float
    prompt: float
    cached: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A stretch of time: which shares of its prompts' tokens came from `TIERS`; no prompts: no shares."""

    shares: tuple[float, ...]


class Rates:
    """Adds up what workers count. One that starts anew counts from 0 again, which takes nothing away."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._before: dict[str, Counted] = {}
        self._moments: list[Moment] = []

    def add(self, at_s: float, workers: Mapping[str, Counted]) -> None:
        """Workers that do not answer now are left out, and counted on when they do."""
        prompt, cached = self._so_far()
        for worker, now in workers.items():
            before = self._before.get(worker, now)
            if now.prompt < before.prompt or any(map(lt, now.cached, before.cached)):
                before = Counted(0, (0,) * len(TIERS))
            prompt += now.prompt - before.prompt
            cached = tuple(
                sum_ + max(0, new - old)
                for sum_, new, old in zip(cached, now.cached, before.cached, strict=True)
            )
            self._before[worker] = now
        self._moments.append(Moment(at_s, prompt, cached))
        if len(self._moments) > self._kept:
            self._moments = [*self._moments[:-1:2], self._moments[-1]]

    def forget(self, workers: set[str]) -> None:
        """Keep nothing of workers other than these."""
        for gone in self._before.keys() - workers:
            del self._before[gone]

    def moments(self) -> tuple[Moment, ...]:
        return tuple(self._moments)

    def _so_far(self) -> tuple[float, tuple[float, ...]]:
        if not self._moments:
            return 0.0, (0.0,) * len(TIERS)
        return self._moments[-1].prompt, self._moments[-1].cached


def columns(moments: Sequence[Moment], count: int) -> tuple[Column, ...]:
    """The time between the first and the last moment in so many equal stretches; none before there are two."""
    if len(moments) < 2:
        return ()
    first_s, last_s = moments[0].at_s, moments[-1].at_s
    edges = [_at(moments, first_s + (last_s - first_s) * number / count) for number in range(count + 1)]
    return tuple(_column(old, new) for old, new in pairwise(edges))


def _column(old: Moment, new: Moment) -> Column:
    prompt = new.prompt - old.prompt
    if prompt < 1:
        return Column(())
    return Column(
        tuple((after - before) / prompt for before, after in zip(old.cached, new.cached, strict=True))
    )


def _at(moments: Sequence[Moment], at_s: float) -> Moment:
    """What was counted until a time between two moments, taken as growing evenly."""
    after = min(len(moments) - 1, max(1, bisect_right(moments, at_s, key=lambda moment: moment.at_s)))
    old, new = moments[after - 1], moments[after]
    share = min(1.0, max(0.0, (at_s - old.at_s) / max(1e-9, new.at_s - old.at_s)))
    cached = tuple(a + (b - a) * share for a, b in zip(old.cached, new.cached, strict=True))
    return Moment(at_s, old.prompt + (new.prompt - old.prompt) * share, cached)
