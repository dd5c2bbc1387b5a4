"""Counts and times in words."""

import pytest

from agentcache.router.dashboard.words import count, percent, size, span, tick


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, ""),
        (0, "0 s"),
        (90.4, "90 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (172_800, "2 d"),
    ],
)
def test_spans(seconds: float, said: str) -> None:
    assert span(seconds) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0"), (999, "999"), (1000, "1.00 k"), (12_345, "12.3 k"), (4_560_000, "4.56 M")],
)
def test_counts(number: float, said: str) -> None:
    assert count(number) == said


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 B"), (1024, "1.00 KiB"), (1 << 30, "1.00 GiB"), (1 << 52, "4.00 PiB")]
)
def test_sizes(number: float, said: str) -> None:
    assert size(number) == said


def test_of_nothing_there_is_no_share() -> None:
    assert (percent(1, 3), percent(0, 0)) == ("33.3 %", "–")


def test_ticks_are_short() -> None:
    assert [tick(number) for number in (0, 500, 20_000, 2_500_000)] == ["0", "500", "20 k", "2.5 M"]
