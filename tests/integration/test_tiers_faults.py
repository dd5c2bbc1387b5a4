"""Whatever a store does in the middle of a trace costs hits and nothing else: the bits are those of a run without."""

import os
import random
import signal
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import redis

from agentcache.tiers.stores.faulty import Call, Fault, FaultyStore, Gate, Moment
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.tiers.stores.mooncake import open_mooncake_store
from agentcache.tiers.stores.redis import open_redis_store
from tests.faults import (
    LAST,
    SCRIPT,
    SMALL_HOST,
    MovableClock,
    engine_over,
    golden,
    only_hits_were_lost,
    play,
)
from tests.golden import Said, bits, steps, totals

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
MIDDLE = SCRIPT.sessions + 2
"""A request of the second round: the store has been written and read by then."""
TIERS = pytest.mark.parametrize("host_mib", [None, SMALL_HOST], ids=["direct", "host"])


def faulty(capacity_bytes: int = 64 * MIB, seed: int = 1) -> FaultyStore:
    return FaultyStore(MemoryStore(capacity_bytes), random.Random(seed))


def external(answers: Sequence[Said]) -> list[int]:
    return [answer.cached.external for answer in answers]


@TIERS
@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.FAIL_AFTER])
def test_a_store_that_is_killed_is_gone_and_no_more(fault: Fault, host_mib: float | None) -> None:
    store = faulty()

    def before(number: int) -> None:
        if number == MIDDLE:
            store.faults = {fault: 1.0}

    with engine_over(store, host_mib=host_mib) as engine:
        answers = play(engine, before)
        assert engine.cache.tiers.external().state == "down"
    only_hits_were_lost(answers)
    assert sum(external(answers[: MIDDLE + 1])) > 0
    assert sum(external(answers[MIDDLE + 3 :])) == 0, "an open breaker is asked nothing"


@TIERS
@pytest.mark.parametrize("empty", [True, False], ids=["restarted empty", "as it was"])
def test_a_store_that_comes_back_is_used_again(empty: bool, host_mib: float | None) -> None:
    """R151. It is asked once a cool-down, and then as before."""
    store, clock = faulty(), MovableClock()
    with engine_over(store, clock, host_mib=host_mib) as engine:

        def before(number: int) -> None:
            if number == MIDDLE:
                store.faults = {Fault.FAIL: 1.0}
            if number == MIDDLE + 3:
                store.faults = {}
                store.store = MemoryStore(64 * MIB) if empty else store.store
                clock.forward(6)
                while engine.cache.tiers.external().state != "up":
                    engine.step()

        answers = play(engine, before)
        assert engine.cache.tiers.external().state == "up"
    only_hits_were_lost(answers)
    if not empty:
        assert external(answers)[MIDDLE + 3] > 0
    assert external(answers)[LAST] > 0


@TIERS
def test_a_store_that_was_restarted_empty_is_filled_again(host_mib: float | None) -> None:
    """R142. What was there is a miss, not an error; nobody had noticed the restart."""
    store = faulty()

    def before(number: int) -> None:
        if number == MIDDLE:
            store.store = MemoryStore(64 * MIB)

    with engine_over(store, host_mib=host_mib) as engine:
        answers = play(engine, before)
        assert engine.cache.tiers.external().failed == 0
    only_hits_were_lost(answers)
    assert sum(external(answers[MIDDLE + SCRIPT.sessions :])) > 0


@TIERS
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("call", [Call.EXISTS, Call.GET, Call.PUT])
def test_a_store_that_hangs_is_left_alone_after_a_few_deadlines(
    call: Call, moment: Moment, host_mib: float | None
) -> None:
    """R141, R145, R151. Its calls of one kind never end; what comes back at the very end touches nothing."""
    store = faulty()
    with engine_over(store, host_mib=host_mib, l3_deadline_s=0.1) as engine, ExitStack() as hanging:
        gates: list[Gate] = []

        def before(number: int) -> None:
            if number == MIDDLE:
                gates.append(hanging.enter_context(store.hold(call, moment=moment)))

        answers = play(engine, before)
        only_hits_were_lost(answers)
        assert gates[0].held > 0
        assert engine.cache.tiers.external().failed > 0
        hanging.close()
        assert list(steps(engine)) == []


@TIERS
@pytest.mark.parametrize("policy", ["best_effort", "wait_complete", "timeout"])
def test_a_store_that_is_slow_is_waited_for_as_the_policy_says(policy: str, host_mib: float | None) -> None:
    store = Slow(64 * MIB)
    with engine_over(store, host_mib=host_mib, prefetch=policy, prefetch_timeout_s=0.001) as engine:
        answers = play(engine, lambda _number: None)
        assert engine.cache.tiers.external().failed == 0
    only_hits_were_lost(answers)
    if policy == "wait_complete":
        assert totals(answers) == totals(golden())


