"""Tables of replays at a terminal: one for each trace, tier and queue, an arm a line, a room a column.

They are made of rows as they are in JSON (`Row.as_json`), so that a result that was kept can be shown again.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentcache.replay.lab.cells import Policy
from agentcache.replay.progress import counted

WIDE = 150
JsonRow = Mapping[str, Any]
BOUNDS = (Policy.LRU, Policy.CLAIRVOYANT, Policy.UNBOUNDED)
"""The floor, the ceiling, and what has no room to fill: their share is known before."""

LEGEND = (
    "A column is a room, in mean session peaks (device + lower tiers). Hit rate of prompt tokens (with lower tiers: "
    "device/all), share of the gap from lru to clairvoyant with its standard error (none: that gap is within noise, or "
    "the ceiling (a good order, no proof) lies below lru), mean time to the first token. Mean share: over the rooms "
    "that have one."
)


def on_stdout() -> Console:
    """Where tables go: as wide as the terminal, and wide enough for their rooms where there is none."""
    return Console(width=None if sys.stdout.isatty() else WIDE)


def show(rows: Sequence[JsonRow], console: Console) -> None:
    """Every table of these rows, and what is in them."""
    for title, group in grouped(rows):
        seeds = counted(max(row["seeds"] for row in group), "seed")
        console.print(Text(f"{title}; {seeds}", style="italic"), soft_wrap=True)
        console.print(_table(group))
    console.print(Text(LEGEND, style="dim"))


def grouped(rows: Sequence[JsonRow]) -> Iterator[tuple[str, list[JsonRow]]]:
    """The rows of each table, with its title."""
    for (trace, alike), group in groupby(rows, key=lambda row: (row["trace"], conditions(row))):
        yield f"{trace}: {alike}", list(group)


def conditions(row: JsonRow) -> str:
    """What a table's columns have in common."""
    lower = [tier for tier in ("host", "external") if row[f"{tier}_capacity"]]
    tiers = " and ".join(("device", *lower))
    queue = f"one prefill at a time, {row['scheduler']}" if row["queue"] else "no queue"
    live = row["live"]
    starts = (
        f"{live:g} {'session' if live == 1 else 'sessions'} live" if live else "sessions begin as recorded"
    )
    return f"{_model(row)}{tiers}, {queue}, {starts}"


def _model(row: JsonRow) -> str:
    """What there is beside full attention, and how much."""
    parts = []
    if row["window"]:
        parts.append(f"windows of {row['window']:,} tokens in {row['window_share']:g} of its slots")
    if row["state_tokens"]:
        parts.append(f"a state for {row['state_tokens']:,} of its tokens")
    return f"{row['parts']} ({', '.join(parts)}), " if parts else ""


def room(row: JsonRow) -> str:
    """A column of a table."""
    rooms = (row["capacity"], row["host_capacity"], row["external_capacity"])
    return " + ".join(f"{one:g}" for one in rooms if one)


def summary(rows: Sequence[JsonRow]) -> Table:
    """The share of the gap that each order closes on the device alone and without a queue, by trace."""
    plain = [row for row in rows if row["tiers"] == 1 and not row["queue"]]
    asked = dict.fromkeys(row["arm"] for row in plain if row["policy"] not in BOUNDS)
    table = Table(title="share of the gap closed, mean over rooms", title_justify="left")
    table.add_column("trace")
    for arm in asked:
        table.add_column(arm, justify="right")
    for trace in dict.fromkeys(row["trace"] for row in plain):
        of_trace = [row for row in plain if row["trace"] == trace]
        means = (_mean(row for row in of_trace if row["arm"] == arm) for arm in asked)
        table.add_row(Text(trace), *means)
    return table


def _table(rows: Sequence[JsonRow]) -> Table:
    rooms = list(dict.fromkeys(map(room, rows)))
    table = Table()
    table.add_column("policy")
    for one in rooms:
        table.add_column(one, justify="right")
    table.add_column("mean share", justify="right")
    for arm in dict.fromkeys(row["arm"] for row in rows):
        by_room = {room(row): row for row in rows if row["arm"] == arm}
        table.add_row(arm, *(_cell(by_room[one]) for one in rooms), _mean(by_room.values()))
    return table


def _cell(row: JsonRow) -> str:
    on_device = f"{row['device_hit_rate']:.3f}/" if row["tiers"] > 1 else ""
    return f"{on_device}{row['hit_rate']:.3f}{_share(row)} {row['ttft_ms'] / 1000:.2f} s"


def _share(row: JsonRow) -> str:
    shown = "".join(f" ({share:+.2f}" for share in _shares([row]))
    error = "" if row["stderr"] is None else f" ± {row['stderr']:.2f}"
    return shown and f"{shown}{error})"


def _mean(rows: Iterable[JsonRow]) -> str:
    shares = _shares(rows)
    return f"{fmean(shares):+.2f}" if shares else ""


def _shares(rows: Iterable[JsonRow]) -> list[float]:
    """Shares of gaps that are no noise."""
    counting = [row for row in rows if row["policy"] not in BOUNDS]
    return [row["gap_closed"] for row in counting if row["gap_closed"] is not None]
