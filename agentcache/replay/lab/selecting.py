"""Which sessions of a trace a table is made of."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from agentcache.replay.trace import Session


@dataclass(frozen=True, slots=True)
class Selection:
    """Units: tokens of the longest prompt, hours from the first call to the end of the last, sessions.

    A child is replayed with its parent: it is left out where the parent is.
    """

    longest_tokens: int = 400_000
    longest_h: float = 6.0
    sessions: int | None = None

    def choose(self, sessions: Iterable[Session]) -> Iterator[Session]:
        """Those that fit, the first so many; lazily."""
        return islice(self._fitting(sessions), self.sessions)

    def _fitting(self, sessions: Iterable[Session]) -> Iterator[Session]:
        left_out: set[str] = set()
        for session in sessions:
            if session.among.parent in left_out or not self._fits(session):
                left_out.add(session.name)
            else:
                yield session

    def _fits(self, session: Session) -> bool:
        facts = [call.facts for call in session.calls]
        hours = sum((one.gap.seconds or 0.0) + (one.api_s or 0.0) for one in facts) / 3600
        longest = max((one.prompt_tokens for one in facts), default=0)
        return longest <= self.longest_tokens and hours <= self.longest_h
