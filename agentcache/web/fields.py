"""Typed reading of a JSON object: every wrong type is refused with the name of its field."""

from collections.abc import Iterator, Mapping
from typing import Final

from agentcache.errors import CacheError
from agentcache.web.status import refuse

_KINDS: Final = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    dict: "an object",
    list: "an array",
}
LARGEST: Final = 2**63 - 1
"""An upper bound that no request means."""


class Fields:
    """One JSON object. A field that is absent or `null` answers the default, as in the OpenAI API.

    `place` is the path to this object in the request, used in the `param` of errors.
    """

    def __init__(self, values: Mapping[str, object], place: str = "") -> None:
        self.values = values
        self.place = place

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def param(self, name: str) -> str:
        """The full name of a field, for errors."""
        return f"{self.place}.{name}" if self.place else name

    def text(self, name: str, default: str = "") -> str:
        value = self._typed(name, str, default)
        assert isinstance(value, str)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self._typed(name, bool, default))

    def whole(self, name: str, default: int, low: int, high: int = LARGEST) -> int:
        """An integer in `[low, high]`; `true` is not one."""
        value = self._typed(name, int, default)
        assert isinstance(value, int)
        return int(self._within(name, value, low, high)) if self.has(name) else value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A finite number in `[low, high]`."""
        value = self._typed(name, float, default)
        assert isinstance(value, float)
        return self._within(name, value, low, high)

    def inner(self, name: str) -> "Fields":
        """The object in a field; an empty one when absent."""
        value = self._typed(name, dict, {})
        assert isinstance(value, dict)
        return Fields(value, self.param(name))

    def array(self, name: str) -> list[object]:
        value = self._typed(name, list, [])
        assert isinstance(value, list)
        return value

    def objects(self, name: str) -> Iterator["Fields"]:
        """The members of an array of objects, each with its own place."""
        for position, member in enumerate(self.array(name)):
            place = f"{self.param(name)}[{position}]"
            if not isinstance(member, dict):
                raise refuse(f"{place} must be an object", place)
            yield Fields(member, place)

    def wrong(self, name: str, wanted: str) -> CacheError:
        """The refusal of a field whose value does not fit."""
        return refuse(f"{self.param(name)} must be {wanted}", self.param(name))

    def _typed(self, name: str, kind: type, default: object) -> object:
        value = self.values.get(name)
        if value is None:
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return self._as_float(name, value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(name, _KINDS[kind])
        return value

    def _as_float(self, name: str, value: int) -> float:
        try:
            return float(value)
        except OverflowError:
            raise self.wrong(name, "a finite number") from None

    def _within(self, name: str, value: float, low: float, high: float) -> float:
        if not low <= value <= high:
            raise self.wrong(name, f"at least {low}" if high == LARGEST else f"between {low} and {high}")
        return value
