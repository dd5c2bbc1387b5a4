"""Open sessions as trees of parents and children, those used last first where not all can be shown."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentcache.store.api import SessionRecord, SessionRef

SHOWN: Final = 200
OLDEST_US: Final = 10 * 365 * 86_400 * 1_000_000
"""A generation that far from now was not made of the time."""


@dataclass(frozen=True, slots=True)
class Row:
    """One session. `hidden`: children that are not shown. `opened_s`: ago; negative where nobody knows."""

    record: SessionRecord
    depth: int
    hidden: int
    opened_s: float

    @property
    def state(self) -> str:
        if self.record.in_flight:
            return "running"
        return "paused" if self.record.paused else "idle"


@dataclass(frozen=True, slots=True)
class Families:
    """What there is, and the rows of what is shown. `unread`: open sessions beyond those that were asked for."""

    rows: tuple[Row, ...] = ()
    running: int = 0
    paused: int = 0
    idle: int = 0
    unread: int = 0
    said: str = ""

    @property
    def open(self) -> int:
        return self.running + self.paused + self.idle + self.unread


def families(records: Sequence[SessionRecord], unread: int, now_ms: int, said: str = "") -> Families:
    """At most `SHOWN` of records of any tenants, each's oldest first as in `Store.list`; the newest root is first.

    Cost: O(n log n)
    """
    rows = tuple(_rows(_chosen(records, SHOWN), now_ms))
    running = sum(record.in_flight > 0 for record in records)
    paused = sum(not record.in_flight and bool(record.paused) for record in records)
    return Families(rows, running, paused, len(records) - running - paused, unread, said)


def _chosen(records: Sequence[SessionRecord], shown: int) -> tuple[SessionRecord, ...]:
    """Those used last, of equals the newest, with all that are above them; in the order of `records`."""
    if len(records) <= shown:
        return tuple(records)
    known = {record.ref: record for record in records}
    chosen: set[SessionRef] = set()
    for record in sorted(reversed(records), key=lambda one: (not one.in_flight, one.idle_s)):
        line = set(_line(record, known)) - chosen
        if len(chosen) + len(line) <= shown:
            chosen |= line
    return tuple(record for record in records if record.ref in chosen)


def _line(record: SessionRecord, known: Mapping[SessionRef, SessionRecord]) -> Iterator[SessionRef]:
    """A session and those above it, as far as they are known."""
    seen: set[SessionRef] = set()
    at = record.ref
    while at in known and at not in seen:
        seen.add(at)
        yield at
        at = _parent(known[at])


def _rows(records: Iterable[SessionRecord], now_ms: int) -> Iterator[Row]:
    """Parents before their children."""
    below: dict[SessionRef, list[SessionRecord]] = {}
    known: dict[SessionRef, SessionRecord] = {}
    for record in records:
        known[record.ref] = record
        below.setdefault(_parent(record), []).append(record)
    waiting = [(record, 0) for record in known.values() if _parent(record) not in known]
    while waiting:
        record, depth = waiting.pop()
        children = below.get(record.ref, [])
        yield Row(record, depth, max(0, record.children - len(children)), _opened_s(record, now_ms))
        waiting += [(child, depth + 1) for child in reversed(children)]


def _parent(record: SessionRecord) -> SessionRef:
    return SessionRef(record.ref.tenant, record.parent)


def _opened_s(record: SessionRecord, now_ms: int) -> float:
    """By the generation, which is the store's clock in microseconds unless something raised it above that."""
    ago_us = now_ms * 1000 - record.generation
    return max(0.0, ago_us / 1e6) if -60_000_000 < ago_us < OLDEST_US else -1.0
