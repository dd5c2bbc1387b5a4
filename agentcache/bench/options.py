"""What the benchmarks' command lines do alike: words that are checked before the work, one answer behind it."""

import argparse
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from rich.console import Console

from agentcache.build import CORES
from agentcache.config import resolve
from agentcache.errors import CacheError, Kind

WIDE = 150
"""Columns of a table that goes to a file."""


class Sized(Protocol):
    """A dataclass of what options say."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


Size = TypeVar("Size", bound=Sized)
Plotter = Callable[[Sequence[Any], Path], None]
"""Draws results (what --json prints of each run) into a file."""


def parser_of(command: str, text: str | None) -> argparse.ArgumentParser:
    """A parser whose help shows `text` as it is written."""
    return argparse.ArgumentParser(
        prog=f"agentcache bench {command}",
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def positive(text: str) -> int:
    """The type of an option that counts something."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def natural(text: str) -> int:
    """As `positive`, where 0 means something of its own."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def add_core(parser: argparse.ArgumentParser, level: str = "") -> None:
    """--core, for the engines of a `level`."""
    parser.add_argument(
        "--core",
        choices=sorted(CORES),
        default=resolve({}, os.environ).settings.core,
        help=f"{level}tree core; the default is that of the settings",
    )


def add_answers(parser: argparse.ArgumentParser, plots: bool = True) -> None:
    """--json, and --plot where something draws."""
    if plots:
        parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it, as .svg or .png")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def chosen_by(options: argparse.Namespace, usual: Size, prefix: str = "") -> Size:
    """The dataclass `usual`, with what was said in the options that are named as its fields, behind `prefix`."""
    said = {field.name: getattr(options, prefix + field.name, None) for field in fields(usual)}
    return replace(usual, **{name: value for name, value in said.items() if value is not None})


def answer(result: Any, as_json: bool, show: Callable[[Console], None]) -> None:
    """One JSON object on stdout, or tables."""
    if as_json:
        print(json.dumps(result), flush=True)
    else:
        show(Console(width=None if sys.stdout.isatty() else WIDE))


# looked at before the work, so that none of it is lost


def plotter(path: Path, drawer: str) -> Plotter:
    """`drawer` (`module:function`, found only now: matplotlib is an extra) for the file at `path`.

    Errors  BAD_CONFIG for a file that could not be drawn
    """
    need_matplotlib("--plot")
    if path.suffix not in (".svg", ".png") or not path.parent.is_dir():
        raise CacheError(
            Kind.BAD_CONFIG, f"--plot draws an .svg or a .png in a folder that is there, not {path}"
        )
    need_place(path)
    found: Plotter = pkgutil.resolve_name(drawer)
    return found


def need_matplotlib(flag: str) -> None:
    """Errors: BAD_CONFIG, with the command that installs it."""
    if not find_spec("matplotlib"):
        raise CacheError(Kind.BAD_CONFIG, f"{flag} needs matplotlib: pip install 'agentcache[plots]'")


def need_place(path: Path) -> None:
    """Errors: BAD_CONFIG where no file can be written at `path`."""
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CacheError(Kind.BAD_CONFIG, f"{path} is no file that can be written; name another")


def need_folder(path: Path) -> None:
    """Make the folder at `path` if it is not there. Errors: BAD_CONFIG where that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(Kind.BAD_CONFIG, f"{path} is no folder to write to: {error.strerror}") from error
