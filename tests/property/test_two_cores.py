"""Every core against the reference core: the same operations, and no difference in any answer or state."""

import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test

from agentcache.tree.api import CoreConfig, Order, OrderBase
from agentcache.tree.reference.core import ReferenceCore
from agentcache.types import (
    Boundary,
    Evicted,
    Inserted,
    Job,
    MatchResult,
    Piece,
    SessionId,
    Wait,
)
from tests.builders import CORES, MakeCore, all_kinds
from tests.parity.oplog import History
from tests.parity.pair import PairCore
from tests.parity.shrink import shrink
from tests.property.core_machine import ORDERS
from tests.property.session_rules import CoreMachine
from tests.property.two_core_soak import Tally, episode, replay

OTHERS = [name for name in sorted(CORES) if name != "reference"] or ["reference"]
FOUND = sorted((Path(__file__).parents[1] / "parity" / "found").glob("*.txt"))
RANDOM_SECONDS = 20.0
RANDOM_EPISODES = 20
MACHINE_EXAMPLES = 80


class TwoCoreMachine(CoreMachine):
    """The core machine with more shapes: states off the grid of boundaries, chunks of several pages, more host."""

    reached: ClassVar[Counter[str]] = Counter()

    @initialize(
        kinds=st.sampled_from(all_kinds()),
        shape=st.sampled_from([(1, 1, 0), (4, 1, 0), (4, 2, 0), (2, 1, 2), (2, 4, 1), (1, 3, 2), (64, 1, 0)]),
        order=st.sampled_from(ORDERS),
        tiers=st.sampled_from([(0, False), (6, False), (6, True), (3, True), (12, True)]),
        slots=st.sampled_from([9, 18, 40]),
        paths=st.lists(st.text("ab", min_size=4, max_size=6), min_size=1, max_size=4),
    )
    def build(
        self,
        kinds: str,
        shape: tuple[int, int, int],
        order: tuple[Order, OrderBase],
        tiers: tuple[int, bool],
        slots: int,
        paths: list[str],
    ) -> None:
        super().build(kinds, shape, order, tiers, slots, paths)


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


@pytest.mark.timeout(600)
@pytest.mark.parametrize("second", OTHERS)
def test_random_histories_have_the_same_answers_on_both_cores(second: str) -> None:
    tally, number, until = Tally(), 0, time.monotonic() + RANDOM_SECONDS
    while number < RANDOM_EPISODES or time.monotonic() < until:
        number += 1
        history, why = episode(f"ci.{number}", ReferenceCore, CORES[second], tally)
        assert not why, f"{why}\n{history}"
    missing = {name for name in OPERATIONS if not tally.seen[name]}
    assert not missing, f"never done in {tally.steps} steps: {missing}"


@pytest.mark.parametrize("second", OTHERS)
@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.stem)
def test_a_history_that_once_showed_a_difference_shows_none(found: Path, second: str) -> None:
    history = History.parse(found.read_text(encoding="utf-8"))
    assert not replay(history, ReferenceCore, CORES[second])


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
    def evict(self, component: Any, tier: Any, want: int, *others: Any) -> Evicted:
        return super().evict(component, tier, want + (want > 3), *others)


class ForgetsPriority(ReferenceCore):
    def insert(self, key: Any, offer: Any, now_ns: int) -> Inserted:
        return super().insert(key, replace(offer, priority=0), now_ns)


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
    assert len(short.ops) <= 25, str(short)
    assert History.parse(str(short)) == short


def test_a_core_agrees_with_itself() -> None:
    for number in range(5):
        history, why = episode(f"same.{number}", ReferenceCore, ReferenceCore, Tally())
        assert not why, f"{why}\n{history}"
        short = replace(history, ops=history.ops[:150])
        assert not replay(short, ReferenceCore, ReferenceCore)


def test_episodes_come_back_from_their_seed() -> None:
    histories = [episode("again", ReferenceCore, ReferenceCore, Tally())[0] for _ in range(2)]
    assert histories[0] == histories[1]
