"""Rules for tests: nothing is skipped in silence, nothing sleeps, nothing that users have is mocked."""

import ast
from collections.abc import Iterator

from tests.house.source import Source

SKIPS = frozenset({"skip", "skipif", "skipIf", "xfail", "importorskip", "skipTest", "SkipTest"})
MOCKS = frozenset({"unittest.mock", "mock", "pytest_mock"})


def unsound(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        match node:
            case ast.Attribute(attr=name) if name in SKIPS:
                yield f"{source.path}::skip::{name} line {node.lineno} (use a marker of pyproject.toml)"
            case ast.Call(func=ast.Attribute(attr="sleep", value=ast.Name(id=module)), args=[argument]):
                if module == "time" or not (isinstance(argument, ast.Constant) and argument.value == 0):
                    yield f"{source.path}::sleep::{module}.sleep line {node.lineno} (wait for an event)"
            case ast.Import(names=names) if MOCKS & {alias.name for alias in names}:
                yield f"{source.path}::mock::import line {node.lineno}"
            case ast.ImportFrom(module=module) if module in MOCKS or (
                module == "unittest" and "mock" in {alias.name for alias in node.names}
            ):
                yield f"{source.path}::mock::import line {node.lineno}"


def kinds_named(source: Source) -> set[str]:
    """Which members of `Kind` a test names."""
    attributes = (node for node in ast.walk(source.tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "Kind"}
