"""Shares of prompts' tokens by tier over time, by hand."""

import pytest

from agentcache.router.dashboard.rates import Column, Counted, Rates, columns


def told(rates: Rates, at_s: float, **workers: tuple[int, int]) -> None:
    """Prompts' tokens and those from the device, by worker."""
    rates.add(at_s, {name: Counted(prompt, (device, 0, 0)) for name, (prompt, device) in workers.items()})


def test_what_was_counted_before_somebody_looked_does_not_count() -> None:
    rates = Rates()
    told(rates, 0.0, a=(1000, 900))
    told(rates, 2.0, a=(1100, 950))
    assert [(moment.prompt, moment.cached[0]) for moment in rates.moments()] == [(0, 0), (100, 50)]
    assert columns(rates.moments(), 2) == (Column((0.5, 0, 0)),) * 2


def test_a_worker_that_starts_anew_takes_nothing_away() -> None:
    rates = Rates()
    told(rates, 0.0, a=(1000, 900), b=(0, 0))
    told(rates, 2.0, a=(10, 5), b=(10, 5))
    assert (rates.moments()[-1].prompt, rates.moments()[-1].cached[0]) == (20, 10)


def test_a_worker_that_starts_anew_and_is_soon_past_where_it_was_counts_from_0() -> None:
    rates = Rates()
    rates.add(0.0, {"a": Counted(100, (50, 0, 0))})
    rates.add(2.0, {"a": Counted(150, (40, 100, 0))})
    assert (rates.moments()[-1].prompt, rates.moments()[-1].cached) == (150, (40, 100, 0))


def test_a_worker_that_was_silent_is_counted_on_and_a_new_one_from_now() -> None:
    rates = Rates()
    told(rates, 0.0, a=(0, 0))
    told(rates, 2.0, b=(500, 500))
    told(rates, 4.0, a=(30, 0), b=(510, 510))
    assert (rates.moments()[-1].prompt, rates.moments()[-1].cached[0]) == (40, 10)
    rates.forget({"b"})
    told(rates, 6.0, a=(90, 0), b=(510, 510))
    assert rates.moments()[-1].prompt == 40


def test_moments_do_not_grow_without_bound_and_keep_the_first_and_the_last() -> None:
    rates = Rates(kept=8)
    for second in range(100):
        told(rates, float(second), a=(second * 10, second * 5))
        assert len(rates.moments()) <= 8
    first, *_, last = rates.moments()
    assert (first.at_s, first.prompt) == (0.0, 0)
    assert (last.at_s, last.prompt) == (99.0, 990)


def test_a_stretch_without_prompts_has_no_share() -> None:
    rates = Rates()
    for second, (prompt, device) in enumerate([(0, 0), (100, 100), (100, 100), (200, 100)]):
        told(rates, float(second), a=(prompt, device))
    assert columns(rates.moments(), 3) == (Column((1.0, 0, 0)), Column(()), Column((0.0, 0, 0)))


@pytest.mark.parametrize("seconds", [(), (1.0,)])
def test_before_there_are_two_moments_there_is_no_time(seconds: tuple[float, ...]) -> None:
    rates = Rates()
    for second in seconds:
        told(rates, second, a=(1, 1))
    assert columns(rates.moments(), 3) == ()


def test_moments_at_the_same_time_are_no_fault() -> None:
    rates = Rates()
    told(rates, 1.0, a=(0, 0))
    told(rates, 1.0, a=(10, 5))
    assert all(len(column.shares) in (0, 3) for column in columns(rates.moments(), 4))
