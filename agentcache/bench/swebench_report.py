"""What `bench swebench` found: rows for each batch and order, as JSON or as tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

Report = dict[str, Any]
LAB, ENGINE = "lab", "engine"
BASELINE = "lru"
TITLES = {
    LAB: "in the lab (times modelled)",
    ENGINE: "on the engine (times measured)",
}


def against_lru(rows: Sequence[Report]) -> list[Report]:
    """The rows with `ttft_change`: by which share the mean time to the first token differs from LRU's in its batch."""
    base = {row["batch"]: row["ttft_ms"] for row in rows if row["order"] == BASELINE}
    return [{**row, "ttft_change": row["ttft_ms"] / base[row["batch"]] - 1} for row in rows]


def wrong_answers(result: Report) -> int:
    """Calls whose first token's logits were not the same under all orders; 0 where the engine was not asked."""
    return sum(result[ENGINE]["different_answers"].values()) if ENGINE in result else 0


def show(result: Report, console: Console) -> None:
    """A table for each level, and what the answers say."""
    for level in (LAB, ENGINE):
        if level in result:
            console.print(_table(level, result[level]))
    if ENGINE in result:
        wrong = wrong_answers(result)
        said = f"{wrong} differ, WRONG" if wrong else "the same under every order, bit for bit"
        console.print(f"first tokens' logits: {said}", highlight=False)


def _table(level: str, found: Report) -> Table:
    table = Table(
        title=f"{found['trace']}, {TITLES[level]}",
        caption=_caption(level, found["shape"]),
        title_justify="left",
        caption_justify="left",
    )
    names = ("batch", "order", "device", "host", "both", "first token", "p95", "against lru")
    for name in names:
        table.add_column(name, justify="left" if name == "order" else "right", no_wrap=True)
    last = None
    for row in found["rows"]:
        if last not in (None, row["batch"]):
            table.add_section()
        last = row["batch"]
        table.add_row(str(last), row["order"], *_figures(row))
    return table


def _figures(row: Report) -> list[str]:
    rates = [f"{row[name]:.1%}" for name in ("device_hit_rate", "host_hit_rate", "hit_rate")]
    change = "" if row["order"] == BASELINE else f"{row['ttft_change']:+.1%}"
    return [*rates, f"{row['ttft_ms']:,.0f} ms", f"{row['ttft_p95_ms']:,.0f} ms", change]


def _caption(level: str, shape: Mapping[str, Any]) -> str:
    batch = "batch: sessions live at once; hit rates of prompt tokens; means"
    if level == LAB:
        rooms = f"device {shape['device_pages']:,} and host {shape['host_pages']:,} pages of 64 tokens"
        return f"{batch}\n{rooms}, {shape['sessions']} sessions, {shape['seeds']} seeds"
    slots = ", ".join(f"{name} {count}" for name, count in shape["device_slots"].items())
    return (
        f"{batch}\n{shape['model']}: device slots {slots}; host {shape['host_mib']:.1f} MiB; {shape['sessions']} "
        f"sessions of up to {shape['turns']} calls, one call at a time"
    )
