"""A store that fails on purpose deals the faults it was told to, and holds calls until it is told to go on."""

import random
import threading
from collections.abc import Callable
from functools import partial

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.tiers.api import Keep
from agentcache.tiers.stores.faulty import PATIENCE_S, Call, Fault, FaultyStore, Gate, Moment
from agentcache.tiers.stores.memory import MemoryStore
from tests.stores import data_of

NAMES = [f"object {number}" for number in range(20)]
OBJECTS = [(name, data_of(name, 100)) for name in NAMES]


def faulty(*faults: Fault, rate: float = 1.0, seed: int = 3) -> FaultyStore:
    """A store that holds OBJECTS and deals these faults."""
    store = FaultyStore(MemoryStore(1 << 20), random.Random(seed))
    store.put(OBJECTS, Keep.LOOSE)
    store.faults = dict.fromkeys(faults, rate)
    return store


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


CALLS: list[Callable[[FaultyStore], object]] = [
    lambda store: store.exists(NAMES),
    lambda store: store.get(NAMES),
    lambda store: store.put([("new", b"data")], Keep.LOOSE),
    lambda store: store.retain(NAMES, Keep.REFERENCED),
    lambda store: store.retain(NAMES, None),
    lambda store: store.remove(NAMES[:1]),
    lambda store: store.status(),
]


@pytest.mark.parametrize("call", CALLS)
def test_faulty_fail_does_nothing_and_says_so(call: Callable[[FaultyStore], object]) -> None:
    store = faulty(Fault.FAIL)
    with pytest.raises(CacheError) as caught:
        call(store)
    assert caught.value.kind is Kind.STORE_FAILED
    store.faults = {}
    assert store.exists([*NAMES, "new"]) == [True] * 20 + [False]
    assert store.happened[Fault.FAIL] == 1


def test_faulty_fail_after_has_done_it() -> None:
    store = faulty(Fault.FAIL_AFTER)
    with pytest.raises(CacheError) as caught:
        store.put([("new", b"data")], Keep.LOOSE)
    assert caught.value.kind is Kind.STORE_FAILED
    store.faults = {}
    assert store.get(["new"]) == [b"data"]


def test_faulty_exists_lies_both_ways() -> None:
    assert faulty(Fault.LYING).exists(["nowhere", NAMES[0]]) == [True, True]
    assert faulty(Fault.HIDDEN).exists(["nowhere", NAMES[0]]) == [False, False]


def test_faulty_missing_hides_from_get_only() -> None:
    store = faulty(Fault.MISSING)
    assert store.exists(NAMES[:1]) == [True]
    assert store.get(NAMES[:1]) == [None]


def test_faulty_corrupt_flips_one_bit() -> None:
    for (_, data), found in zip(OBJECTS, faulty(Fault.CORRUPT).get(NAMES), strict=True):
        assert found is not None
        wrong = int.from_bytes(found, "big") ^ int.from_bytes(data, "big")
        assert wrong.bit_count() == 1


def test_faulty_cut_and_longer_change_the_length() -> None:
    for (_, data), found in zip(OBJECTS, faulty(Fault.CUT).get(NAMES), strict=True):
        assert found is not None
        assert data.startswith(found)
        assert len(found) < 100
    for (_, data), found in zip(OBJECTS, faulty(Fault.LONGER).get(NAMES), strict=True):
        assert found is not None
        assert found.startswith(data)
        assert len(found) == 101


def test_faulty_swapped_gives_another_objects_bytes() -> None:
    everything = {data for _, data in OBJECTS}
    for (_, data), found in zip(OBJECTS, faulty(Fault.SWAPPED).get(NAMES), strict=True):
        assert found in everything - {data}


def test_faulty_put_refuses_or_loses() -> None:
    for fault, answer in ((Fault.REFUSED, False), (Fault.LOST, True)):
        store = faulty(fault)
        assert store.put([("new", b"data")], Keep.LOOSE) == [answer]
        assert store.exists(["new"]) == [False]


def test_faulty_one_seed_is_one_history() -> None:
    def history(seed: int) -> tuple[object, ...]:
        store = faulty(Fault.CORRUPT, Fault.MISSING, Fault.LYING, rate=0.3, seed=seed)
        return (*store.get(NAMES), *store.exists(["nowhere"] * 20), dict(store.happened))

    assert history(5) == history(5)
    assert history(5) != history(6)
    assert faulty(Fault.CORRUPT, rate=0.0).get(NAMES) == [data for _, data in OBJECTS]


def test_faulty_rate_is_how_often() -> None:
    store = faulty(Fault.MISSING, rate=0.25)
    for _ in range(50):
        store.get(NAMES)
    assert 200 < store.happened[Fault.MISSING] < 300


def test_gate_holds_a_call_until_it_opens() -> None:
    store = faulty()
    found: list[bytes | None] = []
    with store.hold(Call.GET) as gate:
        thread = started(lambda: found.extend(store.get(NAMES[:1])))
        gate.wait_for(1)
        assert store.exists(NAMES[:1]) == [True]  # not held
        assert found == []
        gate.open()
        thread.join()
    assert found == [OBJECTS[0][1]]


def test_gate_steps_let_one_call_at_a_time_through() -> None:
    store = faulty()
    done = threading.Semaphore(0)

    def work(name: str) -> None:
        store.remove([name])
        done.release()

    with store.hold(Call.REMOVE) as gate:
        threads = [started(partial(work, name)) for name in NAMES[:3]]
        for left in (2, 1):
            gate.wait_for(left + 1)
            gate.step()
            assert done.acquire(timeout=PATIENCE_S)
            assert gate.held == left
            assert sum(store.exists(NAMES[:3])) == left
    for thread in threads:
        thread.join()
    assert store.exists(NAMES[:3]) == [False] * 3


def test_gate_after_holds_the_answer_of_a_call_that_is_done() -> None:
    store = faulty()
    with store.hold(Call.PUT, moment=Moment.AFTER) as gate:
        thread = started(lambda: store.put([("new", b"data")], Keep.LOOSE))
        gate.wait_for(1)
        assert store.exists(["new"]) == [True]
    thread.join()


def test_gate_may_end_calls_with_a_failure() -> None:
    store = faulty()
    kinds: list[Kind] = []

    def work() -> None:
        with pytest.raises(CacheError) as caught:
            store.get(NAMES)
        kinds.append(caught.value.kind)

    with store.hold() as gate:
        thread = started(work)
        gate.wait_for(1)
        gate.fail()
        thread.join()
    assert kinds == [Kind.STORE_FAILED]


def test_gate_that_nobody_comes_to_is_an_error_and_not_a_hang() -> None:
    with pytest.raises(TimeoutError, match="0 of 1 calls"):
        Gate().wait_for(1, patience_s=0.01)


def test_faulty_close_lets_everybody_go() -> None:
    store = faulty()
    with store.hold() as gate:
        thread = started(lambda: store.get(NAMES))
        gate.wait_for(1)
        store.close()
        thread.join()


def test_faulty_store_may_be_replaced_as_one_that_was_restarted_empty() -> None:
    store = faulty()
    store.store = MemoryStore(1 << 20)
    assert store.get(NAMES) == [None] * 20
    assert store.name == "memory"
