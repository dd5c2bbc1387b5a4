"""The fault machine, bounded: some hundred faults from a known seed, and from one that is new each time.

`python -m tests.storm --seed SEED` replays what a seed that failed has drawn.
"""

import asyncio
import random
import sys

import pytest

from tests.storm.machine import Ran, run

FAULTS = 300
KNOWN_SEED = 20261130
LOOKS = ("close compared", "words looked at", "late end looked at", "late arrival looked at")


@pytest.mark.timeout(600)
@pytest.mark.native
@pytest.mark.parametrize("known", [True, False], ids=["known", "new"])
def test_whatever_fails_references_are_where_sessions_are_open(known: bool) -> None:
    seed = KNOWN_SEED if known else random.SystemRandom().randrange(2**32)
    print(f"seed {seed}", file=sys.stderr)
    lines: list[str] = []
    ran: Ran = asyncio.run(run(seed, FAULTS, lines.append))
    print(ran.counts, file=sys.stderr)
    said = "\n".join([*lines, *ran.logs])
    assert not ran.wrongs, f"seed {seed}, after {ran.faults} faults: {ran.wrongs}\n{said}"
    assert ran.counts["turn open"] > FAULTS / 10
    assert ran.counts["reference looked for"] > FAULTS / 30
    assert any(ran.counts.get(look) for look in LOOKS)
