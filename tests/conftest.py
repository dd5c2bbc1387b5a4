"""How every test runs: offline, on one thread, and with a word about what was left out.

Tests that need something beyond the README's first line carry a marker and run when a variable says so.
"""

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import TextIO

import pytest
from hypothesis import HealthCheck, settings

from tests.lateness import SWITCH_S, make_late

for _variable, _value in {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}.items():
    os.environ.setdefault(_variable, _value)  # before torch and tokenizers are first imported

SWITCHES = {
    "native": ("AGENTCACHE_CORE", "AGENTCACHE_CORE=native"),
    "system": ("SYSTEM", "SYSTEM=1"),
    "data": ("AGENTCACHE_DATA", "AGENTCACHE_DATA=folder"),
    "gpu": ("GPU", "GPU=1"),
    "browser": ("BROWSER", "BROWSER=1"),
}
SILENCE_S = 9.0
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")  # an example may take as long as the machine stands still
TERMINAL = pytest.StashKey[TextIO]()
LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    if seed := os.environ.get("LATE"):
        make_late(setattr, seed)
        sys.setswitchinterval(SWITCH_S)
    config.stash[LEFT_OUT] = Counter()
    config.stash[TERMINAL] = os.fdopen(os.dup(2), "w")  # before output is captured


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[TERMINAL].close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests whose switch is off; the summary says so."""
    off = {marker for marker in SWITCHES if _is_off(marker)}
    for item in items:
        _mark_native(item)
    wanting = {item: off.intersection(mark.name for mark in item.iter_markers()) for item in items}
    left = [item for item in items if wanting[item]]
    if left:
        config.stash[LEFT_OUT].update(marker for item in left for marker in wanting[item])
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not wanting[item]]


def _mark_native(item: pytest.Item) -> None:
    """A test that runs once a core needs the native core where that is its core."""
    parameters = getattr(item, "callspec", None)
    if parameters and any(isinstance(v, str) and v == "native" for v in parameters.params.values()):
        item.add_marker("native")


def _is_off(marker: str) -> bool:
    """The native core is what the README's first line asks for, so it alone is on unless told otherwise."""
    said = os.environ.get(SWITCHES[marker][0], "")
    return said == "reference" if marker == "native" else said in ("", "0")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Name a test that takes long while it does, so that a run is never silent."""
    done = threading.Event()
    terminal = item.config.stash[TERMINAL]

    def speak_up() -> None:
        while not done.wait(SILENCE_S):
            print(f"\n  ... still in {item.nodeid}", file=terminal, flush=True)

    watcher = threading.Thread(target=speak_up, daemon=True)
    watcher.start()
    try:
        return (yield)
    finally:
        done.set()
        watcher.join()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for marker, count in config.stash[LEFT_OUT].items():
        command = f"{SWITCHES[marker][1]} make test ARGS='-m {marker}'"
        terminalreporter.write_line(f"left out: {count} tests marked {marker}; run them with: {command}")
