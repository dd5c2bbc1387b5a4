"""Any history of operations on any core: the law after each step, everything back at the end, and the rare reached."""

import os

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.builders import CORES
from tests.property.reaching import reach
from tests.property.session_rules import CoreMachine

EXAMPLES = int(os.environ.get("AGENTCACHE_MACHINE_EXAMPLES", "120"))
RARE = {
    "clear",
    "close after reopen",
    "demotion dropped",
    "demotion landed",
    "double close",
    "drop took data",
    "early release",
    "empty commit",
    "eviction under a marker",
    "fenced",
    "fork under a lease",
    "fork under a marker",
    "late completion",
    "late job",
    "left marker",
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
}


def drive(core: str, examples: int, steps: int, number: int) -> None:
    """Run the machine on one core; coverage is collected in `CoreMachine.reached`."""
    machine = type("CoreMachine", (CoreMachine,), {"make_core": staticmethod(CORES[core])})
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
