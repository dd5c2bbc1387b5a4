"""Draws what `bench swebench` found: hit rates by tier above, times to the first token below, a column for each level.

python -m agentcache.bench.swebench_plot out.svg result.json [the other level's result.json]
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from agentcache.bench.pictures import draw_kept, save, styled
from agentcache.bench.starting import start
from agentcache.bench.swebench_report import BASELINE, ENGINE, LAB, Report

COLOURS = {"lru": "#f0c48a", "session": "#6a9fd4", "ert": "#1f5c46", "clairvoyant": "#ececec"}
"""Light, middling and dark, so that they differ without colour too; the bound has an outline."""
OUTLINES = COLOURS | {"clairvoyant": "#444444"}
NAMES = {"clairvoyant": "knows the future (bound)"}
HATCH = "////"
HEADS = {
    LAB: "In the lab: the real cache, times modelled\n"
    "{sessions} sessions of {trace}; device {device_pages:,} and host {host_pages:,} pages of 64 tokens",
    ENGINE: "On engines: {model}, times measured\n"
    "{sessions} sessions of up to {turns} calls; room for {device_sessions:g} of them on the device, for "
    "{host_sessions:g} on the host",
}


def plot(results: Sequence[Report], path: Path) -> None:
    """An .svg or .png of one run, or of one for each level; the same results are the same file."""
    levels = {level: one[level] for level in (LAB, ENGINE) for one in results if level in one}
    with styled({"hatch.linewidth": 0.6}):
        figure = Figure(figsize=(0.4 + 4.9 * len(levels), 5.4), layout="constrained")
        figure.suptitle(
            "Agents on SWE-bench: more and more of them at once in a cache of one size", weight="bold"
        )
        for column, (level, found) in zip(
            figure.subfigures(1, len(levels), squeeze=False)[0], levels.items(), strict=True
        ):
            column.suptitle(HEADS[level].format(trace=found["trace"], **found["shape"]), fontsize=8)
            hits, times = column.subplots(2, 1)
            _hits(hits, found["rows"])
            _times(times, found["rows"])
        orders = {row["order"] for found in levels.values() for row in found["rows"]}
        figure.legend(handles=_legend(orders), loc="outside lower center", ncols=6)
        save(figure, path)


def _hits(axes: Axes, rows: Sequence[Report]) -> None:
    for order, at, of_order, width in _bars(rows):
        device = [100 * row["device_hit_rate"] for row in of_order]
        host = [100 * row["host_hit_rate"] for row in of_order]
        look: dict[str, Any] = {"width": width, "edgecolor": OUTLINES[order], "linewidth": 0.7}
        axes.bar(at, device, color=COLOURS[order], **look)
        tops = axes.bar(at, host, bottom=device, color="white", hatch=HATCH, **look)
        axes.bar_label(tops, [f"{100 * row['hit_rate']:.0f}" for row in of_order], padding=1, fontsize=6.5)
    _batches(axes, rows)
    axes.set_ylim(0, 105)
    axes.set_title("prompt tokens from the cache, %", loc="left", fontsize=9)


def _times(axes: Axes, rows: Sequence[Report]) -> None:
    for order, at, of_order, width in _bars(rows):
        look: dict[str, Any] = {"edgecolor": OUTLINES[order], "linewidth": 0.7}
        bars = axes.bar(at, [row["ttft_ms"] for row in of_order], width, color=COLOURS[order], **look)
        if order != BASELINE:
            changes = [f"{100 * row['ttft_change']:+.0f}%".replace("-", "\N{MINUS SIGN}") for row in of_order]
            axes.bar_label(bars, changes, padding=1, fontsize=6.5)
    _batches(axes, rows)
    axes.margins(y=0.1)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("mean time to the first token, ms, and against lru", loc="left", fontsize=9)


def _bars(rows: Sequence[Report]) -> list[tuple[str, list[float], list[Report], float]]:
    """For each order: its name, where its bars stand, its rows by batch, and a bar's width."""
    orders = list(dict.fromkeys(row["order"] for row in rows))
    step = 0.84 / len(orders)
    found = []
    for number, order in enumerate(orders):
        of_order = [row for row in rows if row["order"] == order]
        at = [place + step * (number - (len(orders) - 1) / 2) for place in range(len(of_order))]
        found.append((order, at, of_order, 0.88 * step))
    return found


def _batches(axes: Axes, rows: Sequence[Report]) -> None:
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("sessions live at once")


def _legend(orders: set[str]) -> list[Patch]:
    grey = "#777777"
    return [
        *(
            Patch(facecolor=colour, edgecolor=OUTLINES[order], label=NAMES.get(order, order))
            for order, colour in COLOURS.items()
            if order in orders
        ),
        Patch(color=grey, label="from the device"),
        Patch(facecolor="white", edgecolor=grey, hatch=HATCH, label="from the host"),
    ]


def main(arguments: Sequence[str]) -> int:
    """Draw a result that was kept."""
    return draw_kept(arguments, __doc__, plot)


if __name__ == "__main__":
    start(main)
