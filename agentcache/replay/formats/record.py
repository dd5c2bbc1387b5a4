"""Fields of a trace file by name and type: what is absent has a default, what is wrong is named with its place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from agentcache.errors import CacheError, Kind
from agentcache.replay.sources import Document
from agentcache.replay.trace import LATEST_S

_SHOWN = 40
_MOST = 2**63
_UNTOLD = "a time that no clock has"
_HUGE = "too large"


@dataclass(frozen=True, slots=True)
class Record:
    """One object of a document. `at` is the way to it, as in `requests[3].usage`.

    A field that is absent or null is None, 0, "" or empty. Errors: CacheError(BAD_TRACE) naming place and field.
    """

    value: Mapping[str, Any]
    document: Document
    at: str = ""

    def __contains__(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self.value.get(name) is not None

    def number(self, name: str) -> float | None:
        """A finite number."""
        return self.needed(name) if name in self else None

    def needed(self, name: str) -> float:
        """A finite number that must be there."""
        self.need(name)
        value = self._finite(name)
        if abs(value) >= _MOST:
            raise self.wrong(name, _HUGE)
        return value

    def _finite(self, name: str) -> float:
        """A number, of any size."""
        value: float = self.value[name]
        if not _is_number(value):
            raise self.wrong(name, "not a number")
        return value

    def seconds(self, name: str, per_second: int = 1) -> float | None:
        """How long something took, which is told in so many parts of a second."""
        value = self._finite(name) if name in self else None
        if value and value < 0:
            raise self.wrong(name, "a negative time")
        if value and (value >= _MOST or value / per_second > LATEST_S):
            raise self.wrong(name, _UNTOLD)
        return value / per_second if value and per_second > 1 else value

    def count(self, name: str) -> int:
        """A whole number from 0 on."""
        value = self._or(name, 0)
        if not _is_number(value) or value < 0 or value != int(value):
            raise self.wrong(name, "not a whole number from 0 on")
        if value >= _MOST:
            raise self.wrong(name, _HUGE)
        return int(value)

    def text(self, name: str) -> str:
        value = self._or(name, "")
        if not isinstance(value, str):
            raise self.wrong(name, "not a text")
        return value

    def name(self, name: str) -> str:
        """A text, or a whole number as text, as ids are written either way."""
        value = self.value.get(name)
        return str(value) if isinstance(value, int) else self.text(name)

    def moment(self, name: str) -> float | None:
        """Seconds since 1970, from such a number or from ISO 8601; without a zone it is UTC."""
        value = self.value.get(name)
        if value is None:
            return None
        moment = self._told(name, value) if isinstance(value, str) else self._finite(name)
        if moment and abs(moment) > LATEST_S:
            raise self.wrong(name, _UNTOLD)
        return moment

    def _told(self, name: str, text: str) -> float:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise self.wrong(name, "not a time as 2026-01-31T12:00:00Z") from None
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()

    def child(self, name: str) -> "Record":
        value = self._or(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "not an object")
        return Record(value, self.document, self._way(name))

    def items(self, name: str) -> Sequence[Any]:
        value = self._or(name, [])
        if not isinstance(value, list):
            raise self.wrong(name, "not a list")
        return value

    def children(self, name: str) -> "list[Record]":
        """The objects of a list."""
        return [
            record_of(item, self.document, f"{self._way(name)}[{number}]")
            for number, item in enumerate(self.items(name))
        ]

    def need(self, *names: str) -> None:
        """Refuse the record if one of these is absent."""
        for name in names:
            if name not in self:
                raise self.bad(name, "is missing")

    def wrong(self, name: str, wanted: str) -> CacheError:
        shown = repr(self.value.get(name))
        return self.bad(name, f"is {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}, {wanted}")

    def early(self, name: str) -> CacheError:
        """The error to raise for a time that is out of order."""
        return self.wrong(name, "earlier than the one before it")

    def bad(self, name: str, what: str) -> CacheError:
        """The error to raise for a field."""
        return CacheError(
            Kind.BAD_TRACE, f"{self.document.place}: {self._way(name)} {what}. Repair or remove it"
        )

    def _or(self, name: str, default: Any) -> Any:
        return self.value[name] if name in self else default

    def _way(self, name: str) -> str:
        return f"{self.at}.{name}" if self.at else name


def record_of(value: Any, document: Document, at: str = "") -> Record:
    """Errors: CacheError(BAD_TRACE) if it is no object."""
    if isinstance(value, dict):
        return Record(value, document, at)
    what = f": {at} is" if at else " is"
    raise CacheError(Kind.BAD_TRACE, f"{document.place}{what} not an object. Repair or remove it")


def _is_number(value: Any) -> bool:
    """Also false of what is no number in arithmetic: NaN, infinities."""
    return isfinite(value) if isinstance(value, float) else type(value) is int
