"""Any history of requests and sessions over the facade: one owner a slot, right data, nothing left at the end."""

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.cache_rules import CacheMachine
from tests.property.reaching import reach

RARE = {
    "arrival closed",
    "arrival expired",
    "arrival none",
    "close after reopening",
    "double close",
    "duplicates",
    "eviction under a marker",
    "expired",
    "hit",
    "kept",
    "late completion",
    "reopened",
    "short",
    "tombstone forgotten",
}


def run(number: int) -> None:
    run_state_machine_as_test(
        seed(number)(CacheMachine),
        settings=settings(
            max_examples=80,
            stateful_step_count=50,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(300)
def test_any_history_leaves_every_slot_with_one_owner() -> None:
    reach(run, CacheMachine.reached, RARE)
