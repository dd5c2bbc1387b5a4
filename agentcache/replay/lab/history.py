"""What a cache once had, to say why a call does not find it; one rule for all that is replayed against.

a call's prompt    |== hit ==|-- FULL goes on, a component's vote ended the hit --|-- FULL ends --|
                              window or checkpoint: kept here once, or never      evicted … never stored
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentcache.replay.lab.parts import FULL_ONLY, Parts
from agentcache.replay.lab.serving import Found
from agentcache.replay.paged import PagedCall, Pages, Workload
from agentcache.types import MissReason
from agentcache.why import CUTS, Why

Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]
NOBODY, NO_ROOM = -1, -2
NEW = (Why.NOTHING, Why.NEVER_STORED, Why.NAMESPACE, Why.PREFIX_CHANGED)
"""What is behind the hit had not been computed before, or was not asked for."""


@dataclass(frozen=True, slots=True)
class Cut:
    """FULL goes on for `full` pages; at the deepest of them that could be a boundary a component's vote refused."""

    full: int
    reason: MissReason | None = None


class Ever:
    """All that was ever kept: pages, and of hybrid models the windows and states at boundaries."""

    def __init__(self, workload: Workload, parts: Parts = FULL_ONLY) -> None:
        ids, page_tokens = len(workload.before), workload.page_tokens
        self.grid = parts.grid(page_tokens) // page_tokens
        self._hybrid, self._states = parts.hybrid, parts.states
        self._window = -(-parts.window // page_tokens)
        self._pages = np.zeros(ids, dtype=np.bool_)
        self._in_window = np.zeros(ids if parts.window else 0, dtype=np.bool_)
        self._has_state = np.zeros(ids if parts.states else 0, dtype=np.bool_)

    def keep(self, path: Pages, boundaries: Iterable[int] = ()) -> None:
        """These leading pages of a path were kept, with what is needed to go on at these of its boundaries."""
        self._pages[path] = True
        for end in boundaries if self._hybrid else ():
            if self._window:
                self._in_window[path[max(0, end - self._window) : end]] = True
            if self._states:
                self._has_state[path[end - 1]] = True

    def leading(self, pages: Pages) -> int:
        """How many of these, from the first one on, were kept."""
        missing = np.flatnonzero(~self._pages[pages])
        return int(missing[0]) if len(missing) else len(pages)

    def deepest(self, prompt: Pages) -> int:
        """How many of these pages could be reused if nothing had left."""
        full = self.leading(prompt)
        if not self._hybrid:
            return full
        ends = np.arange(self.grid, full + 1, self.grid, dtype=np.int64)
        votes = ends[~self._gaps(prompt, ends) & self._checkpoints(prompt, ends)]
        return int(votes[-1]) if len(votes) else 0

    def refusal(self, prompt: Pages, end: int) -> MissReason | None:
        """The first component without what a boundary here needs."""
        if not self._hybrid or not end:
            return None
        at = np.array([end], dtype=np.int64)
        if self._gaps(prompt, at)[0]:
            return MissReason.WINDOW_GAP
        return None if self._checkpoints(prompt, at)[0] else MissReason.NO_CHECKPOINT

    def _gaps(self, prompt: Pages, ends: Numbers) -> Flags:
        """Whether a page of the window before each of these ends is missing."""
        if not self._window:
            return np.zeros(len(ends), dtype=np.bool_)
        missing = np.concatenate(([0], np.cumsum(~self._in_window[prompt])))
        is_short: Flags = missing[ends] > missing[np.maximum(0, ends - self._window)]
        return is_short

    def _checkpoints(self, prompt: Pages, ends: Numbers) -> Flags:
        if not self._states:
            return np.ones(len(ends), dtype=np.bool_)
        return self._has_state[prompt[ends - 1]]


class History:
    """What became of the pages of a replay. Cost: O(pages of the call) for each of its calls.

    `ever` is kept for what votes; of full attention alone whoever asks it keeps it.
    """

    def __init__(self, workload: Workload, parts: Parts = FULL_ONLY) -> None:
        self.ever = Ever(workload, parts)
        self._votes = parts.hybrid
        self._user = np.full(len(workload.before), NOBODY, dtype=np.int32)  # the last session that had a page
        self._users = self._user.data  # the same, to read one by one
        self._closed: set[int] = set()
        self._content = workload.content
        self._said = np.zeros(len(workload.content) and int(workload.content.max()) + 1, dtype=np.bool_)

    def kept(self, session: int, path: Pages, boundaries: Iterable[int] = ()) -> None:
        """A call of this session has put, or found, these leading pages of its path into the cache."""
        if self._votes:
            self.ever.keep(path, boundaries)
        self._user[path] = session
        if len(self._content):
            self._said[self._content[path]] = True

    def found_no_room(self, pages: Pages) -> None:
        """These were computed, and are not in the cache."""
        self._user[pages] = NO_ROOM

    def closed(self, session: int) -> None:
        self._closed.add(session)

    def found(self, call: PagedCall, tiers: tuple[int, int, int], cut: Cut | None = None) -> Found:
        """With so many pages of device, host and external tier: why not more, and what of it is computed again.

        Cost  O(log pages) beside `why`: nobody has computed what is behind a page that nobody has
        """
        hit = sum(tiers)
        why = self.why(call, hit, cut)
        if why in NEW:
            return Found(*tiers, why, 0, why)
        user, prompt = self._users, call.prompt.data
        known = bisect_left(range(call.reusable), True, hit, key=lambda at: user[prompt[at]] == NOBODY)
        behind = self._new(call, known) if known < call.reusable else Why.NOTHING
        return Found(*tiers, why, known - hit, behind)

    def why(self, call: PagedCall, hit: int, cut: Cut | None = None) -> Why:
        """Why the hit of `hit` pages is not longer. `cut` None: only FULL counts."""
        grid = self.ever.grid
        if hit >= call.reusable - call.reusable % grid:
            return Why.NOTHING
        full = max(hit, cut.full) if cut else hit
        if cut and cut.reason and cut.reason in CUTS and hit < full - full % grid:
            never, evicted = CUTS[cut.reason]
            return evicted if self.ever.deepest(call.prompt[:full]) > hit else never
        at = full if full < call.reusable else hit
        user = int(self._user[call.prompt[at]])
        if user == NOBODY:
            return self._new(call, at)
        if user == NO_ROOM:
            return Why.NO_ROOM
        return Why.CLOSED if user in self._closed else Why.EVICTED

    def _new(self, call: PagedCall, at: int) -> Why:
        """Why nobody has computed this page."""
        if len(self._content) and self._said[self._content[call.prompt[at]]]:
            return Why.NAMESPACE
        return Why.NEVER_STORED if call.extends else Why.PREFIX_CHANGED
