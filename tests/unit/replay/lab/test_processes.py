"""Processes of a table end with the one that started them, however that ends."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ENDED_WITHIN_MS = 60_000
LONG = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background has it ignored
from agentcache.replay.ending import terminated_as_interrupted
from agentcache.replay.lab.cells import Cell, Policy
from agentcache.replay.lab.table import Plan, run_table
from agentcache.replay.paged import page
from agentcache.replay.synth import synthesize

workload = page(synthesize("swe-agent", 40, seed=1), encode=lambda _: [])
plan = Plan({"t": [Cell(Policy.LRU, 3.0, live=6)]}, seeds=range(1, 400))
try:
    with terminated_as_interrupted():
        list(run_table(plan, {"t": workload}, lambda: print("replayed", flush=True), 2))
except KeyboardInterrupt:
    sys.exit(130)
"""
"""Minutes of replays, in two processes."""


@contextmanager
def replaying() -> Iterator[subprocess.Popen[str]]:
    """A process group that is in the middle of it."""
    with subprocess.Popen(
        [sys.executable, "-c", LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "replayed\n"
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def children(process: int) -> list[int]:
    """Handles of the processes that this one has started."""
    told = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [os.pidfd_open(int(child)) for child in told.split()]


def all_end(handles: list[int]) -> bool:
    """Whether they end soon."""
    for handle in handles:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        if not ended.poll(ENDED_WITHIN_MS):
            return False
        os.close(handle)
    return True


@pytest.mark.parametrize(
    ("sent", "to_all", "code"),
    [
        (signal.SIGINT, False, 130),
        (signal.SIGINT, True, 130),
        (signal.SIGTERM, False, 130),
        (signal.SIGKILL, False, -9),
    ],
    ids=["interrupted", "interrupted at a terminal", "terminated", "killed"],
)
def test_none_is_left(sent: signal.Signals, to_all: bool, code: int) -> None:
    with replaying() as process:
        started = children(process.pid)
        assert len(started) >= 2
        (os.killpg if to_all else os.kill)(process.pid, sent)
        assert process.wait(ENDED_WITHIN_MS / 1000) == code
        assert all_end(started)
        if code == 130:
            assert process.stderr is not None
            assert process.stderr.read() == ""
