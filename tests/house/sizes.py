"""Size rules: each takes a file and yields `path::rule::name figure > limit`."""

import ast
from collections.abc import Iterator

from tests.house.source import Source

FILE_LINES = 400
FUNCTION_LINES = 60
MEDIAN_FUNCTION_LINES = 8
NESTING = 3
METHODS = 20
ATTRIBUTES = 15
REQUIRED_METHODS = 8
PARAMETERS = 6
NONE_TESTS_PER_1000_LINES = 25
SMALL_FILE_LINES = 100

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _over(source: Source, rule: str, name: str, figure: int, limit: int) -> Iterator[str]:
    if figure > limit:
        yield f"{source.path}::{rule}::{name} {figure} > {limit}"


def file_lines(source: Source) -> Iterator[str]:
    yield from _over(source, "file lines", "file", source.lines, FILE_LINES)


def function_lines(source: Source) -> Iterator[str]:
    for function in source.functions:
        yield from _over(source, "function lines", function.name, length(function), FUNCTION_LINES)


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, the docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def nesting(source: Source) -> Iterator[str]:
    for function in source.functions:
        depth = max((_depth(statement) for statement in function.body), default=0)
        yield from _over(source, "nesting", function.name, depth, NESTING)


def _depth(node: ast.AST) -> int:
    if isinstance(node, (*DEFINITIONS, ast.ClassDef)):
        return 0
    own = isinstance(node, BLOCKS)
    return own + max((_depth_in(node, child) for child in ast.iter_child_nodes(node)), default=0)


def _depth_in(parent: ast.AST, child: ast.AST) -> int:
    """An `elif` is as deep as its `if`."""
    is_elif = isinstance(parent, ast.If) and isinstance(child, ast.If) and parent.orelse == [child]
    return _depth(child) - is_elif


def parameters(source: Source) -> Iterator[str]:
    for function in source.functions:
        named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        count = sum(argument.arg not in ("self", "cls") for argument in named)
        yield from _over(source, "parameters", function.name, count, PARAMETERS)


def methods(source: Source) -> Iterator[str]:
    for cls in source.classes:
        count = sum(isinstance(member, DEFINITIONS) for member in cls.body)
        yield from _over(source, "methods", cls.name, count, METHODS)


def attributes(source: Source) -> Iterator[str]:
    for cls in source.classes:
        if not _bases(cls) & {"Enum", "StrEnum", "IntEnum"}:
            yield from _over(source, "attributes", cls.name, len(_attributes(cls)), ATTRIBUTES)


def _attributes(cls: ast.ClassDef) -> set[str]:
    fields = {
        m.target.id for m in cls.body if isinstance(m, ast.AnnAssign) and isinstance(m.target, ast.Name)
    }
    own = (node for member in cls.body if isinstance(member, DEFINITIONS) for node in ast.walk(member))
    stores = (node for node in own if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return fields | {n.attr for n in stores if isinstance(n.value, ast.Name) and n.value.id == "self"}


def required_methods(source: Source) -> Iterator[str]:
    """What an implementer of a contract must write: all of a Protocol, or the abstract methods of a class."""
    for cls in source.classes:
        functions = [member for member in cls.body if isinstance(member, DEFINITIONS)]
        if "Protocol" not in _bases(cls):
            functions = [f for f in functions if "abstractmethod" in {_last(d) for d in f.decorator_list}]
        yield from _over(source, "required methods", cls.name, len(functions), REQUIRED_METHODS)


def none_tests(source: Source) -> Iterator[str]:
    """`is None` and `is not None` per 1,000 lines; a small file counts as one of SMALL_FILE_LINES."""
    compares = (node for node in ast.walk(source.tree) if isinstance(node, ast.Compare))
    count = sum(
        isinstance(operator, (ast.Is, ast.IsNot)) and isinstance(right, ast.Constant) and right.value is None
        for node in compares
        for operator, right in zip(node.ops, node.comparators, strict=True)
    )
    allowed = NONE_TESTS_PER_1000_LINES * max(source.lines, SMALL_FILE_LINES) // 1000
    yield from _over(source, "is None tests", "file", count, allowed)


def _bases(cls: ast.ClassDef) -> set[str]:
    return {_last(base) for base in cls.bases}


def _last(node: ast.expr) -> str:
    """The last word of a dotted name, subscripts and calls left out."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=inner) | ast.Call(func=inner):
            return _last(inner)
    return ""


EVERYWHERE = (file_lines, function_lines, nesting, attributes)
IN_PACKAGES = (parameters, methods, required_methods, none_tests)  # builders and machines of tests need more
