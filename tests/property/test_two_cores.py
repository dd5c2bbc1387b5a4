"""Every core against the reference core: the same operations, and no difference in any answer or state."""

import time
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from agentcache.tree.api import CoreConfig, Order, OrderBase
from agentcache.tree.reference.core import ReferenceCore
from agentcache.types import (
    Boundary,
    ComponentName,
    Evicted,
    Inserted,
    Job,
    MatchResult,
    Piece,
    SessionId,
    TierName,
    Wait,
    WaitState,
)
from tests.builders import CORES, MakeCore, all_kinds, config_of
from tests.driver import Driver
from tests.parity.oplog import History
from tests.parity.pair import PairCore
from tests.parity.shrink import shrink
from tests.property.marker_model import MarkerModel
from tests.property.order_model import OrderModel
from tests.property.session_rules import NAMES, CoreMachine
from tests.property.two_core_soak import Tally, episode, replay

OTHERS = [name for name in sorted(CORES) if name != "reference"] or ["reference"]
RANDOM_SECONDS = 25.0
MACHINE_EXAMPLES = 60
ORDERS = [
    (Order.LRU, OrderBase.LRU),
    (Order.ERT, OrderBase.LRU),
    *((Order.SESSION, base) for base in OrderBase),
]


class TwoCoreMachine(CoreMachine):
    """The core machine with more shapes, events and waits; its model of the order knows no waits."""

    reached: ClassVar[Counter[str]] = Counter()

    @initialize(
        kinds=st.sampled_from(all_kinds()),
        shape=st.sampled_from([(1, 1, 0), (4, 1, 0), (4, 2, 0), (2, 1, 2), (2, 4, 1), (1, 3, 2), (64, 1, 0)]),
        order=st.sampled_from(ORDERS),
        tiers=st.sampled_from([(0, False), (6, False), (6, True), (3, True), (12, True)]),
        slots=st.sampled_from([9, 18, 40]),
        start=st.tuples(
            st.lists(st.text("ab", min_size=4, max_size=6), min_size=1, max_size=4), st.booleans()
        ),
    )
    def build(
        self,
        kinds: str,
        shape: tuple[int, int, int],
        order: tuple[Order, OrderBase],
        tiers: tuple[int, bool],
        slots: int,
        start: tuple[list[str], bool],
    ) -> None:
        host, write_back = tiers
        more: dict[str, Any] = {
            "order": order[0],
            "base": order[1],
            "host_tier": host > 0,
            "emit_events": start[1],
            "max_markers": 3,
        }
        config = config_of(kinds, *shape, write_back=write_back, **more)
        self.driver = Driver(type(self).make_core(config), slots, host)
        self.driver.watch = self.after_each_call
        self.page = shape[0]
        self.keys, self.held, self.kept, self.published = [], [], [], []
        self.model, self.ranks = MarkerModel(config), OrderModel(config)
        self.populate(start[0])

    def make_room(self, component: ComponentName, tier: TierName, want: int) -> None:
        if self.driver.config.order is Order.ERT:
            self.driver.evict(component, want, tier)
        else:
            super().make_room(component, tier, want)

    @rule(
        session=NAMES,
        state=st.sampled_from(list(WaitState)),
        gap=st.sampled_from([0, 1, 5, 40]),
        hint=st.sampled_from([None, None, 0, 2, 8, 60]),
        seq=st.integers(0, 5),
        eta=st.sampled_from([None, None, 0, 5, 60]),
    )
    def expect(
        self, session: str, state: WaitState, gap: int, hint: int | None, seq: int, eta: int | None
    ) -> None:
        now = self.driver.tick()
        idle = state is WaitState.IDLE
        start = now + eta if eta is not None else None
        wait = Wait(state, now, now - gap if idle else 0, hint if idle else None, seq, start)
        before = self.driver.core.snapshot()
        self.driver.core.expect(SessionId(session), wait, now)
        assert self.driver.core.snapshot() == before


