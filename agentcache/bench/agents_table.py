"""What routed replays come to: hit rates, shares of the gap, and differences between arms, seed by seed."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentcache.replay.lab.gaps import gap_closed
from agentcache.replay.routed.agents import Taken

FLOOR, CEILING = "lru", "clairvoyant"
PLAIN = "ert"
"""What learned and stated times are held against."""


@dataclass(frozen=True, slots=True)
class Played:
    """One replay. Units: pages; `told`: how often what happened to sessions, and what was learned of their waits."""

    prompt_pages: int
    cached_pages: int
    told: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, taken: Iterable[Taken], told: Mapping[str, float]) -> "Played":
        turns = list(taken)
        prompt, cached = (sum(one.prompt_tokens for one in turns), sum(one.cached_tokens for one in turns))
        return cls(prompt, cached, told)

    @property
    def hit_rate(self) -> float:
        return self.cached_pages / max(1, self.prompt_pages)


@dataclass(slots=True)
class Found:
    """One arm in one room of one trace, a replay a seed. `routed` False: the lab's, without a router."""

    trace: str
    room: float
    arm: str
    routed: bool
    played: list[Played] = field(default_factory=list)

    @property
    def hits(self) -> list[float]:
        return [one.hit_rate for one in self.played]


@dataclass(frozen=True, slots=True)
class Difference:
    """In hit rate; `error` is the standard error of the mean over paired seeds, None for one."""

    mean: float
    error: float | None


def difference(one: Sequence[float], other: Sequence[float]) -> Difference:
    """`one` less `other`, seed by seed."""
    each = [a - b for a, b in zip(one, other, strict=True)]
    error = statistics.stdev(each) / math.sqrt(len(each)) if len(each) > 1 else None
    return Difference(statistics.fmean(each), error)


def rows_of(found: Sequence[Found]) -> list[dict[str, Any]]:
    """Rows as they are in JSON. The floor of what was routed is the router's lru, of the rest the lab's.

    `over_ert`: the gain in hit rate over the same without any word on tools, with its paired error.
    """
    hits = {(one.trace, one.room, one.arm): one.hits for one in found}
    rows = []
    for one in found:
        here = (one.trace, one.room)
        floor = hits[(*here, FLOOR if one.routed else f"{FLOOR} in the lab")]
        closed = gap_closed(one.hits, floor, hits[(*here, CEILING)])
        plain = hits.get((*here, PLAIN))
        over = difference(one.hits, plain) if one.routed and plain else None
        rows.append(
            {
                "trace": one.trace,
                "capacity": one.room,
                "arm": one.arm,
                "routed": one.routed,
                "seeds": len(one.played),
                "hit_rate": statistics.fmean(one.hits),
                "gained": closed.gained,
                "gained_stderr": closed.gained_error,
                "gap_closed": closed.share,
                "stderr": closed.share_error,
                "over_ert": over and over.mean,
                "over_ert_stderr": over and over.error,
                "by_seed": [asdict(each) for each in one.played],
            }
        )
    return rows


def shown(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """One table for each room of each trace."""
    for trace, room in dict.fromkeys((row["trace"], row["capacity"]) for row in rows):
        group = [row for row in rows if (row["trace"], row["capacity"]) == (trace, room)]
        table = Table(title=f"{trace}: room {room:g}, {group[0]['seeds']} seeds", title_justify="left")
        for column in ("arm", "hit rate", "share of the gap", "over ert"):
            table.add_column(column, justify="left" if column == "arm" else "right")
        for row in group:
            table.add_row(
                Text(row["arm"]),
                f"{row['hit_rate']:.4f}",
                _with_error(row["gap_closed"], row["stderr"], ".2f"),
                _with_error(row["over_ert"], row["over_ert_stderr"], ".4f"),
            )
        console.print(table)


def _with_error(value: float | None, error: float | None, form: str) -> str:
    if value is None:
        return ""
    return f"{value:+{form}}" if error is None else f"{value:+{form}} ± {error:{form}}"
