"""Tables of replays at a terminal: one for each trace and queue, an arm a line, a room a column."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from agentcache.replay.lab.cells import Cell, Policy
from agentcache.replay.lab.table import Row

NO_SHARE = (Policy.LRU, Policy.CLAIRVOYANT, Policy.UNBOUNDED)
"""The floor, the ceiling, and what has no room to fill."""


def show(rows: Sequence[Row], console: Console) -> None:
    """Every table of these rows."""
    for table in tables(rows):
        console.print(table)


def tables(rows: Sequence[Row]) -> Iterator[Table]:
    for (trace, title), group in groupby(rows, key=lambda row: (row.trace, conditions(row.cell))):
        yield _table(f"{trace}: {title}", list(group))


def conditions(cell: Cell) -> str:
    """What a table's columns have in common."""
    queue = f"one prefill at a time, {cell.machine.turns.value}" if cell.machine.queue else "no queue"
    tiers = "device and host" if cell.host else "device"
    starts = f"{cell.live:g} sessions live" if cell.live else "sessions begin as recorded"
    return f"{tiers}, {queue}, {starts}"


def _table(title: str, rows: Sequence[Row]) -> Table:
    rooms = list(dict.fromkeys(_room(row.cell) for row in rows))
    table = Table(title=title, title_justify="left", caption=_caption(rows), caption_justify="left")
    table.add_column("policy")
    for room in rooms:
        table.add_column(room, justify="right")
    table.add_column("gap closed", justify="right")
    for arm in dict.fromkeys(row.arm for row in rows):
        by_room = {_room(row.cell): row for row in rows if row.arm == arm}
        table.add_row(arm.name, *(_cell(by_room[room]) for room in rooms), _mean(by_room.values()))
    return table


def _cell(row: Row) -> str:
    tiers = f"{row.device_rate:.3f}/{row.hit_rate:.3f}" if row.cell.host else f"{row.hit_rate:.3f}"
    return f"{tiers}{_share(row)} {row.ttft_ms / 1000:.2f} s"


def _share(row: Row) -> str:
    shown = "".join(f" ({share:+.2f}" for share in _shares([row]))
    error = "" if row.closed.share_error is None else f" ± {row.closed.share_error:.2f}"
    return shown and f"{shown}{error})"


def _mean(rows: Iterable[Row]) -> str:
    shares = _shares(rows)
    return f"{sum(shares) / len(shares):+.2f}" if shares else ""


def _shares(rows: Iterable[Row]) -> list[float]:
    """Shares of gaps that are no noise."""
    counted = [row for row in rows if row.cell.policy not in NO_SHARE]
    return [row.closed.share for row in counted if row.closed.share is not None]


def _room(cell: Cell) -> str:
    return f"{cell.device:g} + {cell.host:g}" if cell.host else f"{cell.device:g}"


def _caption(rows: Sequence[Row]) -> str:
    tiers = " (device/all)" if rows[0].cell.host else ""
    return (
        f"room in mean session peaks; hit rate of prompt tokens{tiers}, share of the gap from lru to clairvoyant with "
        f"its standard error, mean time to the first token; {len(rows[0].scores)} seeds"
    )
