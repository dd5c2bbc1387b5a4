"""A cache without end: what any order of eviction is measured against."""

from collections.abc import Sequence

import numpy as np

from agentcache.replay.lab.serving import Found, Why
from agentcache.replay.paged import PagedCall, Pages, Workload


class Stored:
    """Which pages were ever stored."""

    def __init__(self, workload: Workload) -> None:
        self._stored = np.zeros(len(workload.before), dtype=np.bool_)

    def add(self, pages: Pages) -> None:
        self._stored[pages] = True

    def leading(self, pages: Pages) -> int:
        """How many of these, from the first one on, were stored."""
        missing = np.flatnonzero(~self._stored[pages])
        return int(missing[0]) if len(missing) else len(pages)

    def why(self, call: PagedCall, hit: int) -> Why:
        """Why the hit of so many pages is not longer."""
        if hit >= call.reusable:
            return Why.NOTHING
        return Why.EVICTED if self._stored[call.prompt[hit]] else Why.NEVER_STORED


class Unbounded:
    """`Served` by all that was ever computed; nothing leaves, and there is room for everything."""

    def __init__(self, workload: Workload) -> None:
        self._stored = Stored(workload)

    def arrive(self, call: PagedCall, now_ns: int) -> None:
        """Nothing to do."""

    def uncached(self, call: PagedCall) -> int:
        return len(call.prompt) - self._hit(call)

    def expects(self, starts: Sequence[tuple[PagedCall, int]], now_ns: int) -> None:
        """Nothing to do."""

    def start(self, call: PagedCall, now_ns: int, must: bool) -> Found | None:
        hit = self._hit(call)
        return Found(device=hit, why=self._stored.why(call, hit))

    def computed(self, call: PagedCall, now_ns: int) -> None:
        self._stored.add(call.prompt)

    def finish(self, call: PagedCall, now_ns: int) -> None:
        self._stored.add(call.output)

    def close(self, session: int, now_ns: int) -> None:
        """Nothing to do."""

    def _hit(self, call: PagedCall) -> int:
        return self._stored.leading(call.prompt[: call.reusable])
