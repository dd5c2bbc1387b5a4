"""The running batch: which requests share one working memory, and how they join and leave it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agentcache.engine.rows import Rows, merge

LEAST_ROWS = 4
WASTE = 4


@dataclass(slots=True, eq=False)
class RequestState:
    """What one request has computed: its row in some working memory. Made by `new_state`, opaque to callers.

    `tokens` is kept only by models that recompute everything.
    """

    rows: Rows
    row: int = 0
    tokens: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens so far."""
        return self.rows.length(self.row) + len(self.tokens)


class DecodeBatch:
    """Requests whose rows share one memory, in row order. Joining copies one row in; leaving moves one row."""

    def __init__(self) -> None:
        self._members: list[RequestState] = []

    def assemble(self, states: Sequence[RequestState]) -> None:
        """Make the batch consist of exactly `states`, in any order of rows."""
        for member in [member for member in self._members if member not in states]:
            self.separate(member)
        joining = [state for state in states if state not in self._members]
        if joining or self._wasteful():
            self._join(joining)

    def _wasteful(self) -> bool:
        """More than a quarter of the memory is padding in every row: the longest requests have left."""
        rows = self._members[0].rows
        return min(rows.pads) > rows.end // WASTE

    def _join(self, joining: list[RequestState]) -> None:
        members = self._members + joining
        if self._members and not self._wasteful() and self._fits(joining):
            rows = self._members[0].rows
            for state in joining:
                rows.join(state.rows, state.row)
        else:
            capacity = max(LEAST_ROWS, 1 << (len(members) - 1).bit_length())
            rows = merge([(state.rows, state.row) for state in members], capacity)
        self._settle(members, rows)

    def _fits(self, joining: list[RequestState]) -> bool:
        rows = self._members[0].rows
        return len(self._members) + len(joining) <= rows.capacity and all(
            state.length <= rows.end for state in joining
        )

    def _settle(self, members: list[RequestState], rows: Rows) -> None:
        self._members = members
        for row, state in enumerate(members):
            state.rows, state.row = rows, row

    def separate(self, state: RequestState) -> None:
        """Give a batched state its own memory again."""
        if state in self._members:
            alone = merge([(state.rows, state.row)], row_capacity=1)
            self.leave(state)
            state.rows, state.row = alone, 0

    def leave(self, state: RequestState) -> None:
        """Forget a member; the last row takes its number. Does nothing for a state that runs alone."""
        if state not in self._members:
            return
        rows = state.rows
        rows.leave(state.row)
        last = self._members.pop()
        if last is not state:
            self._members[state.row] = last
        self._settle(self._members, rows)
