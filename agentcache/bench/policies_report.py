"""Plots and a self-contained page of what `bench policies` found; draws from the JSON, also later:

python -m agentcache.bench.policies_report policies.json FOLDER
"""

import argparse
import base64
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl
from matplotlib.figure import Figure

from agentcache.bench.starting import start

Rows = Sequence[Mapping[str, Any]]
COLOURS = {
    "lru": "#9a9a9a",
    "session": "#e08e0b",
    "session-noclose": "#c0392b",
    "ert": "#1f6fb2",
    "ert-noclose": "#6baed6",
    "ert+hint~": "#31a354",
    "ert+hint": "#006d2c",
    "clairvoyant": "#000000",
    "unbounded": "#000000",
}
DASHED = ("clairvoyant", "unbounded")
FIGURE = (7.5, 3.6)


def write(rows: Rows, folder: Path) -> None:
    """`policies.json`, one PNG for each table, and `policies.html` with all of it inside."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policies.json").write_text(json.dumps({"rows": list(rows)}, indent=1) + "\n")
    shown = []
    for number, (title, group) in enumerate(_tables(rows), 1):
        picture = draw(title, group)
        (folder / f"policies-{number}.png").write_bytes(picture)
        shown.append({"title": title, "rows": group, "picture": base64.b64encode(picture).decode()})
    (folder / "policies.html").write_text(PAGE.render(tables=shown, percent=_percent))


def draw(title: str, rows: Rows) -> bytes:
    """Hit rate and mean time to the first token by room, a line for each arm. A PNG."""
    style = mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    with style:
        figure = Figure(figsize=FIGURE, layout="constrained")
        hits, times = figure.subplots(1, 2)
        for arm, of_arm in groupby(sorted(rows, key=lambda row: str(row["arm"])), key=lambda row: row["arm"]):
            points = sorted(of_arm, key=lambda row: (row["capacity"], row["host_capacity"]))
            rooms = [_room(row) for row in points]
            line = {"color": COLOURS.get(arm), "linestyle": "--" if arm in DASHED else "-", "marker": "."}
            hits.plot(rooms, [100 * row["hit_rate"] for row in points], label=arm, **line)
            times.plot(rooms, [row["ttft_ms"] / 1000 for row in points], **line)
        hits.set(title="prompt tokens from the cache, %", xlabel="room, mean session peaks")
        times.set(title="mean time to the first token, s", xlabel="room, mean session peaks", yscale="log")
        figure.suptitle(title, fontsize=9)
        figure.legend(loc="outside lower center", ncols=5, frameon=False)
        file = io.BytesIO()
        figure.savefig(file, dpi=150, metadata={"Software": None})
        return file.getvalue()


def _tables(rows: Rows) -> Iterator[tuple[str, Rows]]:
    for (trace, tiers, queue, scheduler), group in groupby(
        rows, key=lambda row: (row["trace"], row["tiers"], row["queue"], row["scheduler"])
    ):
        queued = f"one prefill at a time, {scheduler}" if queue else "no queue"
        yield f"{trace}: {'device and host' if tiers > 1 else 'device'}, {queued}", list(group)


def _room(row: Mapping[str, Any]) -> str:
    return f"{row['capacity']:g}" + (f" + {row['host_capacity']:g}" if row["host_capacity"] else "")


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


PAGE = jinja2.Environment(autoescape=True).from_string(
    """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Eviction orders</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; }
</style>
<h1>Eviction orders</h1>
<p>Rooms in mean session peaks. Hit rate of prompt tokens; share of the gap from LRU to the clairvoyant order, with its
standard error over seeds (empty where that gap is within noise); times are modelled.</p>
{% for table in tables %}
<h2>{{ table.title }}</h2>
<img alt="{{ table.title }}" src="data:image/png;base64,{{ table.picture }}">
<table><tr><th>order<th>room<th>host<th>hit rate<th>on device<th>gap closed<th>error<th>first token<th>p95</tr>
{% for row in table.rows %}<tr><td>{{ row.arm }}<td>{{ "%g" | format(row.capacity) }}
<td>{{ "%g" | format(row.host_capacity) if row.host_capacity }}
<td>{{ percent(row.hit_rate) }}<td>{{ percent(row.device_hit_rate) }}
<td>{{ percent(row.gap_closed) }}<td>{{ percent(row.stderr) }}
<td>{{ "%.2f s" | format(row.ttft_ms / 1000) }}<td>{{ "%.2f s" | format(row.ttft_p95_ms / 1000) }}</tr>
{% endfor %}</table>
{% endfor %}
</html>
"""
)


def main(arguments: Sequence[str]) -> int:
    """Draw again what a run wrote."""
    parser = argparse.ArgumentParser(prog="python -m agentcache.bench.policies_report", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    write(json.loads(options.file.read_text())["rows"], options.folder)
    return 0


if __name__ == "__main__":
    start(main)
