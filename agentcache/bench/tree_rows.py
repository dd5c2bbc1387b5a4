"""What the tree benchmark answers: rows of figures, as JSON or as a table."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

REFERENCED = "referenced"
UNREFERENCED = "unreferenced"
BYTES = "bytes"

BUDGET_S = 0.5
CALLS = (5, 500)
"""A repeated call is timed for about BUDGET_S, but at least and at most so many times."""

NUMBERS = ("page", "tokens", "leaves", "best_us", "median_us", "n")
"""Columns of the table that align right."""


@dataclass(frozen=True, slots=True)
class Place:
    """What is measured: a core built for some components (`FULL+SWA128`: a window of 128 tokens) and a page size."""

    core: str
    components: str
    page: int | None
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `tokens` is the length of the path, `n` how often it was measured.

    `sessions` says whether sessions reference what the call works on. `best_us` and `median_us` are microseconds a
    call, or what `unit` says.
    """

    op: str
    components: str
    page: int | None
    tokens: int | None
    leaves: int | None
    sessions: str
    core: str
    best_us: float
    median_us: float
    n: int
    shape: str = ""
    unit: str = "us"


def row(
    op: str,
    place: Place,
    seconds: Sequence[float],
    tokens: int | None = None,
    leaves: int | None = None,
    sessions: str = REFERENCED,
) -> Row:
    """Best and median of many timed calls."""
    best, median = min(seconds) * 1e6, statistics.median(seconds) * 1e6
    return figure(op, place, (best, median, len(seconds)), tokens, leaves, sessions)


def figure(
    op: str,
    place: Place,
    found: tuple[float, float, int],
    tokens: int | None = None,
    leaves: int | None = None,
    sessions: str = REFERENCED,
) -> Row:
    """A row from `found` = best, median (microseconds) and n."""
    best, median, n = found
    where = (place.components, place.page, tokens, leaves, sessions, place.core)
    return Row(op, *where, round(best, 3), round(median, 3), n, place.shape)


def repeat(call: Callable[[], object]) -> list[float]:
    """Seconds of each of many equal calls, after one that warms up."""
    call()
    seconds: list[float] = []
    least, most = CALLS
    end = time.perf_counter() + BUDGET_S
    while len(seconds) < least or (len(seconds) < most and time.perf_counter() < end):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


@contextmanager
def settled() -> Iterator[None]:
    """What was built so far is no work for the collector while calls are timed."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    return {"rows": [asdict(one) for one in rows]}


def show(rows: Sequence[Row], console: Console) -> None:
    """The rows as they came, one line each."""
    table = Table(title="tree cores: microseconds a call (bytes_per_node: bytes)", title_justify="left")
    names = ("op", "shape", "components", "page", "tokens", "leaves", "sessions", "core", *NUMBERS[3:])
    for name in names:
        table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
    for one in rows:
        table.add_row(*(_text(getattr(one, name)) for name in names))
    console.print(table)


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
        case int():
            return f"{value:,}"
    return str(value)
