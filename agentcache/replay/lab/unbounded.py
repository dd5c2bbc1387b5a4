"""A cache without end: what any order of eviction is measured against."""

from collections.abc import Sequence

import numpy as np

from agentcache.engine.publish import PublishPolicy
from agentcache.replay.lab.history import Cut, History
from agentcache.replay.lab.parts import FULL_ONLY, Parts
from agentcache.replay.lab.publishing import cut_tokens
from agentcache.replay.lab.serving import Found
from agentcache.replay.paged import PagedCall, Workload


class Unbounded:
    """`Served` by all that was ever published; nothing leaves, and there is room for everything.

    Of a hybrid model the windows and states are where an engine publishes them, and vote.
    """

    def __init__(self, workload: Workload, parts: Parts = FULL_ONLY) -> None:
        self._history = History(workload, parts)
        self._page = page = workload.page_tokens
        self._hybrid = parts.hybrid
        self._policy = PublishPolicy(page, parts.grid(page), parts.specs(page), parts.every_chunks)
        self._begun: dict[tuple[int, int], tuple[int, int]] = {}  # the hit of those that run, and FULL's

    def arrive(self, call: PagedCall, now_ns: int) -> None:
        """Nothing to do."""

    def uncached(self, call: PagedCall) -> int:
        return len(call.prompt) - self._history.ever.deepest(call.prompt[: call.reusable])

    def expects(self, starts: Sequence[tuple[PagedCall, int]], now_ns: int) -> None:
        """Nothing to do."""

    def start(self, call: PagedCall, now_ns: int, must: bool) -> Found | None:
        ever, prompt = self._history.ever, call.prompt[: call.reusable]
        hit, full = ever.deepest(prompt), ever.leading(prompt)
        self._begun[call.key] = hit, full
        cut = Cut(full, ever.refusal(prompt, full - full % ever.grid))
        return self._history.found(call, (hit, 0, 0), cut)

    def computed(self, call: PagedCall, now_ns: int) -> None:
        hit, full = self._begun.pop(call.key)
        tokens = cut_tokens(call, self._page)
        ends: Sequence[int] = ()
        if self._hybrid:
            ends = self._policy.full(hit * self._page, tokens, tokens, full * self._page)
        self._keep(call, len(call.prompt), [end // self._page for end in ends])

    def finish(self, call: PagedCall, now_ns: int) -> None:
        grid = self._history.ever.grid
        ends = range(len(call.prompt) // grid * grid + grid, call.peak_pages + 1, grid)
        self._keep(call, call.peak_pages, ends if self._hybrid else ())

    def close(self, session: int, now_ns: int) -> None:
        self._history.closed(session)

    def _keep(self, call: PagedCall, pages: int, ends: Sequence[int]) -> None:
        path = np.concatenate((call.prompt, call.output))
        kept = path[: pages - pages % self._history.ever.grid]
        self._history.ever.keep(kept, ends)
        self._history.kept(call.session, kept, ends)
