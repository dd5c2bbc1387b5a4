"""The project's own files, read once: what the rules of the house look at."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agentcache", "router")
CRATES = ROOT / "agentcache" / "_rust"
SKIPPED_FOLDERS = frozenset({"__pycache__", "build", "dist", "target", "node_modules"})
TEXT_SUFFIXES = frozenset(
    {".py", ".pyi", ".md", ".toml", ".txt", ".cfg", ".sh", ".rs", ".lua", ".yml", ".jinja", ""}
)


@dataclass(frozen=True)
class Source:
    """One text file: its path from the root and its text; Python files also as a tree."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        return [n for n in ast.walk(self.tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [n for n in ast.walk(self.tree) if isinstance(n, ast.ClassDef)]

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name not in SKIPPED_FOLDERS and not path.name.startswith("."):
            yield from _walk(path)
        elif path.is_file():
            yield path


def _read(path: Path) -> Source:
    return Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


def python_files(*folders: str) -> list[Source]:
    """Every Python file below these folders of the root; a folder that is not there yet has none."""
    found = (path for name in folders if (ROOT / name).is_dir() for path in _walk(ROOT / name))
    return [_read(path) for path in found if path.suffix == ".py"]


def rust_files() -> list[Source]:
    return [_read(path) for path in _walk(CRATES) if path.suffix == ".rs"]


def crate_manifests() -> list[Source]:
    return [_read(path) for path in _walk(CRATES) if path.name == "Cargo.toml"]


def text_files() -> list[Source]:
    """Every text file of the project, recorded data and the licence left out."""
    folders = [
        ROOT / name
        for name in (*PACKAGES, "bench", "tests", "examples", "tools", "docs", ".ci", ".cargo")
        if (ROOT / name).is_dir()
    ]
    paths = [path for path in ROOT.iterdir() if path.is_file() and path.name != "LICENSE"]
    paths += [path for folder in folders for path in _walk(folder) if "assets" not in path.parts]
    return [_read(path) for path in paths if path.suffix in TEXT_SUFFIXES]


def require_none(breaches: Iterable[str]) -> None:
    """Fail with one line a breach, and nothing else."""
    lines = sorted(breaches)
    if lines:
        pytest.fail("\n" + "\n".join(lines), pytrace=False)
