"""Install a wheel into an environment of its own and try it there, with no compiler in reach.

What agentcache depends on comes from the environment that runs this.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "01_cache_only.py"  # runs on the default, the native core
WITH_REFERENCE = """
from agentcache.build import build_cache
from agentcache.clock import ManualClock
from agentcache.tree.api import CoreConfig
from agentcache.types import FULL, full_spec
cache = build_cache(CoreConfig(16, (full_spec(),)), {FULL: 8}, ManualClock(), core="reference")
cache.check()
print(cache.stats().pools[0])
"""


def main(wheel: Path) -> None:
    native = "-abi3-" in wheel.name
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        _install(wheel, folder)
        _require_no_sources(folder)
        found = _run(folder, "import agentcache; print(agentcache.__file__)")
        if not Path(found).is_relative_to(folder):
            sys.exit(f"{wheel.name}: agentcache came from {found}, not from the wheel")
        print(_run(folder, EXAMPLE.read_text(encoding="utf-8") if native else WITH_REFERENCE))
    print(f"{wheel.name}: installs, and a cache works on the {'native' if native else 'reference'} core")


def _install(wheel: Path, folder: Path) -> None:
    venv.create(folder)
    packages = Path(_run(folder, "import sysconfig; print(sysconfig.get_path('purelib'))"))
    # A folder that a .pth names is searched last, and the .pth files in it are not followed.
    (packages / "dependencies.pth").write_text(f"{_dependencies()}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", "--target", str(packages), str(wheel)], check=True)


def _require_no_sources(folder: Path) -> None:
    """A wheel is for users: the crates and the decisions are in the source distribution."""
    kept = [path for name in ("_rust", "decisions") for path in folder.glob(f"**/agentcache/{name}")]
    if kept:
        sys.exit(f"the wheel holds {', '.join(path.name for path in kept)}")


def _dependencies() -> Path:
    found = importlib.util.find_spec("numpy")
    if not found or not found.origin:
        sys.exit("numpy is not here: run this with the project's environment")
    return Path(found.origin).parents[1]


def _run(folder: Path, program: str) -> str:
    """What the program prints, run by the environment's Python with nothing else on the path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(folder / "bin" / "python"), "-c", program]
    done = subprocess.run(
        command, env=environment | {"PATH": ""}, cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"the wheel does not work:\n{done.stderr}")
    return done.stdout.strip()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
