"""The order `ert` by brute force: for every candidate its expected time until it is read again, from scratch.

It knows who references what from the marker model, and what sessions do from the calls alone. No heaps, no lanes:
residuals are fractions that are computed anew for every question.
"""

from collections.abc import Mapping
from fractions import Fraction

from agentcache.types import FULL, ComponentName, TierName, Wait, WaitState
from tests.oracle import Residency

Spot = tuple[str, tuple[int, ...], ComponentName]
Holders = Mapping[Spot, frozenset[str]]
Ends = Mapping[str, frozenset[tuple[str, tuple[int, ...]]]]
Turn = tuple[int, Fraction]
"""When a piece goes: in the first, second or third group, and within it the smallest number first."""


class WaitingModel:
    """Who holds each piece, where each session's markers end, what sessions wait for, and what was noted."""

    def __init__(self, unclaimed_ns: int) -> None:
        self.unclaimed_ns = unclaimed_ns
        self.waits: dict[str, Wait] = {}
        self.holders: Holders = {}
        self.ends: Ends = {}
        self._released: set[Spot] = set()
        self._noted: dict[Spot, int] = {}
        self._copies: set[tuple[Spot, TierName]] = set()

    def used(self, spot: Spot) -> None:
        self._released.discard(spot)

    def follow(self, holders: Holders, ends: Ends, places: Residency) -> None:
        """One call is over: copies that came are not released, pieces that lost their last session are."""
        copies = {((*at, name), tier) for at, held in places.items() for name, tier in held}
        self._released -= {spot for spot, _ in copies - self._copies}
        for spot, sessions in self.holders.items():
            if sessions and not holders.get(spot):
                self._released.add(spot)
                self._noted.pop(spot, None)
        self._released -= {spot for spot, now in holders.items() if now - self.holders.get(spot, frozenset())}
        self._released = {spot for spot in self._released if spot[:2] in places}
        self.holders, self.ends, self._copies = holders, ends, copies
        self.waits = {session: wait for session, wait in self.waits.items() if ends.get(session)}

    def expect(self, session: str, wait: Wait) -> None:
        """Sessions without markers are not remembered; idle ones leave a note, of several the latest counts."""
        if not self.ends.get(session):
            return
        self.waits[session] = wait
        for spot, sessions in self.holders.items():
            if wait.state is WaitState.IDLE and session in sessions:
                alone = len(sessions) == 1
                self._noted[spot] = wait.key_ns if alone else max(self._noted.get(spot, 0), wait.key_ns)

    def turn(self, spot: Spot, used: int, now: int, matched: bool) -> tuple[Turn, str]:
        """When this piece goes, and a word on why. `matched`: since its page is there."""
        sessions = self.holders.get(spot, frozenset())
        if not sessions and spot in self._released:
            return (0, Fraction(used)), "released"
        if not sessions:
            page = (*spot[:2], FULL)
            holders = len(self.holders.get(page, ()))
            if (page in self._released or holders == 1) and not matched:
                return (0, Fraction(used)), "on the way"
            if page in self._released or holders:
                return _behind(now, used), "on sessions' ways"
            return _behind(now, used - self.unclaimed_ns), "nobody's"
        queued = [
            wait
            for session in sessions
            if (wait := self.waits.get(session)) and wait.state is WaitState.PENDING
            if len(sessions) == 1 or spot[2] != FULL or spot[:2] in self.ends[session]
        ]
        in_line = [wait.seq for wait in queued if wait.eta_ns is None]
        shared = "shared " * (len(sessions) > 1)
        if in_line:
            return (2, Fraction(-min(in_line))), shared + "queued"
        if queued:
            starts = min(wait.eta_ns for wait in queued if wait.eta_ns is not None)
            return (1, Fraction(now - starts)), shared + "expected start"
        if shared:
            noted = self._noted.get(spot, 0)
            return _behind(now, noted or used), "shared noted" if noted else "shared used"
        return alone(self.waits.get(next(iter(sessions))), used, now)


def _behind(now: int, since: int) -> Turn:
    """The residual of what goes by a time in the past is how long that is ago."""
    return 1, Fraction(since - now)


def alone(wait: Wait | None, used: int, now: int) -> tuple[Turn, str]:
    if wait is None:
        return _behind(now, used), "said nothing"
    if wait.state is WaitState.RUNNING:
        return _behind(now, wait.key_ns), "running"
    if wait.hint_ns is None:
        return _behind(now, wait.key_ns), "idle"
    waited = now - wait.since_ns
    left, late = Fraction(wait.hint_ns - waited), Fraction(waited, 4)
    return (1, -max(left, late)), "ahead of its hint" if left > late else "overdue"
