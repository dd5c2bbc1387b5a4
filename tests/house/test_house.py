"""The rules of the house, over the whole tree."""

import re
import statistics
import tomllib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

from agentcache.errors import Kind
from tests.house import imports, rust, sizes, testing, words
from tests.house.excused import EXCUSED
from tests.house.source import (
    PACKAGES,
    ROOT,
    Source,
    crate_manifests,
    python_files,
    require_none,
    rust_files,
    text_files,
)

Rule = Callable[[Source], Iterator[str]]

OURS = python_files(*PACKAGES)
TESTS = python_files("tests")
EVERYTHING = [*OURS, *TESTS, *python_files("bench", "examples", "tools")]
RUST = rust_files()
SAFE = [source for source in RUST if "/_rust/core/" in source.path]
TEXTS = text_files()

SCOPES: list[tuple[Rule, list[Source]]] = [
    *((rule, EVERYTHING) for rule in (*sizes.EVERYWHERE, words.empty_names)),
    *((rule, OURS) for rule in (*sizes.IN_PACKAGES, imports.late_imports)),
    (testing.unsound, TESTS),
    *((rule, RUST) for rule in (sizes.file_lines, rust.function_lines, rust.unsafe_without_reason)),
    (rust.uses_unsafe, SAFE),
    (rust.allows_unsafe, [source for source in SAFE if source.path.endswith("/core/src/lib.rs")]),
    (rust.loose_pins, crate_manifests()),
    (words.machine_words, TEXTS),
]


def _excuse(breach: str) -> str:
    return breach.split(" line ")[0] if " line " in breach else re.sub(r" \d+ > \d+$", "", breach)


@pytest.mark.parametrize(("rule", "sources"), SCOPES, ids=[rule.__name__ for rule, _ in SCOPES])
def test_rule_holds(rule: Rule, sources: list[Source]) -> None:
    breaches = (breach for source in sources for breach in rule(source))
    require_none(breach for breach in breaches if _excuse(breach) not in EXCUSED)


def test_every_excuse_still_applies() -> None:
    breaches = {_excuse(breach) for rule, sources in SCOPES for source in sources for breach in rule(source)}
    require_none(f"{name}: excused, but no longer a breach" for name in EXCUSED.keys() - breaches)


def test_half_of_all_functions_are_short() -> None:
    lengths = [sizes.length(function) for source in OURS for function in source.functions]
    assert statistics.median(lengths) <= sizes.MEDIAN_FUNCTION_LINES


def test_no_import_cycles() -> None:
    require_none(imports.cycles(OURS))


def test_every_kind_of_error_is_provoked_by_a_test() -> None:
    named = {kind for source in TESTS if "/house/" not in source.path for kind in testing.kinds_named(source)}
    require_none(f"no test provokes Kind.{kind.name}" for kind in Kind if kind.name not in named)


def test_every_marker_says_what_it_needs_and_how_to_run_it() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    markers = dict(marker.split(":", 1) for marker in options["markers"])
    assert {"system", "data", "gpu", "browser"} <= markers.keys()
    require_none(
        f"marker {name}: says not how to run it" for name, text in markers.items() if "=" not in text
    )
    assert options["filterwarnings"][0] == "error"
    assert options["timeout"] == 120


def test_no_example_has_a_deadline() -> None:
    """A machine may stand still for longer."""
    assert settings().deadline is None
