"""The same trace with hits forced from each tier, after a restart and with the cache off: the same bits, the same hits.

float32, one request at a time. R058, R107, R149, R217 among others: what was written down is found again, whole.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agentcache.engine.engine import Engine
from agentcache.tiers.stores.file import open_file_store
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.tree.api import WritePolicy
from tests.engines import small_engine
from tests.golden import Said, Script, bits, totals
from tests.stores import StoreCase, store_cases

pytestmark = pytest.mark.timeout(300)

FAMILIES = ("lara_mini", "gemma3", "qwen3_5", "inkling")
"""All three kinds of state; FULL and windows; FULL and recurrent; all three with two windows."""
ROOMY: dict[str, Any] = {"full_slots": 256, "swa_slots": 128, "mamba_slots": 32}
ONE_SESSION: dict[str, Any] = {
    "full_slots": 52,
    "swa_slots": 40,
    "mamba_slots": 4,
    "eviction_policy": "lru",
}
"""Device pools in which a session's turn fits, but not with another session's data."""
SCRIPT = Script()


@contextmanager
def engine_with(
    family: str, case: StoreCase | None = None, folder: Path = Path(), **changes: Any
) -> Iterator[Engine]:
    engine = small_engine(family, **changes)
    try:
        if case:
            engine.attach(case.make(folder, 64 << 20))
        yield engine
    finally:
        engine.close()


@cache
def golden(family: str) -> list[Said]:
    """Hits from the device alone, and the same with the cache off."""
    with engine_with(family, **ROOMY) as engine:
        near = SCRIPT.play(lambda _turn: engine)
    with engine_with(family, **ROOMY) as engine:
        off = SCRIPT.play(lambda _turn: engine, reuse=False)
    assert bits(near) == bits(off)
    assert totals(off) == [0] * len(off)
    later = near[SCRIPT.sessions :]
    assert all(said.cached.device == said.cached.total > 0 for said in later)
    return near


@pytest.mark.parametrize("policy", WritePolicy)
@pytest.mark.parametrize("family", FAMILIES)
def test_hits_from_the_host(family: str, policy: WritePolicy) -> None:
    with engine_with(family, host_mib=8, write_policy=policy, **ONE_SESSION) as engine:
        answers = SCRIPT.play(lambda _turn: engine)
    assert bits(answers) == bits(golden(family))
    if policy is not WritePolicy.WRITE_THROUGH_SELECTIVE:
        assert totals(answers) == totals(golden(family))
        assert sum(answer.cached.host for answer in answers) > sum(totals(answers)) / 2


@pytest.mark.parametrize("host_mib", [None, 0.16], ids=["direct", "host"])
@pytest.mark.parametrize("case", store_cases())
@pytest.mark.parametrize("family", FAMILIES[:1])
def test_hits_from_outside(family: str, case: StoreCase, host_mib: float | None, tmp_path: Path) -> None:
    with engine_with(
        family, case, tmp_path, host_mib=host_mib, prefetch="wait_complete", **ONE_SESSION
    ) as engine:
        answers = SCRIPT.play(lambda _turn: engine)
        assert engine.cache.stats().external.refused == engine.cache.stats().external.failed == 0
    assert bits(answers) == bits(golden(family))
    assert totals(answers) == totals(golden(family))
    assert sum(answer.cached.external for answer in answers) > sum(totals(answers)) / 4


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_hits_from_outside_for_every_mix_of_components(family: str, tmp_path: Path) -> None:
    case = StoreCase(lambda _folder, size: MemoryStore(size))
    with engine_with(family, case, tmp_path, prefetch="wait_complete", **ONE_SESSION) as engine:
        answers = SCRIPT.play(lambda _turn: engine)
    assert bits(answers) == bits(golden(family))
    assert totals(answers) == totals(golden(family))


@pytest.mark.parametrize("host_mib", [None, 8], ids=["direct", "host"])
def test_hits_after_a_restart(host_mib: float | None, tmp_path: Path) -> None:
    """The second half of the trace runs in another engine on the same folder."""
    case = StoreCase(lambda folder, size: open_file_store(folder / "kept", size))
    answers: list[Said] = []
    for first, last in ((0, 2), (2, SCRIPT.turns)):
        with engine_with(
            "lara_mini", case, tmp_path, host_mib=host_mib, prefetch="wait_complete", **ROOMY
        ) as engine:
            cold = small_engine("lara_mini", **ROOMY)
            played = SCRIPT.play(lambda turn: engine if first <= turn < last else cold)  # noqa: B023
        answers += played[first * SCRIPT.sessions : last * SCRIPT.sessions]
    assert bits(answers) == bits(golden("lara_mini"))
    assert totals(answers) == totals(golden("lara_mini"))
    woken = answers[2 * SCRIPT.sessions : 3 * SCRIPT.sessions]
    assert all(answer.cached.external == answer.cached.total > 0 for answer in woken)


def test_nothing_is_left_at_rest(tmp_path: Path) -> None:
    case = StoreCase(lambda _folder, size: MemoryStore(size))
    with engine_with("lara_mini", case, tmp_path, host_mib=0.16, **ONE_SESSION) as engine:
        SCRIPT.play(lambda _turn: engine)
        stats = engine.cache.stats()
        assert stats.jobs_in_flight == stats.active_turns == 0
        assert all(pool.leased == pool.in_flight == pool.protected == 0 for pool in stats.pools)
        for one in range(SCRIPT.sessions):
            engine.cache.close_session(f"s{one}")
        engine.cache.flush()
        assert all(pool.free == pool.size for pool in engine.cache.stats().pools)
