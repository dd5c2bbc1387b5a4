"""The list of reported faults names tests that exist."""

import ast
import re
import tomllib

from tests.house.source import ROOT, python_files, require_none

FAULTS: dict[str, list[str]] = tomllib.loads((ROOT / "tests" / "reported_faults.toml").read_text())
NUMBER = re.compile(r"R\d{3}")
SAID = re.compile(r"later: [C-F]|(by construction|not planned|open): \w.*")


def test_every_reported_fault_has_an_answer_and_every_named_test_exists() -> None:
    """An answer is a test, a reason, or the letter of the issue that owes one."""
    existing = {
        f"{source.path.removeprefix('tests/')}::{function.name}"
        for source in python_files("tests")
        for function in source.functions
        if function.name.startswith("test_")
    }
    answers = [(number, answer) for number, found in FAULTS.items() for answer in found or [""]]
    require_none(
        f"{number}: neither a test nor a reason: {answer!r}"
        for number, answer in answers
        if answer not in existing and not SAID.fullmatch(answer)
    )
    assert list(FAULTS) == sorted(FAULTS)
    assert len(FAULTS) == 189


def test_every_number_in_a_docstring_is_in_the_list() -> None:
    """A test that names a report is among that report's answers."""
    naming = (
        (number, f"{source.path.removeprefix('tests/')}::{function.name}")
        for source in python_files("tests")
        for function in source.functions
        for number in NUMBER.findall(ast.get_docstring(function) or "")
    )
    require_none(
        f"{number} does not list {test}" for number, test in naming if test not in FAULTS.get(number, [])
    )
