"""How soon a piece is expected to be read again: the order `ert` (design §7, decisions/0009)."""

import heapq
from collections.abc import Iterator

from agentcache.tree.reference.arguments import saturated
from agentcache.tree.reference.node import Cell, Node
from agentcache.types import FULL, ComponentName, SessionId, Wait, WaitState

RELEASED, KEYED, AHEAD, OVERDUE, PENDING = range(5)
LANES = 5
"""The classes of pieces. Within each the order never changes with time, so each has a heap of its own."""

Standing = tuple[int, int]
"""Lane and value, smallest first within the lane."""


class Waits:
    """What sessions are doing, where they left off, and the standing that follows for each piece.

    Only hints run out: a piece that is ahead of its hint is overdue after four fifths of it. `advance` tells whose.
    Cost  `standing` O(sessions that reference the piece)
    """

    def __init__(self, unclaimed_ns: int) -> None:
        self.unclaimed_ns = unclaimed_ns
        self.now_ns = 0
        self.states: dict[SessionId, Wait] = {}
        self.tips: dict[SessionId, set[Node]] = {}
        self._due: list[tuple[int, SessionId]] = []  # when hints run out; void unless the wait still says so

    def put(self, session: SessionId, wait: Wait) -> None:
        self.states[session] = wait
        if _is_hinted(wait):
            heapq.heappush(self._due, (_runs_out(wait), session))
        if len(self._due) > 64 + 4 * len(self.states):
            self._due = [(_runs_out(at), name) for name, at in self.states.items() if _is_hinted(at)]
            heapq.heapify(self._due)

    def put_tips(self, session: SessionId, tips: set[Node]) -> set[Node]:
        """Where the session's markers end now; answers the pages where that changed. Without any, its wait goes."""
        before = self.tips.pop(session, set())
        if tips:
            self.tips[session] = tips
        else:
            self.states.pop(session, None)
        return before ^ tips

    def advance(self, now_ns: int) -> Iterator[SessionId]:
        """Move the order's time, which never goes back; answers the sessions whose hints ran out."""
        self.now_ns = max(self.now_ns, now_ns)
        while self._due and self._due[0][0] <= self.now_ns:
            due_ns, session = heapq.heappop(self._due)
            wait = self.states.get(session)
            if wait and _is_hinted(wait) and _runs_out(wait) == due_ns:
                yield session

    def standing(self, node: Node, name: ComponentName) -> Standing:
        """The lane of a piece at the order's time, and its value there."""
        cell = node.cells[name]
        if not cell.sessions:
            return self._nobodys(node, cell)
        if len(cell.sessions) > 1:
            return self._shared(node, name, cell)
        wait = self.states.get(next(iter(cell.sessions)))
        return self.alone(wait) if wait else (KEYED, cell.used_ns)

    def _nobodys(self, node: Node, cell: Cell) -> Standing:
        """Released, or left on a session's way and never matched since; else by its last use.

        Of what lies where no session is or was, less is known than of what sessions share.
        """
        page = node.cells[FULL]
        on_the_way = (len(page.sessions) == 1 or page.released) and not cell.hits
        if cell.released or on_the_way:
            return RELEASED, cell.used_ns
        if page.sessions or page.released:
            return KEYED, cell.used_ns
        return KEYED, saturated(cell.used_ns - self.unclaimed_ns)

    def alone(self, wait: Wait) -> Standing:
        """The piece of one session goes by what that session is doing."""
        if wait.state == WaitState.PENDING:
            return _queued(wait)
        if not _is_hinted(wait):
            return KEYED, wait.key_ns
        if self.now_ns < _runs_out(wait):
            return AHEAD, -saturated(wait.since_ns + _hint(wait))
        return OVERDUE, wait.since_ns

    def _shared(self, node: Node, name: ComponentName, cell: Cell) -> Standing:
        """Of several sessions the earliest one that is queued and ends here counts; else what idle ones noted."""
        queued = [
            wait
            for session in cell.sessions
            if (wait := self.states.get(session)) and wait.state == WaitState.PENDING
            if name != FULL or node in self.tips[session]
        ]
        if queued:
            return max(_queued(wait) for wait in queued)
        return KEYED, cell.noted_ns or cell.used_ns


def urgency(rank: tuple[int, ...], now_ns: int) -> tuple[int, ...]:
    """A rank (lane, value, ties …) among all lanes at one time, smallest goes first.

    What is released comes before, and the queue after, all that goes by its residual: the time until it is expected
    to be read, and of what is overdue a quarter of the time that it has waited.
    """
    lane, value, *ties = rank
    if lane == RELEASED:
        return (0, value, *ties)
    if lane == PENDING:
        return (2, value, *ties)
    residual4 = {KEYED: 4 * (now_ns - value), AHEAD: 4 * (-value - now_ns), OVERDUE: now_ns - value}[lane]
    return (1, -residual4, *ties)


def _queued(wait: Wait) -> Standing:
    """First come, first served; or by the start that the scheduler expects. The larger, the earlier."""
    return (PENDING, -wait.seq) if wait.eta_ns is None else (AHEAD, -wait.eta_ns)


def _is_hinted(wait: Wait) -> bool:
    return wait.state == WaitState.IDLE and wait.hint_ns is not None


def _hint(wait: Wait) -> int:
    return wait.hint_ns or 0


def _runs_out(wait: Wait) -> int:
    """The first time at which a hinted wait is overdue: five times what has passed is four times the hint."""
    return saturated(wait.since_ns + -(-4 * _hint(wait) // 5))
