"""Any history of requests and sessions over the facade: one owner a slot, right data, nothing left at the end."""

from functools import partial

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from agentcache.tree.api import Order
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
    "forked",
    "heir of a closed session",
    "hit",
    "kept",
    "kept by a child",
    "late completion",
    "reopened",
    "short",
    "tombstone forgotten",
}


def run(order: Order, number: int) -> None:
    machine = type("CacheMachine", (CacheMachine,), {"order": order})
    run_state_machine_as_test(
        seed(number)(machine),
        settings=settings(
            max_examples=80,
            stateful_step_count=50,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("order", [Order.SESSION, Order.ERT])
def test_any_history_leaves_every_slot_with_one_owner(order: Order) -> None:
    reach(partial(run, order), CacheMachine.reached, RARE)
