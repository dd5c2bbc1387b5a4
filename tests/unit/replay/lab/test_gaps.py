"""Shares of the gap between LRU and the bound, with answers worked out by hand."""

import math

import pytest

from agentcache.replay.lab.gaps import SMALLEST_GAP, gap_closed


def test_half_of_a_gap_that_every_seed_agrees_on() -> None:
    closed = gap_closed([0.55, 0.65], [0.5, 0.6], [0.6, 0.7])
    assert closed.gained == pytest.approx(0.05)
    assert closed.share == pytest.approx(0.5)
    assert closed.gained_error == pytest.approx(0, abs=1e-12)
    assert closed.share_error == pytest.approx(0, abs=1e-12)


def test_errors_are_of_differences_seed_by_seed() -> None:
    closed = gap_closed([0.52, 0.58], [0.5, 0.5], [0.6, 0.6])
    assert closed.share == pytest.approx(0.5)
    assert closed.gained_error == pytest.approx(0.03)
    assert closed.share_error == pytest.approx(0.3)


def test_a_larger_gap_explains_a_larger_gain() -> None:
    """Gains that are half of each seed's own gap leave no doubt about the half, though they differ."""
    closed = gap_closed([0.65, 0.7], [0.5, 0.5], [0.8, 0.9])
    assert closed.share == pytest.approx(0.5)
    assert closed.gained_error == pytest.approx(0.025)
    assert closed.share_error == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("baseline", "bound"),
    [
        ([0.5, 0.5], [0.5 + SMALLEST_GAP / 2] * 2),
        ([0.5, 0.5], [0.5, 0.6]),
        ([0.5, 0.6], [0.4, 0.5]),
    ],
    ids=["too small", "within two errors", "below the floor"],
)
def test_a_gap_within_noise_has_no_share(baseline: list[float], bound: list[float]) -> None:
    closed = gap_closed([0.5, 0.6], baseline, bound)
    assert closed.share is None
    assert closed.share_error is None
    assert math.isfinite(closed.gained)


def test_one_seed_has_no_error() -> None:
    closed = gap_closed([0.6], [0.5], [0.7])
    assert (closed.gained_error, closed.share_error) == (None, None)
    assert closed.share == pytest.approx(0.5)


def test_what_was_replayed_once_is_the_same_for_every_seed() -> None:
    once = gap_closed([0.55, 0.65], [0.5], [0.7])
    assert once == gap_closed([0.55, 0.65], [0.5, 0.5], [0.7, 0.7])
    assert once.share_error is not None