class Slow(MemoryStore):
    """Every call takes ten milliseconds."""

    def exists(self, names: Sequence[str]) -> list[bool]:
        threading.Event().wait(0.01)
        return super().exists(names)

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        threading.Event().wait(0.01)
        return super().get(names)


@TIERS
@pytest.mark.parametrize("mib", [0.2, 0.3, 0.4])
def test_a_store_that_is_full_keeps_what_it_can(mib: float, host_mib: float | None) -> None:
    """R143, R223. Room for a part of one path, or of some: what it drops it drops out of the middle."""
    store = faulty(capacity_bytes=int(mib * MIB))
    with engine_over(store, host_mib=host_mib) as engine:
        answers = play(engine, lambda _number: None)
        status = engine.cache.tiers.external()
    only_hits_were_lost(answers)
    assert status.failed == 0
    assert status.stored > (store.status().objects or 0), "some had to go"


SPOILT = [Fault.CORRUPT, Fault.CUT, Fault.LONGER, Fault.SWAPPED]
LYING = [Fault.MISSING, Fault.LYING, Fault.HIDDEN, Fault.REFUSED, Fault.LOST]


@pytest.mark.parametrize(("rate", "host_mib"), [(0.1, SMALL_HOST), (1.0, None)], ids=["host", "direct"])
@pytest.mark.parametrize("fault", [*SPOILT, *LYING])
def test_a_store_that_spoils_loses_or_lies_costs_hits(
    fault: Fault, rate: float, host_mib: float | None
) -> None:
    """R031, R071, R141, R143: what does not arrive, whole and as it was written, shortens the reuse."""
    store, clock = faulty(), MovableClock()
    store.faults = {fault: rate}
    with engine_over(store, clock, host_mib=host_mib) as engine:
        answers = play(engine, lambda _number: clock.forward(10))  # what was learnt of it is asked again
        status = engine.cache.tiers.external()
    only_hits_were_lost(answers)
    assert store.happened[fault] > 0
    assert (status.refused > 0) is (fault in SPOILT)
    if rate == 1.0:
        assert sum(external(answers)) == 0


@TIERS
def test_an_embedded_valkey_that_is_killed_costs_what_it_held(tmp_path: Path, host_mib: float | None) -> None:
    """R142. A real one, by SIGKILL: the store starts another, empty one."""
    store = open_redis_store("", 64 * MIB, tmp_path)

    def before(number: int) -> None:
        if number == MIDDLE:
            with redis.Redis(unix_socket_path=str(tmp_path / "server.sock"), protocol=2) as line:
                os.kill(line.info("server")["process_id"], signal.SIGKILL)

    with engine_over(store, host_mib=host_mib) as engine:
        answers = play(engine, before)
    only_hits_were_lost(answers)
    assert sum(external(answers[:MIDDLE])) > 0
    assert sum(external(answers[MIDDLE + SCRIPT.sessions :])) > 0


@pytest.mark.system
@TIERS
def test_a_mooncake_whose_master_is_killed_costs_what_it_held(tmp_path: Path, host_mib: float | None) -> None:
    """A real one, by SIGKILL: the store starts another, empty one, while its calls fail."""
    store = open_mooncake_store("", 64 * MIB, tmp_path)
    port = store.status().address.rpartition(":")[2]

    def before(number: int) -> None:
        if number == MIDDLE:
            (master,) = processes(port) & processes("mooncake_master")
            os.kill(master, signal.SIGKILL)

    with engine_over(store, host_mib=host_mib) as engine:
        answers = play(engine, before)
    only_hits_were_lost(answers)
    assert sum(external(answers[:MIDDLE])) > 0
    assert processes(port) == set(), "nothing of it is left"


def processes(word: str) -> set[int]:
    """Numbers of the processes with this word in their command line, other than shells and this one."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # one that has just ended
            line = entry.read_bytes()
            if word.encode() in line and b"sh" not in line.split(b"\0")[0].rpartition(b"/")[2]:
                found.add(int(entry.parent.name))
    return found - {os.getpid()}


def test_what_opts_out_of_the_cache_never_reaches_the_store() -> None:
    store = faulty()
    calls = (Call.EXISTS, Call.GET, Call.PUT, Call.RETAIN, Call.REMOVE)
    with store.hold(*calls) as gate, engine_over(store, host_mib=SMALL_HOST) as engine:
        answers = SCRIPT.play(lambda _turn: engine, reuse=False)
        assert gate.held == 0
        assert store.status().objects == 0
    assert bits(answers) == bits(golden())
    assert totals(answers) == [0] * len(answers)
