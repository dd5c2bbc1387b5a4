"""Every numbered example runs as a reader would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
LIMIT_S = 120


def test_the_examples_are_there() -> None:
    names = [path.name for path in EXAMPLES]
    assert names == [
        "01_cache_only.py",
        "02_engine.py",
        "03_openai_session.py",
        "04_tiers.py",
        "05_subagents.py",
    ]


@pytest.mark.timeout(LIMIT_S + 30)
@pytest.mark.native
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    """In a folder of its own, so that none depends on where it is started."""
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:__main__", str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "an example shows what it did"
