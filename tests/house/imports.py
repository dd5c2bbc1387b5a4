"""Import rules: none inside functions, no cycles, whether for types or for work."""

import ast
import graphlib
from collections.abc import Iterator, Sequence

from tests.house.source import Source

LATE = frozenset({"import_module", "__import__", "resolve_name"})


def late_imports(source: Source) -> Iterator[str]:
    """Imports inside functions, in disguise too."""
    for function in source.functions:
        for node in ast.walk(function):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield f"{source.path}::late import::{function.name} line {node.lineno}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and (name := _called(node)) in LATE:
            yield f"{source.path}::late import::{name} line {node.lineno}"


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", "") or getattr(call.func, "id", "")


def imported(source: Source, known: set[str]) -> set[str]:
    """The modules of `known` that this one names in any import statement, those for typing included."""
    found: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _base(source, node)
            submodules = {f"{base}.{alias.name}" for alias in node.names} & known
            found |= submodules or {base}
    return (found & known) - {source.module}


def _base(source: Source, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = source.module.split(".")
    package = package[: len(package) - node.level + source.path.endswith("__init__.py")]
    return ".".join([*package, *([node.module] if node.module else [])])


def cycles(sources: Sequence[Source]) -> Iterator[str]:
    """One line for the first cycle there is."""
    known = {source.module for source in sources}
    graph = {source.module: imported(source, known) for source in sources}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield "import cycle: " + " -> ".join(reversed(error.args[1]))
