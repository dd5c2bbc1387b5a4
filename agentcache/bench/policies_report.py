"""Plots and a self-contained page of what `bench policies` found; draws from the JSON, also later:

python -m agentcache.bench.policies_report policies.json FOLDER
"""

import argparse
import base64
import io
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from agentcache.bench.pictures import styled
from agentcache.bench.starting import start
from agentcache.errors import CacheError, Kind
from agentcache.replay.lab.shown import grouped, room

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
NEEDED = frozenset({
    "trace", "arm", "policy", "seeds", "capacity", "host_capacity", "external_capacity", "tiers", "live", "queue",
    "scheduler", "hit_rate", "device_hit_rate", "gap_closed", "stderr", "ttft_ms", "ttft_p95_ms",
})  # fmt: skip
"""What is drawn of a row."""


def write(result: Mapping[str, Any], folder: Path) -> None:
    """`policies.json`, one PNG for each table, and `policies.html` with all of it inside.

    Errors  BAD_REQUEST for a folder that cannot be written to
    """
    shown = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "policies.json").write_text(json.dumps(result, indent=1) + "\n")
        for number, (title, group) in enumerate(grouped(result["rows"]), 1):
            picture = draw(title, group)
            (folder / f"policies-{number}.png").write_bytes(picture)
            shown.append({"title": title, "rows": group, "picture": base64.b64encode(picture).decode()})
        (folder / "policies.html").write_text(PAGE.render(tables=shown, percent=_percent, room=room))
    except OSError as error:
        said = f"the report cannot be written to {folder}: {error.strerror}"
        raise CacheError(Kind.BAD_REQUEST, f"{said}; name another folder") from error


def draw(title: str, rows: Rows) -> bytes:
    """Hit rate and mean time to the first token by room, a line for each arm. A PNG."""
    with styled():
        figure = Figure(figsize=FIGURE, layout="constrained")
        hits, times = figure.subplots(1, 2)
        for arm, of_arm in groupby(sorted(rows, key=lambda row: str(row["arm"])), key=lambda row: row["arm"]):
            points = sorted(
                of_arm, key=lambda row: (row["capacity"], row["host_capacity"], row["external_capacity"])
            )
            rooms = [room(row) for row in points]
            line = {"color": COLOURS.get(arm), "linestyle": "--" if arm in DASHED else "-", "marker": "."}
            hits.plot(rooms, [100 * row["hit_rate"] for row in points], label=arm, **line)
            times.plot(rooms, [row["ttft_ms"] / 1000 for row in points], **line)
        hits.set(title="prompt tokens from the cache, %", xlabel="room, mean session peaks")
        times.set(title="mean time to the first token, s", xlabel="room, mean session peaks", yscale="log")
        figure.suptitle(title, fontsize=9, parse_math=False)
        figure.legend(loc="outside lower center", ncols=5)
        file = io.BytesIO()
        figure.savefig(file, dpi=150, metadata={"Software": None})
        return file.getvalue()


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
standard error over seeds (empty where that gap is within noise, or the ceiling, a good order and no proof, lies
below lru); times are modelled.</p>
{% for table in tables %}
<h2>{{ table.title }}</h2>
<img alt="{{ table.title }}" src="data:image/png;base64,{{ table.picture }}">
<table><tr><th>order<th>room<th>hit rate<th>on device<th>gap closed<th>error<th>first token<th>p95</tr>
{% for row in table.rows %}<tr><td>{{ row.arm }}<td>{{ room(row) }}
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
    write(_read(options.file), options.folder)
    return 0


def _read(file: Path) -> Mapping[str, Any]:
    """What a run wrote. Errors: BAD_REQUEST for anything else."""
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        missing = NEEDED - set.intersection(*(set(row) for row in result["rows"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = f"{file} is not what `agentcache bench policies --json` prints: {error}"
        raise CacheError(Kind.BAD_REQUEST, said) from error
    if missing:
        said = f"the rows of {file} have no {', '.join(sorted(missing))}: make it again with this version"
        raise CacheError(Kind.BAD_REQUEST, said)
    return dict(result)


if __name__ == "__main__":
    start(main)
