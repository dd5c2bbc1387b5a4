"""Typed reading of JSON objects."""

from collections.abc import Callable

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.web.fields import Fields

READERS: dict[str, Callable[[Fields], object]] = {
    "text": lambda fields: fields.text("x"),
    "flag": lambda fields: fields.flag("x"),
    "whole": lambda fields: fields.whole("x", 0, -5, 5),
    "number": lambda fields: fields.number("x", 0.0, -5, 5),
    "inner": lambda fields: fields.inner("x"),
    "array": lambda fields: fields.array("x"),
}
GOOD: dict[str, list[object]] = {
    "text": ["", "a"],
    "flag": [True, False],
    "whole": [0, -5, 5],
    "number": [0, 1, 2.5],
    "inner": [{}, {"a": 1}],
    "array": [[], [1]],
}
VALUES: list[object] = ["a", "", True, 3, 2.5, {}, {"a": 1}, [], [1], 10**400, 6, float("inf"), -6]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_wrong_type_is_refused_by_name(reader: str, value: object) -> None:
    if any(
        value == good and type(value) is type(good)
        for good in [*GOOD[reader], *({"whole": [3], "number": [3]}.get(reader, []))]
    ):
        READERS[reader](Fields({"x": value}))
        return
    with pytest.raises(CacheError) as caught:
        READERS[reader](Fields({"x": value}, "outer"))
    assert caught.value.kind is Kind.BAD_REQUEST
    assert caught.value.facts["param"] == "outer.x"
    assert "outer.x must be" in caught.value.message


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("values", [{}, {"x": None}], ids=["absent", "null"])
def test_absent_and_null_answer_the_default(reader: str, values: dict[str, object]) -> None:
    READERS[reader](Fields(values))


def test_a_bound_that_no_request_means_is_not_told() -> None:
    with pytest.raises(CacheError, match=r"x must be at least 1 "):
        Fields({"x": 0}).whole("x", 1, low=1)
    with pytest.raises(CacheError, match=r"x must be between 1 and 5 "):
        Fields({"x": 0}).whole("x", 1, low=1, high=5)


def test_members_of_an_array_know_their_place() -> None:
    [first, second] = Fields({"m": [{"a": 1}, {"a": "x"}]}).objects("m")
    assert first.whole("a", 0, 0) == 1
    assert second.param("a") == "m[1].a"


def test_a_member_that_is_no_object_is_refused() -> None:
    with pytest.raises(CacheError, match=r"m\[1\] must be an object"):
        list(Fields({"m": [{}, 3]}).objects("m"))
