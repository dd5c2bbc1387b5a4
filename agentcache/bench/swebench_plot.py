"""Draws what `bench swebench` found: hit rates by tier above, times to the first token below, a column for each level.

python -m agentcache.bench.swebench_plot out.svg result.json [the other level's result.json]
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from agentcache.bench.pictures import draw_kept, save, styled
from agentcache.bench.starting import start
from agentcache.bench.swebench_report import BASELINE, ENGINE, LAB, Report

COLOURS = {"lru": "#f0c48a", "session": "#6a9fd4", "ert": "#1f5c46"}
"""Light, middling and dark, so that they differ without colour too."""
BOUND = "clairvoyant"
BOUND_STYLE: dict[str, Any] = {"color": "black", "linestyle": (0, (4, 2)), "linewidth": 1.1}
HATCH = "//////"
WIDTH = 0.27
"""Of a bar, where the batches are 1 apart."""
TITLES = {LAB: "the real cache in the lab, times modelled", ENGINE: "{model} on an engine, times measured"}
HELD = {
    LAB: "{sessions} sessions of {trace}; device {device_pages:,} pages of 64 tokens, host {host_pages:,}",
    ENGINE: "{sessions} sessions of up to {turns} calls; room for {device_sessions:g} of them on the device, for "
    "{host_sessions:g} on the host",
}
UNITS = {LAB: ("s", 1000), ENGINE: ("ms", 1)}


def plot(results: Sequence[Report], path: Path) -> None:
    """An .svg or .png of one run, or of one for each level; the same results are the same file."""
    levels = {level: one[level] for level in (LAB, ENGINE) for one in results if level in one}
    with styled({"hatch.linewidth": 0.7}):
        figure = Figure(figsize=(0.5 + 4.5 * len(levels), 5.4), layout="constrained")
        axes = figure.subplots(2, len(levels), squeeze=False)
        for (level, found), (hits, times) in zip(levels.items(), axes.T, strict=True):
            shape = {"trace": found["trace"], **found["shape"]}
            _hits(hits, found["rows"])
            _times(times, found["rows"], *UNITS[level])
            hits.set_title(TITLES[level].format(**shape), loc="left", pad=19, weight="bold")
            hits.text(0, 1.04, HELD[level].format(**shape), transform=hits.transAxes, fontsize=7.5)
        figure.suptitle("SWE-bench agents, more and more at once in a cache of one size", x=0.02, ha="left")
        figure.legend(handles=_legend(), loc="outside lower center", ncols=6)
        save(figure, path)


def _hits(axes: Axes, rows: Sequence[Report]) -> None:
    for order, at, of_order in _bars(rows):
        device = [100 * row["device_hit_rate"] for row in of_order]
        host = [100 * row["host_hit_rate"] for row in of_order]
        look: dict[str, Any] = {"width": 0.92 * WIDTH, "edgecolor": COLOURS[order], "linewidth": 0.8}
        axes.bar(at, device, color=COLOURS[order], **look)
        tops = axes.bar(at, host, bottom=device, color="white", hatch=HATCH, **look)
        axes.bar_label(tops, [f"{100 * row['hit_rate']:.0f}" for row in of_order], padding=2, fontsize=7.5)
    _bound(axes, rows, "hit_rate", 100)
    _batches(axes, rows)
    axes.set_ylim(0, 105)
    axes.set_ylabel("prompt tokens from the cache, %")


def _times(axes: Axes, rows: Sequence[Report], unit: str, parts: float) -> None:
    for order, at, of_order in _bars(rows):
        times = [row["ttft_ms"] / parts for row in of_order]
        bars = axes.bar(at, times, 0.92 * WIDTH, color=COLOURS[order])
        if order != BASELINE:
            changes = [
                f"{100 * row['ttft_change']:+.0f} %".replace("-", "\N{MINUS SIGN}") for row in of_order
            ]
            axes.bar_label(bars, changes, padding=2, fontsize=7.5)
    _bound(axes, rows, "ttft_ms", 1 / parts)
    _batches(axes, rows)
    axes.set_ylabel(f"mean time to the first token, {unit}")


def _bars(rows: Sequence[Report]) -> list[tuple[str, list[float], list[Report]]]:
    """For each order: its name, where its bars stand, and its rows by batch."""
    found = []
    for number, order in enumerate(COLOURS):
        of_order = [row for row in rows if row["order"] == order]
        at = [place + WIDTH * (number - (len(COLOURS) - 1) / 2) for place in range(len(of_order))]
        found.append((order, at, of_order))
    return found


def _bound(axes: Axes, rows: Sequence[Report], field: str, times: float) -> None:
    """A line over every batch whose bound is known."""
    known = [times * row[field] for row in rows if row["order"] == BOUND]
    half = WIDTH * len(COLOURS) / 2 + 0.03
    for place, height in enumerate(known):
        axes.plot((place - half, place + half), (height, height), **BOUND_STYLE)


def _batches(axes: Axes, rows: Sequence[Report]) -> None:
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel("sessions live at once")


def _legend() -> list[Patch | Line2D]:
    grey = "#777777"
    return [
        *(Patch(color=colour, label=order) for order, colour in COLOURS.items()),
        Patch(color=grey, label="from the device"),
        Patch(facecolor="white", edgecolor=grey, hatch=HATCH, label="from the host"),
        Line2D([], [], **BOUND_STYLE, label="bound: knows the future"),
    ]


def main(arguments: Sequence[str]) -> int:
    """Draw a result that was kept."""
    return draw_kept(arguments, __doc__, plot)


if __name__ == "__main__":
    start(main)
