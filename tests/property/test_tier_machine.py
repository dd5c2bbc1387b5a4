"""Any history of requests over tiers that misbehave: right data, one owner a slot, nothing left at the end."""

from functools import partial

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from agentcache.prefetch import PrefetchPolicy
from agentcache.tree.api import Order, WritePolicy
from tests.property.reaching import reach
from tests.property.tier_rules import TierMachine

RARE = {
    "a load gave less",
    "begun before its prefetch",
    "brought before it was asked for",
    "hit",
    "hit from outside",
    "loaded from the host",
    "nothing of a job landed",
    "part of a job landed",
    "whole of a job landed",
}
DIRECT = RARE - {"loaded from the host", "a load gave less"}
SHAPES = {
    "through": (True, WritePolicy.WRITE_THROUGH, Order.SESSION),
    "selective": (True, WritePolicy.WRITE_THROUGH_SELECTIVE, Order.LRU),
    "back": (True, WritePolicy.WRITE_BACK, Order.ERT),
    "direct": (False, WritePolicy.WRITE_THROUGH, Order.SESSION),
}


def run(machine: type[TierMachine], number: int) -> None:
    run_state_machine_as_test(
        seed(number)(machine),
        settings=settings(
            max_examples=80,
            stateful_step_count=60,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", SHAPES)
def test_tiers_that_misbehave_cost_hits_and_nothing_else(shape: str) -> None:
    host, policy, order = SHAPES[shape]
    facts = {"host": host, "write_policy": policy, "order": order, "prefetch": PrefetchPolicy.TIMEOUT}
    machine = type("TierMachine", (TierMachine,), facts)
    rare = (RARE if host else DIRECT) | ({"found what was brought"} if order is Order.ERT else set())
    reach(partial(run, machine), TierMachine.reached, rare)
