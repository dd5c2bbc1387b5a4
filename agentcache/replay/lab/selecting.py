"""Which sessions of a trace a table is made of."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentcache.replay.paged import Encode, PagedCall, Workload, page
from agentcache.replay.trace import Session


@dataclass(frozen=True, slots=True)
class Selection:
    """Units: tokens of the longest prompt, hours from the first call to the end of the last, sessions; None: all.

    A child is replayed with its parent: it is left out where the parent is.
    """

    longest_tokens: int = 400_000
    longest_h: float = 6.0
    sessions: int | None = None

    def page(self, sessions: Iterable[Session], encode: Encode) -> Workload:
        """Those that fit, the first so many; no more are read."""
        return page(self._first(sessions), encode, fits=self._fits)

    def _first(self, sessions: Iterable[Session]) -> Iterator[Session]:
        for number, session in enumerate(sessions, 1):
            yield session
            if number == self.sessions:
                return

    def _fits(self, calls: Sequence[PagedCall]) -> bool:
        hours = sum((call.gap_s or 0.0) + (call.facts.api_s or 0.0) for call in calls) / 3600
        return max(call.prompt_tokens for call in calls) <= self.longest_tokens and hours <= self.longest_h
