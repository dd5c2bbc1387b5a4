"""What the Rust workspace promises: one version, one least Rust, no lock file, nothing compiled in the repository."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.source import ROOT, require_none

WORKSPACE = ROOT / "agentcache" / "_rust" / "Cargo.toml"
MANIFEST = tomllib.loads(WORKSPACE.read_text(encoding="utf-8"))["workspace"]["package"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_crates_and_package_have_one_version() -> None:
    assert MANIFEST["version"] == PROJECT["version"]


def test_the_readme_names_the_least_rust_that_the_crates_name() -> None:
    first = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[0]
    assert f"Rust ≥ {MANIFEST['rust-version']}" in first


@pytest.mark.native
def test_no_crate_needs_a_newer_rust_than_we_promise() -> None:
    command = ["cargo", "metadata", "--offline", "--format-version", "1", "--manifest-path", str(WORKSPACE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    promised = _numbers(MANIFEST["rust-version"])
    require_none(
        f"{crate['name']} {crate['version']} needs Rust {crate['rust_version']}"
        for crate in json.loads(done.stdout)["packages"]
        if _numbers(crate["rust_version"] or "0")[:2] > promised
    )


def test_no_lock_file_and_nothing_compiled_is_kept() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert {"Cargo.lock", "target/", "_native.*.so*"} <= set(ignored)
    if not (ROOT / ".git").exists():
        return
    command = ["git", "-C", str(ROOT), "ls-files", "*Cargo.lock", "*.so", "target"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def said_with(folder: Path) -> str:
    """What the check for a toolchain says where only this folder is searched."""
    command = [sys.executable, str(ROOT / "tools" / "toolchain.py")]
    environment = os.environ | {"PATH": str(folder)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == bool(done.stdout), done.stderr
    return done.stdout


def tool(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


def test_a_missing_toolchain_is_named_with_the_way_without(tmp_path: Path) -> None:
    said = said_with(tmp_path)
    assert "Rust >= 1.85 with cargo: no cargo answers" in said
    assert "a C compiler that links, as 'cc'" in said
    assert "AGENTCACHE_CORE=reference make demo" in said


@pytest.mark.parametrize(
    ("version", "says"), [("1.84.1", "this rustc is 1.84.1"), ("1.85.0", ""), ("1.100.0-nightly", "")]
)
def test_an_old_rust_is_named(tmp_path: Path, version: str, says: str) -> None:
    tool(tmp_path, "cargo", "echo 'cargo 1.95.0 (f2d3ce0bd 2026-03-21)'")
    tool(tmp_path, "rustc", f"echo 'rustc {version} (59807616e 2026-04-14)'")
    tool(tmp_path, "cc", "exit 0")
    said = said_with(tmp_path)
    assert says in said
    assert bool(says) == bool(said)


def test_a_rustup_without_a_toolchain_is_no_rust(tmp_path: Path) -> None:
    tool(tmp_path, "cargo", "echo 'error: rustup could not choose a version of cargo to run' >&2; exit 1")
    tool(tmp_path, "cc", "exit 0")
    assert "no cargo answers" in said_with(tmp_path)


def test_a_compiler_that_cannot_link_is_none(tmp_path: Path) -> None:
    for name in ("cargo", "rustc"):
        tool(tmp_path, name, f"echo '{name} 1.85.0'")
    tool(tmp_path, "cc", "echo 'cannot find crt1.o' >&2; exit 1")
    assert "a C compiler that links" in said_with(tmp_path)


PURE_BACKEND = """
def build_sdist(folder, settings=None): ...
def get_requires_for_build_sdist(settings=None): return []
def get_requires_for_build_wheel(settings=None): return ["pure"]
get_requires_for_build_editable = get_requires_for_build_wheel
def build_wheel(folder, settings=None, metadata=None): return "pure.whl"
build_editable = build_wheel
"""


def backend(folder: Path, core: str) -> subprocess.CompletedProcess[str]:
    """Ask our build backend for what it needs, beside a stand-in of hatchling and with no compiler in reach."""
    (folder / "hatchling").mkdir()
    (folder / "hatchling" / "__init__.py").touch()
    (folder / "hatchling" / "build.py").write_text(PURE_BACKEND, encoding="utf-8")
    program = (
        "import build_backend as b; wanted = b.get_requires_for_build_wheel(); "
        "assert b.get_requires_for_build_editable() == wanted; print(wanted, b.build_wheel('.'))"
    )
    paths = os.pathsep.join([str(ROOT / "tools"), str(folder)])
    environment = os.environ | {"PATH": "", "PYTHONPATH": paths, "AGENTCACHE_CORE": core}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )


def test_a_pure_wheel_needs_no_toolchain_and_no_maturin(tmp_path: Path) -> None:
    done = backend(tmp_path, "reference")
    assert done.stdout == "['pure'] pure.whl\n", done.stderr


def test_a_native_wheel_without_a_toolchain_ends_with_what_is_missing(tmp_path: Path) -> None:
    done = backend(tmp_path, "native")
    assert done.returncode == 1
    assert done.stderr.startswith("missing, nothing was built:\n  Rust >= 1.85 with cargo"), done.stderr
    assert "AGENTCACHE_CORE=reference" in done.stderr


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))
