"""How the benchmarks' pictures look and are saved; needs the extra `plots`."""

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from agentcache.bench.options import Plotter, need_place
from agentcache.errors import CacheError, Kind

STYLE = {
    "svg.hashsalt": "agentcache",  # the same result is the same file
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
DPI = 120


def styled(more: Mapping[str, Any] = MappingProxyType({})) -> AbstractContextManager[None]:
    """What is drawn within looks as all pictures do, but for `more`."""
    style: Any = {**STYLE, **more}  # matplotlib's stubs list every key
    return mpl.rc_context(style)


def save(figure: Figure, path: Path) -> None:
    """An .svg or .png; the same figure is the same file. Errors: BAD_CONFIG for a file that cannot be written."""
    metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
    try:
        figure.savefig(path, dpi=DPI, metadata=metadata)
    except OSError as error:
        raise CacheError(Kind.BAD_CONFIG, f"{path} cannot be written: {error.strerror}") from error


def draw_kept(arguments: Sequence[str], text: str | None, draw: Plotter) -> int:
    """The command that draws what --json printed, of one run or of several; `text` is its module's.

    Errors  BAD_REQUEST for a file that is no such result
    """
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="an .svg or .png file")
    parser.add_argument("results", type=Path, nargs="+", help="what --json printed")
    options = parser.parse_args(arguments)
    need_place(options.out)
    results = [_kept(path) for path in options.results]
    try:
        draw(results, options.out)
    except (KeyError, TypeError, ValueError) as error:
        names = ", ".join(map(str, options.results))
        raise CacheError(Kind.BAD_REQUEST, f"{names}: not what --json of this benchmark printed") from error
    return 0


def _kept(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CacheError(Kind.BAD_REQUEST, f"{path} is no file of JSON: {error}") from error
