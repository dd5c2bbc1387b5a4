"""The fault machine, bounded: some hundred faults from one seed. `python -m tests.storm` draws others."""

import asyncio
import sys

import pytest

from tests.storm.machine import Ran, run

FAULTS = 300
KNOWN_SEED = 20261130


@pytest.mark.timeout(240)
@pytest.mark.native
def test_whatever_fails_references_are_where_sessions_are_open() -> None:
    lines: list[str] = []
    ran: Ran = asyncio.run(run(KNOWN_SEED, FAULTS, lines.append))
    print(f"seed {KNOWN_SEED}: {ran.counts}", file=sys.stderr)
    said = "\n".join([*lines, *ran.logs])
    assert not ran.wrongs, f"seed {KNOWN_SEED}, after {ran.faults} faults: {ran.wrongs}\n{said}"
    assert ran.counts["turn open"] > FAULTS / 10
    assert ran.counts["reference looked for"] > FAULTS / 30
