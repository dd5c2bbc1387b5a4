"""Numbers as clients send them in headers."""

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.web.naming import MAX_EXPECTED_S, read_expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0.0),
        ("0", 0.0),
        ("90", 90.0),
        ("2.5", 2.5),
        ("1e3", 1000.0),
        ("1.5E-2", 0.015),
        ("1e+9", MAX_EXPECTED_S),
        ("1e-400", 0.0),
    ],
)
def test_a_decimal_number_is_a_time(text: str, seconds: float) -> None:
    assert read_expected(text, "x") == seconds


PYTHONS = ["1_000", "+5", "-0", "\u0669\u0660", "\uff19\uff10", "1.\u0665", "\u00a05", "5\n", "5.", ".5"]
"""Numbers to `float`."""
NO_NUMBERS = [" ", "1e", "0x10", "1,5", "5s", "nan", "inf", "Infinity"]
OUTSIDE = ["-1", "1000000001", "1e999", "9" * 400]


@pytest.mark.parametrize("text", [*PYTHONS, *NO_NUMBERS, *OUTSIDE])
def test_what_is_no_such_number_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(CacheError) as caught:
        read_expected(text, "x")
    assert (caught.value.kind, caught.value.facts["param"]) == (Kind.BAD_REQUEST, "x")
