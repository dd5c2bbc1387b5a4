"""The last turns of each session, and of each the reason why its hit was not longer.

begins ──► found: what ended the hit          a prompt   |== hit ==|-- FULL goes on --|-- FULL has ended --|
ends   ──► finished: whose its pages are now             reusable   a component's vote  whose was the next page?
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

from agentcache.keys import Key
from agentcache.paths import Paths
from agentcache.remembered import (
    FLUSHED,
    NO_ROOM,
    PAGES,
    UNSURE,
    Owner,
    PathNumbers,
    Remembered,
    shared_tokens,
)
from agentcache.stats import CachedTokens
from agentcache.tree.api import UnifiedTreeCore
from agentcache.turns import ActiveTurn
from agentcache.types import FULL, MissReason, SessionId
from agentcache.why import CUTS, Finding, Why

TURNS: Final = 32
SESSIONS: Final = 2048
"""Sessions whose turns are remembered, those that were served last."""


@dataclass(frozen=True, slots=True)
class SeenTurn:
    """One turn as it began. `at_ns` is monotonic."""

    at_ns: int
    generation: int
    prompt_tokens: int
    cached: CachedTokens
    finding: Finding


@dataclass(slots=True)
class _Log:
    """Of one session. `flushes`: how often the cache had been emptied when its last turn ended."""

    turns: deque[SeenTurn] = field(default_factory=lambda: deque(maxlen=TURNS))
    owner: Owner = field(default_factory=Owner)
    flushes: int = 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where FULL ended, and what the session's turn before had: `shared` leading tokens of its path `before`."""

    at: int
    number: int
    before: Key | None
    shared: int
    changed_at: int | None


