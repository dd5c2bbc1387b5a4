"""Any history of operations on any core: the law after each step, everything back at the end, and the rare reached."""

import os

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from agentcache.tree.api import Order, OrderBase
from agentcache.types import Wait
from tests.builders import CORES, HOME, all_kinds
from tests.property.core_machine import LETTERS, PICK, SEEDS
from tests.property.reaching import reach
from tests.property.session_rules import TIMES, WAITS, CoreMachine

EXAMPLES = int(os.environ.get("AGENTCACHE_MACHINE_EXAMPLES", "120"))
RARE = {
    "clear",
    "closed before its first turn",
    "close after reopen",
    "demotion dropped",
    "demotion landed",
    "double close",
    "drop took data",
    "early release",
    "empty commit",
    "eviction under a marker",
    "fenced",
    "first turn of a fork",
    "fork under a lease",
    "fork under a marker",
    "forked",
    "graft",
    "graft without ground",
    "late completion",
    "late job",
    "left marker",
    "left out of a backup",
    "load",
    "parallel turns",
    "partial commit",
    "refused in_use",
    "refused lease_reused",
    "refused stale_boundary",
    "refused unknown_job",
    "reopened",
    "revival",
    "victim as ranked",
    "way was made",
}


WAITED_FOR = {  # why a piece is the first to go; `test_ert_scan.py` meets them all
    "ert: ahead of its hint",
    "ert: expected start",
    "ert: idle",
    "ert: nobody's",
    "ert: on sessions' ways",
    "ert: on the way",
    "ert: overdue",
    "ert: queued",
    "ert: released",
    "ert: running",
    "ert: said nothing",
    "ert: shared expected start",
    "ert: shared noted",
    "ert: shared queued",
    "ert: shared used",
}


class ErtMachine(CoreMachine):
    """Nothing but the order `ert`: no host, so that every victim is judged; small pools, and paths that meet."""

    backup = load = commit = demote = clear = lock_an_old_boundary = relock = unlock_early = None  # type: ignore[assignment]
    back_up_what_fits = None  # type: ignore[assignment]

    @initialize(
        kinds=st.sampled_from(all_kinds()),
        shape=st.sampled_from([(1, 1, 0), (4, 2, 0)]),
        slots=st.sampled_from([9, 14]),
        paths=st.lists(st.text("ab", min_size=2, max_size=3), min_size=1, max_size=2),
        began=st.sampled_from([0, 500]),
    )
    def build(
        self, kinds: str, shape: tuple[int, int, int], slots: int, paths: list[str], began: int
    ) -> None:
        super().build(kinds, shape, (Order.ERT, OrderBase.LRU), (0, False), slots, paths)
        self.driver.now += began

    @rule(letters=LETTERS, seed=SEEDS, words=st.tuples(WAITS, WAITS), since=TIMES, which=PICK)
    def share(self, letters: str, seed: int, words: tuple[Wait, Wait], since: int, which: int) -> None:
        """Two sessions on one path, of which nothing else is left."""
        for name in ("s", "t"):
            self.turn(name, letters, HOME, seed, seed % 24)
        self.press(words, since, which, 3)


def drive(core: str, examples: int, steps: int, number: int, kind: type[CoreMachine] = CoreMachine) -> None:
    """Run the machine on one core; coverage is collected in `CoreMachine.reached`."""
    machine = type(kind.__name__, (kind,), {"make_core": staticmethod(CORES[core])})
    run_state_machine_as_test(
        seed(number)(machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("core", sorted(CORES))
def test_any_history_keeps_every_promise(core: str) -> None:
    reach(lambda number: drive(core, EXAMPLES, 50, number), CoreMachine.reached, RARE)
    assert CoreMachine.reached["steps"] > 20 * EXAMPLES


@pytest.mark.timeout(600)
@pytest.mark.parametrize("core", sorted(CORES))
def test_who_goes_is_who_is_read_last(core: str) -> None:
    rare = {"ert: released", "ert: shared noted", "ert: shared queued", "ert: expected start"}
    reach(lambda number: drive(core, EXAMPLES // 2, 40, number, ErtMachine), CoreMachine.reached, rare)
