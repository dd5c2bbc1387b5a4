"""What the native core needs of this machine, and one message where it is missing. Nothing is fetched here.

`make` and the build backend ask before they do anything; `python tools/toolchain.py` prints what is missing.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

WORKSPACE = Path(__file__).resolve().parents[1] / "agentcache" / "_rust" / "Cargo.toml"
EMPTY_PROGRAM = "int main(void) { return 0; }\n"
WAY_WITHOUT = "or do without the native core: AGENTCACHE_CORE=reference make demo (or test, or pip install .)"
Version = tuple[int, ...]


def needed() -> Version:
    """The least Rust that the workspace promises to build with."""
    text = WORKSPACE.read_text(encoding="utf-8")
    return _numbers(tomllib.loads(text)["workspace"]["package"]["rust-version"])


def missing() -> list[str]:
    """One line for each thing that is missing or too old."""
    return [*_rust_faults(), *_linker_faults()]


def complaint() -> str:
    """What to print before giving up; empty where nothing is missing."""
    lines = missing()
    return "\n".join(f"  {line}" for line in [*lines, WAY_WITHOUT] if lines)


def _rust_faults() -> Iterator[str]:
    least = ".".join(map(str, needed()))
    for tool in ("cargo", "rustc"):
        found = _output(tool, "--version")
        version = _numbers(found)[:3]
        if not version:
            yield f"Rust >= {least} with cargo: no {tool} answers (rustup.rs has it, and most systems' packages)"
            return
        if version < needed():
            said = ".".join(map(str, version))
            yield f"Rust >= {least}: this {tool} is {said} (rustup update stable, or rustup.rs)"
            return


def _linker_faults() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "empty.c")
        source.write_text(EMPTY_PROGRAM, encoding="utf-8")
        works = _runs("cc", str(source), "-o", str(Path(folder, "empty")))
    if not works:
        yield "a C compiler that links, as 'cc' (Debian and Ubuntu: the packages gcc and libc6-dev)"


def _output(*command: str) -> str:
    if not shutil.which(command[0]):
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _runs(*command: str) -> bool:
    return bool(shutil.which(command[0])) and not subprocess.run(command, capture_output=True).returncode


def _numbers(text: str) -> Version:
    found = re.search(r"\d+(\.\d+)+", text)
    return tuple(map(int, found[0].split("."))) if found else ()


if __name__ == "__main__":
    if said := complaint():
        print(said)
        sys.exit(1)
