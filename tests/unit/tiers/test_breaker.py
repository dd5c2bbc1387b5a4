"""When a failing store is asked again."""

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.tiers.breaker import Breaker, Circuit
from agentcache.tiers.rules import NS, ExternalRules

RULES = ExternalRules(failures_to_open=3, cool_down_s=5, deadline_s=2)


def opened() -> Breaker:
    breaker = Breaker(RULES)
    for _ in range(3):
        breaker.failed(0)
    return breaker


def circuit(breaker: Breaker) -> Circuit:
    return breaker.circuit


def test_failures_in_a_row_open_it() -> None:
    breaker = Breaker(RULES)
    breaker.failed(0)
    breaker.failed(0)
    breaker.succeeded()
    breaker.failed(0)
    breaker.failed(0)
    assert circuit(breaker) is Circuit.CLOSED
    breaker.failed(0)
    assert circuit(breaker) is Circuit.OPEN


def test_one_probe_is_due_after_the_cool_down() -> None:
    breaker = opened()
    assert not breaker.probe_due(5 * NS - 1)
    assert breaker.probe_due(5 * NS)
    assert breaker.circuit is Circuit.HALF_OPEN
    assert not breaker.probe_due(6 * NS)


def test_an_answered_probe_closes_it_and_failures_count_from_zero() -> None:
    breaker = opened()
    breaker.probe_due(5 * NS)
    breaker.probed(True, 6 * NS)
    assert breaker.circuit is Circuit.CLOSED
    breaker.failed(7 * NS)
    breaker.failed(7 * NS)
    assert breaker.circuit is Circuit.CLOSED


def test_a_failed_probe_opens_it_for_another_cool_down() -> None:
    breaker = opened()
    breaker.probe_due(5 * NS)
    breaker.probed(False, 6 * NS)
    assert not breaker.probe_due(11 * NS - 1)
    assert breaker.probe_due(11 * NS)


def test_a_probe_that_does_not_come_back_has_failed_and_says_nothing_later() -> None:
    breaker = opened()
    breaker.probe_due(5 * NS)
    assert not breaker.probe_due(7 * NS)
    assert breaker.circuit is Circuit.OPEN
    breaker.probed(True, 8 * NS)
    assert breaker.circuit is Circuit.OPEN
    assert breaker.probe_due(12 * NS)


def test_what_ordinary_calls_find_while_it_is_open_changes_nothing() -> None:
    breaker = opened()
    breaker.succeeded()
    breaker.failed(4 * NS)
    assert circuit(breaker) is Circuit.OPEN
    assert breaker.probe_due(5 * NS)
    breaker.failed(5 * NS)
    breaker.succeeded()
    assert breaker.circuit is Circuit.HALF_OPEN


def test_rules_must_be_over_zero() -> None:
    with pytest.raises(CacheError, match="deadline_s of an external tier must be over 0") as caught:
        ExternalRules(deadline_s=0)
    assert caught.value.kind is Kind.BAD_CONFIG


def test_a_large_job_has_more_time() -> None:
    rules = ExternalRules(deadline_s=2, deadline_per_mib_s=0.5)
    assert rules.deadline_of_ns(3 << 20) == int(3.5 * NS)
