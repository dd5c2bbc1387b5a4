"""Draws what `bench swebench` found: hit rates by tier above, times to the first token below, a column for each level.

python -m agentcache.bench.swebench_plot out.svg result.json
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agentcache.bench.starting import start
from agentcache.bench.swebench_report import BASELINE, ENGINE, LAB, Report

COLOURS = {"lru": "#e9a26a", "session": "#6a9fd4", "ert": "#5aa786", "clairvoyant": "#b9a3cf"}
HOST = "#c9c9c9"
LEVELS = {LAB: "in the lab", ENGINE: "on the engine"}


def plot(result: Report, path: Path) -> None:
    """An .svg or .png; the same result is the same file."""
    style = mpl.rc_context(
        {
            "svg.hashsalt": "agentcache",
            "svg.fonttype": "none",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
        }
    )
    levels = [level for level in LEVELS if level in result]
    with style:
        figure = Figure(figsize=(0.5 + 5.5 * len(levels), 6), layout="constrained")
        axes = figure.subplots(2, len(levels), squeeze=False)
        for column, level in enumerate(levels):
            found = result[level]
            _hits(axes[0][column], found["rows"])
            _times(axes[1][column], found["rows"])
            axes[0][column].set_title(f"{found['trace']}, {LEVELS[level]}\nprompt tokens from the cache, %")
            axes[1][column].set_title("mean time to the first token, ms")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _hits(axes: Axes, rows: Sequence[Report]) -> None:
    for number, order, at, of_order, width in _bars(rows):
        device = [100 * row["device_hit_rate"] for row in of_order]
        host = [100 * row["host_hit_rate"] for row in of_order]
        axes.bar(at, device, 0.92 * width, color=COLOURS[order], label=order)
        axes.bar(at, host, 0.92 * width, bottom=device, color=HOST, label="" if number else "from the host")
    _batches(axes, rows)
    axes.set_ylim(0, 103)


def _times(axes: Axes, rows: Sequence[Report]) -> None:
    for _, order, at, of_order, width in _bars(rows):
        bars = axes.bar(at, [row["ttft_ms"] for row in of_order], 0.92 * width, color=COLOURS[order])
        if order != BASELINE:
            changes = [f"{100 * row['ttft_change']:+.0f} %" for row in of_order]
            axes.bar_label(bars, changes, padding=2, fontsize=7)
    _batches(axes, rows)


def _bars(rows: Sequence[Report]) -> list[tuple[int, str, list[float], list[Report], float]]:
    """For each order: its number and name, where its bars stand, its rows by batch, and a bar's width."""
    orders = list(dict.fromkeys(row["order"] for row in rows))
    width = 0.8 / len(orders)
    found = []
    for number, order in enumerate(orders):
        of_order = [row for row in rows if row["order"] == order]
        at = [place - 0.4 + width * (number + 0.5) for place in range(len(of_order))]
        found.append((number, order, at, of_order, width))
    return found


def _batches(axes: Axes, rows: Sequence[Report]) -> None:
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    axes.set_xticks(range(len(batches)), [str(batch) for batch in batches])
    axes.set_xlabel("sessions live at once")


def main(arguments: Sequence[str]) -> int:
    """Draw a result that was kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="an .svg or .png file")
    parser.add_argument("result", type=Path, help="what --json printed")
    options = parser.parse_args(arguments)
    plot(json.loads(options.result.read_text(encoding="utf-8")), options.out)
    return 0


if __name__ == "__main__":
    start(main)