class TurnHistory:
    """What became of turns. Only what is certain is said.

    Whether pages were here, and whose, is known of those used last (`Remembered`); what a session's own turn before
    had, from its path. Another tenant's pages have other numbers, so nobody learns of them.

    Cost  of a turn: about 3 ns a token of its prompt; no look at the tree but where something found no room
    """

    def __init__(
        self, core: UnifiedTreeCore, paths: Paths, sessions: int = SESSIONS, pages: int = PAGES
    ) -> None:
        self._core = core
        self._paths = paths
        self._most = sessions
        self._page_tokens, self._grid = core.config.page_tokens, core.config.grid
        self._numbers = PathNumbers(self._page_tokens)
        self._remembered = Remembered(pages)
        self._running: dict[int, list[int]] = {}
        self._logs: OrderedDict[SessionId, _Log] = OrderedDict()
        self._nobody = Owner()
        self._flushes = 0

    def found(self, turn: ActiveTurn, now_ns: int) -> Finding:
        """What ended the hit of a turn that goes on from its boundary now; noted for its session."""
        ticket = turn.ticket
        finding = Finding(Why.REUSE_OFF)
        if turn.prompt.reuse:
            self._running[turn.number] = self._numbers.of(turn.path)
            finding = self._ended(turn, self._running[turn.number])
        if ticket.session:
            seen = SeenTurn(now_ns, ticket.generation, len(turn.prompt.tokens), turn.cached, finding)
            log = self._log(ticket.session)
            log.turns.appendleft(seen)
            if ticket.registers and log.owner.why is Why.CLOSED:
                log.owner = Owner()
        return finding

    def finished(self, turn: ActiveTurn) -> None:
        """A turn is over: what it leaves in the cache was its session's last."""
        known = self._running.pop(turn.number, [])
        if not turn.prompt.reuse:
            return
        numbers, session, page = self._numbers.of(turn.path, known), turn.ticket.session, self._page_tokens
        owner = self._nobody
        if session:
            log = self._log(session)
            owner, log.flushes = log.owner, self._flushes
        ends = (numbers[end // page - 1] for end in (*turn.published, turn.boundary_tokens) if end)
        self._remembered.keep(numbers[: turn.boundary_tokens // page], owner, ends)
        end = len(turn.prompt.tokens) - len(turn.prompt.tokens) % self._grid
        if turn.refused and turn.boundary_tokens < end:
            there = self._core.peek(turn.path, end).full_tokens
            self._remembered.keep(numbers[there // page : end // page], NO_ROOM)

    def closed(self, session: SessionId) -> None:
        """What leaves of what the session had last leaves for that."""
        if session in self._logs:
            self._logs[session].owner.why = Why.CLOSED

    def flushed(self, wholly: bool) -> None:
        """The cache was emptied, or a part of it was."""
        self._flushes += 1
        self._remembered.emptied(FLUSHED if wholly else UNSURE)

    def turns(self, session: SessionId) -> tuple[SeenTurn, ...]:
        """The session's last turns, newest first; at most `TURNS`."""
        return tuple(self._logs[session].turns) if session in self._logs else ()

    # inside

    def _log(self, session: SessionId) -> _Log:
        log = self._logs.setdefault(session, _Log())
        self._logs.move_to_end(session)
        if len(self._logs) > self._most:
            self._logs.popitem(last=False)
        return log

    def _ended(self, turn: ActiveTurn, numbers: list[int]) -> Finding:
        page, grid, miss = self._page_tokens, self._grid, turn.miss
        before = self._paths.of(turn.ticket.session) if turn.ticket.session else None
        shared, changed_at = _compared(turn, before)
        hit, limit = turn.boundary_tokens, max(0, min(turn.prompt.limit, len(turn.path)))
        if hit >= limit - limit % grid:
            return Finding(changed_at=changed_at)
        full = max(hit, turn.full_tokens)
        if miss and miss.reason in CUTS and hit < full - full % grid:
            never, evicted = CUTS[miss.reason]
            ends = range(hit - hit % grid + grid, full + 1, grid)
            was_there = any(self._remembered.was_end(numbers[end // page - 1]) for end in ends)
            return Finding(evicted if was_there else never, miss.component, miss.position, changed_at)
        if miss and miss.reason is not MissReason.NOT_CACHED and hit < full - full % grid:
            why = Why.ON_HOST if miss.reason is MissReason.ON_HOST else Why.UNKNOWN
            return Finding(why, miss.component, miss.position, changed_at)
        at = full if full < limit else hit
        place = _Place(at, numbers[at // page], before, shared, changed_at)
        return self._gone(turn, place)

    def _gone(self, turn: ActiveTurn, place: _Place) -> Finding:
        """Why the page behind all that FULL has is not there."""
        end, before = place.at + self._page_tokens, place.before
        had = place.shared >= end
        same = bool(before and before.namespace == turn.prompt.namespace)
        owner = self._remembered.owner(place.number)
        if owner:
            mine = owner.why is Why.CLOSED and had and same
            return Finding(Why.EVICTED if mine else owner.why, FULL, place.at, place.changed_at)
        if had:
            why = self._own_gone(turn) if same else Why.NAMESPACE
        elif place.changed_at is not None and place.at <= place.changed_at < end:
            return Finding(Why.PREFIX_CHANGED, FULL, place.changed_at, place.changed_at)
        else:
            unsure = not before and self._remembered.forgot
            why = Why.UNKNOWN if unsure else Why.NEVER_STORED
        return Finding(why, FULL, place.at, place.changed_at)

    def _own_gone(self, turn: ActiveTurn) -> Why:
        """Of a page that the session's turn before had, and that is not remembered for itself."""
        log = self._logs.get(turn.ticket.session or SessionId(""))
        if not log:
            return Why.UNKNOWN
        return Why.EVICTED if log.flushes == self._flushes else Why.FLUSHED


def _compared(turn: ActiveTurn, before: Key | None) -> tuple[int, int | None]:
    """How many tokens a prompt shares with a path, and the first that differs."""
    if not before:
        return 0, None
    tokens = turn.prompt.tokens
    shared = shared_tokens(tokens, before.tokens)
    return shared, shared if shared < min(len(tokens), len(before)) else None