@pytest.mark.timeout(600)
@pytest.mark.parametrize("second", OTHERS)
def test_any_history_has_the_same_answers_on_both_cores(second: str) -> None:
    def pair(config: CoreConfig) -> PairCore:
        return PairCore(ReferenceCore(config), CORES[second](config))

    machine = type("TwoCoreMachine", (TwoCoreMachine,), {"make_core": staticmethod(pair)})
    run_state_machine_as_test(
        seed(20261129)(machine),
        settings=settings(
            max_examples=MACHINE_EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("second", OTHERS)
def test_random_histories_have_the_same_answers_on_both_cores(second: str) -> None:
    tally, number, until = Tally(), 0, time.monotonic() + RANDOM_SECONDS
    while time.monotonic() < until:
        number += 1
        history, why = episode(f"ci.{number}", ReferenceCore, CORES[second], tally)
        assert not why, f"{why}\n{history}"
    missing = {name for name in OPERATIONS if not tally.seen[name]}
    assert not missing, f"never done in {tally.steps} steps: {missing}"


OPERATIONS = {
    *("match", "peek", "insert", "lock", "relock", "unlock", "evict", "backup", "load", "commit"),
    *("reference", "release", "expect", "clear"),
    *("lock refused stale_boundary", "unlock refused lease_reused", "commit refused unknown_job"),
    *("insert refused bad_insert", "match refused unaligned", "clear refused in_use"),
    *("lock refused not_resident", "evict refused unknown_component"),
}


# -- faults that must be found


class TouchesTooMuch(ReferenceCore):
    """A peek counts as a use."""

    def peek(self, key: Any, limit: int) -> MatchResult:
        return self.match(key, limit, 0)


class EvictsMore(ReferenceCore):
    def evict(self, component: Any, tier: Any, want: int, room: Any, now_ns: int) -> Evicted:
        return super().evict(component, tier, want + (want > 3), room, now_ns)


class ForgetsPriority(ReferenceCore):
    def insert(self, key: Any, offer: Any, now_ns: int) -> Inserted:
        plain = type(offer)(offer.full, offer.pieces, offer.after, offer.tier)
        return super().insert(key, plain, now_ns)


class LandsLess(ReferenceCore):
    def commit(self, job: Job, landed: tuple[Piece, ...], now_ns: int) -> Any:
        return super().commit(job, landed[:3], now_ns)


class TakesStale(ReferenceCore):
    """Accepts a boundary whatever its epoch."""

    def lock(self, boundary: Boundary, now_ns: int) -> Any:
        current = Boundary(boundary.node, boundary.length, self.snapshot().epoch)
        return super().lock(current, now_ns)


class HearsNoHint(ReferenceCore):
    def expect(self, session: SessionId, wait: Wait, now_ns: int) -> None:
        super().expect(session, Wait(wait.state, wait.since_ns, wait.key_ns, None, wait.seq), now_ns)


FAULTY: list[MakeCore] = [TouchesTooMuch, EvictsMore, ForgetsPriority, LandsLess, TakesStale, HearsNoHint]


@pytest.mark.parametrize("faulty", FAULTY, ids=lambda core: core.__name__)
def test_a_faulty_core_is_found_and_the_history_that_shows_it_made_short(faulty: MakeCore) -> None:
    for number in range(400):
        history, why = episode(f"faulty.{number}", ReferenceCore, faulty, Tally())
        if why:
            break
    assert why, "the fault was not found"
    short = shrink(history, lambda tried: replay(tried, ReferenceCore, faulty), 10)
    assert replay(short, ReferenceCore, faulty)
    assert len(short.ops) <= 14, str(short)
    assert History.parse(str(short)) == short


def test_a_core_agrees_with_itself() -> None:
    for number in range(5):
        history, why = episode(f"same.{number}", ReferenceCore, ReferenceCore, Tally())
        assert not why, f"{why}\n{history}"
        assert not replay(history, ReferenceCore, ReferenceCore)


def test_episodes_come_back_from_their_seed() -> None:
    histories = [episode("again", ReferenceCore, ReferenceCore, Tally())[0] for _ in range(2)]
    assert histories[0] == histories[1]
