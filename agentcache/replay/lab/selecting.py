"""Which sessions of a trace a table is made of."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.namespaces import apart
from agentcache.replay.paged import Encode, LeftOut, Workload, page
from agentcache.replay.trace import Facts, Session

LONGEST_TOKENS, LONGEST_H = 400_000, 6.0


@dataclass(frozen=True, slots=True)
class Selection:
    """Units: tokens of the longest prompt or answer, hours from the first call to the end of the last, sessions; None:
    all.

    A child is replayed with its parent: it is left out where the parent is.
    """

    longest_tokens: int = LONGEST_TOKENS
    longest_h: float = LONGEST_H
    sessions: int | None = None

    def page(self, sessions: Iterable[Session], encode: Encode, name: str = "this trace") -> Workload:
        """Those that fit, of the first so many; no more are read. Models share nothing. `name` is for the error.

        Errors  CacheError(BAD_TRACE) also where none is left
        """
        workload = apart(page(self._first(sessions), encode, leave_out=self._why))
        if not workload.sessions:
            said = self.left_out(workload) or "it has none"
            raise CacheError(Kind.BAD_TRACE, f"no session of {name} can be replayed: {said}")
        return workload

    def left_out(self, workload: Workload) -> str:
        """What is not in a workload that this selection made, and why; "" if all is."""
        left = workload.left_out
        reasons = ", ".join(f"{one.sessions:,} {self._said(why)}" for why, one in left.items())
        sessions = sum(one.sessions for one in left.values())
        calls = sum(one.calls for one in left.values())
        tokens = sum(one.prompt_tokens for one in left.values())
        told = f"{tokens:,}" if tokens or not calls else "not told"
        what = f"sessions: {sessions:,}, calls: {calls:,}, prompt tokens: {told}"
        return f"left out ({what}): {reasons}" if left else ""

    def _said(self, why: LeftOut) -> str:
        return {
            LeftOut.NO_CALLS: "without calls",
            LeftOut.LONG_PROMPT: f"with a prompt or an answer over --longest-tokens {self.longest_tokens:,}",
            LeftOut.LONG_LIFE: f"longer than --longest-h {self.longest_h:g}",
            LeftOut.PARENT_LEFT_OUT: "below one of these",
            LeftOut.PARENT_UNKNOWN: "whose parent is not in the trace",
        }[why]

    def _first(self, sessions: Iterable[Session]) -> Iterator[Session]:
        for number, session in enumerate(sessions, 1):
            yield session
            if number == self.sessions:
                return

    def _why(self, calls: Sequence[Facts]) -> LeftOut | None:
        longest = max(max(one.prompt_tokens, one.output_tokens) for one in calls)
        if longest > self.longest_tokens:
            return LeftOut.LONG_PROMPT
        hours = sum((one.gap.seconds or 0.0) + (one.api_s or 0.0) for one in calls) / 3600
        return LeftOut.LONG_LIFE if hours > self.longest_h else None
