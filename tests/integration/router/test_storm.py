"""The fault machine, bounded: every run draws some hundred faults, half of them from a seed that it has not seen."""

import asyncio
import random
import sys

import pytest

from tests.storm.machine import Ran, run

FAULTS = 300
KNOWN_SEED = 20261130


@pytest.mark.timeout(240)
@pytest.mark.native
@pytest.mark.parametrize("seed", [KNOWN_SEED, random.SystemRandom().randrange(2**32)], ids=["known", "new"])
def test_whatever_fails_references_are_where_sessions_are_open(seed: int) -> None:
    """`python -m tests.storm --seed SEED --faults 300` runs it again."""
    lines: list[str] = []
    ran: Ran = asyncio.run(run(seed, FAULTS, lines.append))
    print(f"seed {seed}: {ran.counts}", file=sys.stderr)
    assert not ran.wrongs, f"seed {seed}, after {ran.faults} faults: {ran.wrongs}\n" + "\n".join(lines)
    assert ran.counts["turn open"] > FAULTS / 15
    assert ran.counts["reference looked for"] > FAULTS / 30
