"""Any history of requests: what is said of a hit is true of what was in the tree, page by page."""

from collections import Counter
from functools import partial
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from agentcache.cache import ActiveTurn
from agentcache.tree.api import Order
from agentcache.types import FULL, Tokens
from agentcache.why import CUTS, Why
from tests.property.cache_rules import GRID, PAGE, CacheMachine
from tests.property.reaching import reach

WAS_THERE = {Why.EVICTED, Why.CLOSED, Why.FLUSHED}
NEVER_THERE = {Why.NEVER_STORED, Why.PREFIX_CHANGED}
NEVER_CUT, CUT_SINCE = (set(reasons) for reasons in zip(*CUTS.values(), strict=True))
RARE = {f"told {why}" for why in WAS_THERE | NEVER_THERE | {Why.NOTHING, Why.WINDOW_GAP, Why.WINDOW_EVICTED}}
"""A window is gone before the state at its end is."""
Place = tuple[str, tuple[int, ...]]
"""A namespace, and the tokens of a path up to the end of a page."""


class Told(CacheMachine):
    """The facade's machine beside a list of all that was ever in the tree, and where turns have stood."""

    reached: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.there: set[Place] = set()
        self.stood: dict[int, set[Place]] = {}
        self.judged: set[int] = set()

    def verify(self, turn: ActiveTurn, tokens: Tokens) -> None:
        super().verify(turn, tokens)
        if turn.number not in self.judged and turn.prompt.reuse:
            self.judge(turn)
        self.judged.add(turn.number)
        self.look()
        self.stood.setdefault(turn.number, set()).add(self.place(turn, turn.boundary_tokens))

    @invariant()
    def look(self) -> None:
        for page in self.cache._core.snapshot().pages:
            if any(component == FULL for component, _, _ in page.slots):
                self.there.add((page.namespace, page.path))

    def judge(self, turn: ActiveTurn) -> None:
        """A turn that has just begun: its reason, against what was there before."""
        found, hit = turn.found, turn.boundary_tokens
        self.reached[f"told {found.why}"] += 1
        limit = min(turn.prompt.limit, len(turn.path))
        assert (found.why is Why.NOTHING) == (hit >= limit - limit % GRID)
        page = self.place(turn, found.at - found.at % PAGE + PAGE)
        if found.why in WAS_THERE:
            assert page in self.there
        elif found.why in NEVER_THERE:
            assert page not in self.there
        elif found.why in NEVER_CUT | CUT_SINCE:
            running = {other.number for other in self.turns}
            ends = {
                self.place(turn, end) for end in range(hit - hit % GRID + GRID, turn.full_tokens + 1, GRID)
            }
            since = [bool(ends & places) for number, places in self.stood.items() if number not in running]
            assert (found.why in CUT_SINCE) == any(since)

    def place(self, turn: ActiveTurn, end: int) -> Place:
        tokens = self.path(turn)[:end] if end > len(turn.prompt.tokens) else turn.prompt.tokens[:end]
        return turn.prompt.namespace.digest().hex(), tuple(tokens.tolist())


def run(order: Order, number: int) -> None:
    machine = type("Told", (Told,), {"order": order})
    run_state_machine_as_test(
        seed(number)(machine),
        settings=settings(
            max_examples=60,
            stateful_step_count=50,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("order", [Order.SESSION, Order.ERT])
def test_what_is_said_of_a_hit_is_true(order: Order) -> None:
    reach(partial(run, order), Told.reached, RARE)
