"""Draws what `bench multiturn` found, a row for each result.

python -m agentcache.bench.multiturn_plot out.svg tiny-all.json tiny-swa.json
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from agentcache.bench.multiturn_report import L1, L1_L2, L1_L2_L3, TITLES, UNLIMITED, Report
from agentcache.bench.pictures import draw_kept, save, styled
from agentcache.bench.starting import start

COLOURS = {UNLIMITED: "#9a9a9a", L1: "#c0392b", L1_L2: "#e08e0b", L1_L2_L3: "#1f6fb2"}


def plot(results: Sequence[Report], path: Path) -> None:
    """Hit rate and time to the first token by round, and the late rounds' input throughput."""
    with styled({"axes.grid": True, "grid.alpha": 0.25}):
        figure = Figure(figsize=(11, 3.1 * len(results) + 0.3), layout="constrained")
        rows = figure.subplots(len(results), 3, squeeze=False, width_ratios=(3, 3, 2))
        for result, (hits, times, speeds) in zip(results, rows, strict=True):
            shown = {UNLIMITED: result["unlimited"], **result["configs"]}
            _by_round(hits, shown, "hit_rate", 100)
            _by_round(times, shown, "ttft_ms", 1)
            _speeds(speeds, shown)
            hits.set(title=f"{result['model']}: prompt tokens from the cache, %", ylim=(0, 103))
            times.set(title="mean time to the first token, ms", yscale="log")
            times.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            times.yaxis.set_major_formatter("{x:,.0f}")
            times.yaxis.set_minor_formatter(NullFormatter())
            first = result["shape"]["rounds"] // 2 + 1
            speeds.set(title=f"input tokens/s, from round {first}")
        handles, labels = rows[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        save(figure, path)


def _by_round(axes: Axes, shown: Report, field: str, times: float) -> None:
    for name, config in shown.items():
        numbers = [one["round"] for one in config["rounds"]]
        values = [times * one[field] for one in config["rounds"]]
        style, order = ("--", 3) if name == UNLIMITED else ("-", 2)
        axes.plot(numbers, values, style, color=COLOURS[name], label=TITLES[name], zorder=order)
    axes.set_xlabel("round")


def _speeds(axes: Axes, shown: Report) -> None:
    values = [config["effective_input_tokens_per_s"] for config in shown.values()]
    bars = axes.barh(
        [TITLES[name] for name in shown], values, color=[COLOURS[name] for name in shown], height=0.6
    )
    axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3)
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=False, axis="y")


def main(arguments: Sequence[str]) -> int:
    """Draw results that were kept."""
    return draw_kept(arguments, __doc__, plot)


if __name__ == "__main__":
    start(main)
