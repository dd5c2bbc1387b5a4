"""Set-up: what `make` says before it fetches anything, and versions that are pinned once and agree."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.source import ROOT, require_none

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORES = ("native", "reference")
PINS = [
    line
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]


def make(*words: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """Run make as a person would, not as a child of the make that runs the tests; `first` leads the PATH."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
    }
    environment["PATH"] = os.pathsep.join(filter(None, [first, environment["PATH"]]))
    command = ["make", "-C", str(ROOT), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


def test_make_alone_says_what_there_is() -> None:
    said = make().stdout
    for target in ("demo", "test", "check", "serve", "bench", "clean"):
        assert re.search(rf"^  {target}  +\w", said, re.M), f"make says nothing about {target}"


def test_missing_python_is_named_before_anything_is_fetched() -> None:
    done = make("test", "PYTHON=no-such-python", "VENV=build/no-such-environment")
    assert done.returncode != 0
    assert "missing, nothing was fetched" in done.stderr
    assert "Python >= 3.11 as 'no-such-python'" in done.stderr
    assert "venv module" in done.stderr
    assert not (ROOT / "build" / "no-such-environment").exists()


@pytest.mark.parametrize("core", CORES)
def test_only_the_native_core_asks_for_rust_and_before_anything_is_fetched(tmp_path: Path, core: str) -> None:
    cargo = tmp_path / "cargo"
    cargo.write_text("#!/bin/sh\necho 'cargo 1.60.0'\n", encoding="utf-8")
    cargo.chmod(0o755)
    python, environment = f"PYTHON={sys.executable}", "VENV=build/no-such-environment"
    done = make("prerequisites", python, environment, f"AGENTCACHE_CORE={core}", first=str(tmp_path))
    if core == "native":
        assert "missing, nothing was fetched:\n  Rust >= 1.85: this cargo is 1.60.0" in done.stderr
        assert "AGENTCACHE_CORE=reference make demo" in done.stderr
    assert bool(done.returncode) == (core == "native"), done.stderr


def test_an_environment_for_the_reference_core_compiles_nothing() -> None:
    """The same environment serves both; what tells them apart is the compiled file, which only one asks for."""
    with_core, without = (
        make("--dry-run", "--always-make", "environment", f"AGENTCACHE_CORE={core}") for core in CORES
    )
    assert "cargo build --release" in with_core.stdout
    assert "cargo" not in without.stdout
    assert "pip" in without.stdout


def test_what_compares_the_native_core_says_that_it_needs_it_and_how_long_it_takes() -> None:
    refused = make("bench-peer", "AGENTCACHE_CORE=reference")
    assert refused.returncode
    assert "run this without AGENTCACHE_CORE=reference" in refused.stderr
    assert "fetching" not in refused.stdout
    commands = make("--dry-run", "bench-peer").stdout
    assert 0 < commands.index("about 15 minutes") < commands.index("cargo bench")


@pytest.mark.parametrize(("core", "wanted"), [("native", "ttft policies swebench"), ("reference", "ttft")])
def test_bench_measures_what_this_checkout_can_make_by_itself(core: str, wanted: str) -> None:
    assert f"for name in {wanted};" in make("--dry-run", "bench", f"AGENTCACHE_CORE={core}").stdout
    chosen = make("--dry-run", "bench", "BENCH=steps", "ARGS=--json", f"AGENTCACHE_CORE={core}").stdout
    assert "for name in steps;" in chosen
    assert "agentcache bench $name --json" in chosen


def test_pins_are_names_and_versions_only() -> None:
    require_none(
        f"constraints.txt: {pin}" for pin in PINS if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][\w.!]*", pin)
    )


def test_everything_that_we_ask_for_is_pinned() -> None:
    pinned = {_name(pin) for pin in PINS}
    extras = [name for names in PROJECT["optional-dependencies"].values() for name in names]
    require_none(
        f"constraints.txt: no pin for {wanted}"
        for wanted in [*PROJECT["dependencies"], *extras]
        if _name(wanted) not in pinned
    )


def test_changelog_knows_this_version() -> None:
    assert f"\n## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return re.sub(r"[._-]+", "-", found[0]).lower()
