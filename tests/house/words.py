"""Word rules: names that say nothing, and words that belong to one machine."""

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from tests.house.source import Source

EMPTY_PARTS = frozenset({"ct", "cd", "xfer", "idx", "idx2", "tmp"})
EMPTY_TYPES = ("Manager", "Helper")
EMPTY_MODULES = frozenset({"utils", "util", "common", "helpers", "helper", "misc"})
OF_PYTEST = frozenset({"tmp_path", "tmp_path_factory"})

HOSTS = frozenset(
    {
        "127.0.0.1",
        "localhost",
        "[::1]",
        "example.com",
        "example.org",
        "example.invalid",
        "github.com",
        "arxiv.org",
    }
)
URL = re.compile(r"\b(?:https?|redis)://(\[[0-9a-f:]+\]|[\w.-]+\.[a-z]{2,}|[\d.]+\d|localhost)", re.I)
INDEX_OPTION = re.compile("--" + r"(?:extra-)?index-url|--" + r"find-links|--" + "trusted-host")
MACHINE_PATH = re.compile(r"(?<![\w.~>}])/(?:work|root|opt|Users|home)/[\w.-]+")
SHARED = re.compile(r"\.\./" + r"shared\b")


def empty_names(source: Source) -> Iterator[str]:
    """Names that this file defines: modules, types, functions, parameters, variables, attributes."""
    path = PurePosixPath(source.path)
    for part in {path.stem, *path.parent.parts} & EMPTY_MODULES:
        yield f"{source.path}::empty name::{part}"
    for name, line in _defined(source.tree):
        if _is_empty(name):
            yield f"{source.path}::empty name::{name} line {line}"


def _is_empty(name: str) -> bool:
    if name in OF_PYTEST:
        return False
    parts = set(name.lower().split("_"))
    return bool(parts & EMPTY_PARTS) or name in EMPTY_MODULES or any(word in name for word in EMPTY_TYPES)


def _defined(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def machine_words(source: Source) -> Iterator[str]:
    """Hosts outside a short list (package registries among them), index options, and paths of one machine."""
    for number, line in enumerate(source.text.splitlines(), 1):
        at = f"line {number}"
        for host in URL.findall(line):
            if host.lower().removeprefix("www.") not in HOSTS:
                yield f"{source.path}::host::{host} {at}"
        for found in INDEX_OPTION.findall(line):
            yield f"{source.path}::package index::{found} {at}"
        for found in MACHINE_PATH.findall(line):
            yield f"{source.path}::machine path::{found} {at}"
        if source.path != ".ci/run" and SHARED.search(line):
            yield f"{source.path}::machine path::shared folder {at}"
