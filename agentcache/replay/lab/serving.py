"""What a replay asks of a cache, and how long the machine around it takes.

    arrive ─► (queue) ─► start ─► computed ─► finish ─► … ─► close

Whatever answers these calls can be replayed against: the real cache, or a bound that knows the future.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentcache.engine.scheduler import PrefillOrder
from agentcache.replay.paged import PagedCall
from agentcache.why import Why as Why

NANOSECONDS = 1_000_000_000
TOO_SHORT = "too_short"
"""Beside `Why`: a prompt that has no page, or chunk of a hybrid model, behind which a token is left to compute."""


@dataclass(frozen=True, slots=True)
class Machine:
    """How fast a worker is, in tokens a second.

    Without `queue` every prefill runs at once, as on a machine that is never the bottleneck; with it one runs after
    the other, in the order of the engine's own queue, and a request begins only when its pages fit beside those of what
    is running.
    """

    prefill: float = 10_000.0
    from_host: float = 200_000.0
    from_external: float = 40_000.0
    decode: float = 50.0
    queue: bool = False
    turns: PrefillOrder = PrefillOrder.FCFS

    def first_token_ns(self, call: PagedCall, found: "Found", page_tokens: int) -> int:
        """From its start to its first token."""
        cached = found.device + found.host + found.external
        seconds = (call.prompt_tokens - cached * page_tokens) / self.prefill
        seconds += found.host * page_tokens / self.from_host
        seconds += found.external * page_tokens / self.from_external
        return int(seconds * NANOSECONDS)

    def answer_ns(self, call: PagedCall) -> int:
        """From its first token to its last."""
        return int(call.output_tokens / self.decode * NANOSECONDS)


@dataclass(frozen=True, slots=True)
class Found:
    """What a call found when it started, in pages by tier; and why not more.

    `again`: pages behind that which had been computed before; `behind`: why the others are not there, which had not.
    """

    device: int = 0
    host: int = 0
    external: int = 0
    why: Why = Why.NOTHING
    again: int = 0
    behind: Why = Why.NOTHING

    @property
    def pages(self) -> int:
        return self.device + self.host + self.external

    @property
    def ended_by(self) -> str:
        """`why`, and apart from full hits: a prompt of which nothing may be reused."""
        return self.why.value if self.pages or self.why is not Why.NOTHING else TOO_SHORT


@dataclass(frozen=True, slots=True)
class Replayed:
    """One call as it went. Units: monotonic nanoseconds of the replay, pages."""

    call: PagedCall
    arrived_ns: int
    started_ns: int
    first_token_ns: int
    ended_ns: int
    found: Found


class Served(Protocol):
    """A cache under replay. Every call carries the moment; moments never go back.

    Caller       calls each call's arrive, start, computed and finish once and in this order, and none of a closed
                 session's; asks `start` again after it answered None, when something has finished
    Implementer  what has started and not finished keeps the pages of its path
    """

    def arrive(self, call: PagedCall, now_ns: int) -> None:
        """A call joins the queue."""

    def uncached(self, call: PagedCall) -> int:
        """How many pages of a waiting call's prompt would have to be computed now; changes nothing."""

    def expects(self, starts: Sequence[tuple[PagedCall, int]], now_ns: int) -> None:
        """When those that wait will start, as a cache-aware scheduler sees it."""

    def start(self, call: PagedCall, now_ns: int, must: bool) -> Found | None:
        """Take its prefix and room for its prompt; None: there is no room beside what is running.

        With `must` it starts in any case, and what finds no room is not kept.
        """

    def computed(self, call: PagedCall, now_ns: int) -> None:
        """Its prompt is computed: others may use it."""

    def finish(self, call: PagedCall, now_ns: int) -> None:
        """Its answer has ended; its session is idle, and what it keeps is open to eviction."""

    def close(self, session: int, now_ns: int) -> None:
        """Its client says that the session is over. Not called where clients do not say so."""
