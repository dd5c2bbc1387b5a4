"""Rules for the Rust sources. Functions are found by their indentation, which rustfmt vouches for."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from tests.house.sizes import FUNCTION_LINES
from tests.house.source import Source

FUNCTION = re.compile(r"^( *)(?:pub(?:\([^)]*\))? |const |async |unsafe |extern \"\w+\" )*fn (\w+)")
NOT_CODE = re.compile(r'//.*|"(?:\\.|[^"\\])*"')
UNSAFE = re.compile(r"\bunsafe\b")
OWES_A_REASON = re.compile(r"\bunsafe (?:\{|impl\b)")  # in an unsafe function its blocks do
FORBIDDEN = re.compile(r"^#!\[forbid\([^)]*\bunsafe_code\b", re.M)
SAFETY_ABOVE = 3
TABLES = ("dependencies", "dev-dependencies", "build-dependencies")


def function_lines(source: Source) -> Iterator[str]:
    for name, length in _functions(source.text.splitlines()):
        if length > FUNCTION_LINES:
            yield f"{source.path}::function lines::{name} {length} > {FUNCTION_LINES}"


def _functions(lines: list[str]) -> Iterator[tuple[str, int]]:
    """Every function: from `fn` to the brace at the same indentation."""
    for start, line in enumerate(lines):
        if found := FUNCTION.match(line):
            indent, name = found.groups()
            ends = (n for n, end in enumerate(lines[start:], 1) if _ends(end, indent))
            yield name, next(ends, len(lines) - start)


def _ends(line: str, indent: str) -> bool:
    """A brace that closes the body, or the end of a signature without a body."""
    here = line.startswith(indent) and not line.startswith(f"{indent} ")
    return here and line.endswith(("}", ";"))


def uses_unsafe(source: Source) -> Iterator[str]:
    """For the crate that has none."""
    for number in _lines_with(UNSAFE, source):
        yield f"{source.path}::unsafe::line {number}"


def unsafe_without_reason(source: Source) -> Iterator[str]:
    """`SAFETY:` says why, in a comment right above."""
    lines = source.text.splitlines()
    for number in _lines_with(OWES_A_REASON, source):
        above = lines[max(0, number - 1 - SAFETY_ABOVE) : number]
        if not any("SAFETY:" in line for line in above):
            yield f"{source.path}::unsafe::no SAFETY: line {number}"


def _lines_with(what: re.Pattern[str], source: Source) -> Iterator[int]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if what.search(NOT_CODE.sub("", line)):
            yield number


def allows_unsafe(source: Source) -> Iterator[str]:
    """For the root of the crate that has none: the compiler has to know."""
    if not FORBIDDEN.search(source.text):
        yield f"{source.path}::unsafe::no #![forbid(unsafe_code)]"


def loose_pins(source: Source) -> Iterator[str]:
    """No lock file is kept, so every crate that we name ourselves is named with `=` and its version."""
    for name, wanted in _dependencies(tomllib.loads(source.text)):
        table = wanted if isinstance(wanted, dict) else {"version": wanted}
        inherited = table.get("workspace") or "path" in table
        if not inherited and not re.fullmatch(r"=\d+\.\d+\.\d+\S*", table.get("version", "")):
            yield f"{source.path}::loose pin::{name}"


def _dependencies(manifest: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    places = [manifest, manifest.get("workspace", {}), *manifest.get("target", {}).values()]
    for place in places:
        for table in TABLES:
            yield from place.get(table, {}).items()
