"""An external tier on a store that is late, hung, full, corrupt, or gone: less arrives, and nothing else happens."""

import random
from collections.abc import Sequence

import pytest

from agentcache.clock import SystemClock
from agentcache.errors import CacheError, Kind
from agentcache.keys import object_name
from agentcache.tiers.api import Keep, Presence
from agentcache.tiers.external import ExternalRules, StoredTier
from agentcache.tiers.stores.faulty import Call, Fault, FaultyStore, Moment
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.types import FULL, MAMBA
from tests.unit.tiers.conftest import NewWorld
from tests.unit.tiers.external_world import PAGE, PATIENCE_S, Watched, World, extents, full, path, piece

JUNK = bytes([255]) * 48


# A thread comes back from the store after its flight was closed


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("how", ["deadline", "cancel", "close"])
def test_a_load_that_comes_back_too_late_touches_no_slot(
    new_world: NewWorld, how: str, moment: Moment
) -> None:
    world = new_world(rules=ExternalRules(close_s=0.01))
    hashes = path(3)
    world.stored([full(3)], hashes)
    with world.store.hold(Call.GET, moment=moment) as gate:
        number = world.submit_load([full(3, 20)], hashes)
        gate.wait_for(1)
        end(world, number, how)
        (result,) = world.tier.poll()
        world.forbid([full(3, 20)])
        assert (result.job.number, result.landed) == (number, ())
        world.pools[FULL].data[20:23] = [b"another request's"] * 3
        gate.open()
        world.watched.wait_for_end(Call.GET, 1)
    world.tier._crew.stop()
    world.tier._crew.join(PATIENCE_S)
    assert world.pools[FULL].data[20:23] == [b"another request's"] * 3
    assert world.tier.poll() == ()


@pytest.mark.parametrize("how", ["deadline", "cancel", "close"])
def test_a_store_that_comes_back_too_late_reads_no_slot(new_world: NewWorld, how: str) -> None:
    world = new_world(rules=ExternalRules(batch_objects=1, close_s=0.01))
    hashes = path(3)
    with world.store.hold(Call.EXISTS) as gate:
        number = world.submit_store([full(3)], hashes)
        gate.wait_for(1)
        end(world, number, how)
        (result,) = world.tier.poll()
        world.forbid([full(3)])
        assert (result.job.number, result.landed) == (number, ())
        world.pools[FULL].data[0] = b"another page"
        gate.open()
        world.watched.wait_for_end(Call.EXISTS, 1)
    world.tier._crew.stop()
    world.tier._crew.join(PATIENCE_S)
    assert world.memory.status().objects == 0


def end_late(world: World) -> None:
    """The deadlines of all jobs pass, and nothing has landed."""
    world.advance_s(60)
    assert all(result.landed == () for result in world.tier.poll())
    world.forbid([full(64)])


def end(world: World, number: int, how: str) -> None:
    if how == "deadline":
        world.advance_s(10)
    elif how == "cancel":
        world.tier.cancel(number)
    else:
        world.tier.close()


def test_a_put_that_comes_back_late_is_no_longer_reported_but_known(world: World) -> None:
    hashes = path(1)
    with world.store.hold(Call.PUT) as gate:
        world.submit_store([full(1)], hashes)
        gate.wait_for(1)
        world.advance_s(10)
        (result,) = world.tier.poll()
        world.forbid([full(1)])
        assert result.landed == ()
    world.watched.wait_for_end(Call.PUT, 1)
    world.stored([full(1)], hashes)  # waits behind the thread that came back, or finds the object
    assert world.tier.poll() == ()
    assert world.memory.status().objects == 1


# Deadlines


def test_a_late_load_ends_with_what_has_landed(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(batch_objects=2, deadline_s=5))
    hashes = path(6)
    world.stored([full(6)], hashes)
    with world.store.hold(Call.GET) as gate:
        world.submit_load([full(6, 20)], hashes)
        world.watched.wait_for(Call.GET, 1)
        gate.step()
        world.watched.wait_for(Call.GET, 2)
        world.advance_s(4.99)
        assert world.tier.poll() == ()
        world.advance_s(0.02)
        (result,) = world.tier.poll()
        world.forbid([full(6, 20)])
    assert extents(result) == [("FULL", 0, 8, [20, 21])]
    assert world.holds(result.landed, hashes)
    assert world.tier.status().error == "no answer within the deadline"


def test_jobs_end_in_the_order_of_their_end_not_of_their_submission(world: World) -> None:
    first, second = path(1, 1), path(1, 2)
    world.stored([full(1)], first)
    world.stored([full(1)], second)
    with world.store.hold(Call.GET) as gate:
        (hung,) = world.hang(Call.GET, seed=1)
        quick = world.submit_store([full(1, 30)], path(1, 3))
        (result,) = world.wait()
        assert result.job.number == quick
        other = world.submit_load([full(1, 21)], second)
        gate.wait_for(2)
        world.tier.cancel(other)
        world.tier.cancel(hung)
        assert [result.job.number for result in world.tier.poll()] == [other, hung]
        world.forbid([full(64)])


def test_the_engine_is_woken_for_a_deadline_although_every_thread_hangs() -> None:
    memory = FaultyStore(MemoryStore(1 << 20), random.Random(1))
    world = World(rules=ExternalRules(deadline_s=0.05, close_s=0.01))
    world.tier.close()
    world.tier = StoredTier(memory, world.tier._pools, PAGE, SystemClock(), world.rules, world.ended.set)
    with memory.hold(Call.EXISTS, Call.GET):
        world.submit_load([full(1)], path(1))
        assert [result.landed for result in world.wait()] == [()]
        world.forbid([full(1)])
        assert world.presence(path(1, 7)) == (Presence.RETRY,)
    world.settle()


def test_a_question_that_does_not_come_back_is_retry_and_its_late_answer_is_nothing(world: World) -> None:
    wanted = [(FULL, one) for one in path(2)]
    with world.store.hold(Call.EXISTS) as gate:
        assert world.tier.lookup(wanted) == (Presence.PENDING,) * 2
        gate.wait_for(1)
        world.advance_s(world.rules.deadline_s)
        assert world.tier.lookup(wanted) == (Presence.RETRY,) * 2
        gate.open()
        world.watched.wait_for_end(Call.EXISTS, 1)
        assert world.presence(path(1, 5)) == (Presence.MISS,)  # the thread is free again
        assert world.tier.lookup(wanted) == (Presence.RETRY,) * 2
    world.advance_s(world.rules.belief_s)
    assert world.presence(path(2)) == (Presence.MISS,) * 2
    assert world.tier.status().failed == 1


def test_a_question_that_fails_is_retry(world: World) -> None:
    world.store.faults = {Fault.FAIL: 1}
    assert world.presence(path(2)) == (Presence.RETRY,) * 2
    assert "on purpose" in world.tier.status().error


@pytest.mark.parametrize("call", [Call.GET, Call.EXISTS])
def test_a_miss_of_the_deadline_and_the_failure_it_comes_back_with_are_one(world: World, call: Call) -> None:
    with world.store.hold(call) as gate:
        if call is Call.GET:
            world.hang(call)
        else:
            world.tier.lookup([(FULL, path(1)[0])])
        gate.wait_for(1)
        end_late(world)
        gate.fail()
        world.watched.wait_for_end(call, 1)
    world.tier._crew.stop()
    world.tier._crew.join(PATIENCE_S)
    assert world.tier.status().failed == 1


def test_a_store_that_answers_after_the_deadline_every_time_is_down(world: World) -> None:
    world.stored([full(1)], path(1))
    for k in range(world.rules.failures_to_open):
        with world.store.hold(Call.GET) as gate:
            world.submit_load([full(1, 10 + k)], path(1))
            gate.wait_for(1)
            end_late(world)
            gate.open()
            world.watched.wait_for_end(Call.GET, k + 1)
    assert world.tier.status().state == "down"


def test_jobs_that_only_waited_are_no_failure_of_a_store_that_answers(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(threads=1, failures_to_open=2, batch_objects=1))
    hashes = path(3)
    with world.store.hold(Call.PUT) as gate:
        world.submit_store([full(3)], hashes)
        gate.wait_for(1)
        for k in range(5):
            world.submit_store([full(1, 10 + k)], path(1, 50 + k))
        gate.step()
        world.watched.wait_for(Call.PUT, 2)
        world.advance_s(60)
        assert len(world.tier.poll()) == 6
        world.forbid([full(64)])
        assert (world.tier.status().failed, world.tier.status().state) == (1, "up")  # the one in the call


def test_jobs_that_wait_for_hung_threads_are_failures(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(failures_to_open=3))
    with world.store.hold(Call.GET, Call.EXISTS):
        world.hang(Call.GET, 2)
        world.submit_load([full(1, 50)], path(1))
        world.advance_s(60)
        assert len(world.tier.poll()) == 3
        world.forbid([full(64)])
        assert world.tier.status().state == "down"


# Objects that are not what was asked for


@pytest.mark.parametrize("fault", [Fault.CORRUPT, Fault.CUT, Fault.LONGER, Fault.SWAPPED])
def test_a_spoilt_object_is_refused_removed_and_stored_again(world: World, fault: Fault) -> None:
    hashes = path(4)
    world.stored([full(4)], hashes)
    world.store.faults = {fault: 1}
    loaded = world.loaded([full(4, 20)], hashes)
    assert loaded.landed == ()
    assert world.pools[FULL].data[20:24] == [JUNK] * 4
    assert world.tier.status().refused == 4
    assert world.memory.status().objects == 0
    world.store.faults = {}
    assert world.presence(hashes) == (Presence.MISS,) * 4
    world.stored([full(4)], hashes)
    assert extents(world.loaded([full(4, 20)], hashes)) == [("FULL", 0, 16, [20, 21, 22, 23])]


def test_another_layout_is_refused(new_world: NewWorld) -> None:
    memory = MemoryStore(1 << 20)
    one, other = new_world(memory), new_world(memory)
    other.pools[FULL].layout = "FULL-v2"
    one.stored([full(2)], path(2))
    assert other.loaded([full(2)], path(2)).landed == ()
    assert other.tier.status().refused == 2


def test_a_lying_store_costs_a_load_and_is_not_believed_twice(world: World) -> None:
    hashes = path(2)
    world.store.faults = {Fault.LYING: 1}
    assert world.presence(hashes) == (Presence.HIT,) * 2
    assert world.loaded([full(2)], hashes).landed == ()
    assert world.presence(hashes) == (Presence.MISS,) * 2
    assert world.tier.status().missed == 2


class TooFew(Watched):
    """Answers with fewer answers than it was asked for."""

    def get(self, names: Sequence[str]) -> list[bytes | None]:
        return super().get(names)[:-1]

    def exists(self, names: Sequence[str]) -> list[bool]:
        return super().exists(names)[:-1]


def test_an_answer_of_the_wrong_length_is_a_failure(new_world: NewWorld) -> None:
    memory = MemoryStore(1 << 20)
    new_world(memory).stored([full(2)], path(2))
    world = new_world(TooFew(memory))
    assert world.loaded([full(2)], path(2)).landed == ()
    assert world.presence(path(2, 1)) == (Presence.RETRY,) * 2
    assert "ValueError" in world.tier.status().error


# Calls that fail


@pytest.mark.parametrize("call", [Call.GET, Call.REMOVE, Call.EXISTS, Call.PUT, Call.RETAIN])
@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_call_that_fails_ends_the_job_with_what_landed_before(
    new_world: NewWorld, call: Call, step: int
) -> None:
    world = new_world(rules=ExternalRules(batch_objects=1, deadline_s=5))
    hashes = path(3)
    loads = call in (Call.GET, Call.REMOVE)
    if loads or call is Call.RETAIN:
        world.stored([full(3)], hashes)
    if call is Call.REMOVE:
        world.memory.remove([object_name(hashes[step - 1], FULL)])
        world.memory.put([(object_name(hashes[step - 1], FULL), b"spoilt")], Keep.LOOSE)
    before = world.watched.begun(call)
    with world.store.hold(call) as gate:
        if loads:
            world.submit_load([full(3, 20)], hashes)
        else:
            world.submit_store([full(3, 20)], hashes, Keep.REFERENCED)
        for passed in range(1, 1 if call is Call.REMOVE else step):
            world.watched.wait_for(call, before + passed)
            gate.step()
        world.watched.wait_for(call, before + (1 if call is Call.REMOVE else step))
        gate.fail()
        (result,) = world.wait()
        world.forbid([full(64)])
    landed = step - 1
    assert extents(result) == ([("FULL", 0, landed * PAGE, list(range(20, 20 + landed)))] if landed else [])
    assert world.holds(result.landed, hashes)
    status = world.tier.status()
    assert (status.failed, status.state) == (1, "up")
    assert "broke off" in status.error


def test_a_failed_read_is_believed_to_be_a_miss_for_a_while(world: World) -> None:
    hashes = path(2)
    world.stored([full(2)], hashes)
    world.store.faults = {Fault.FAIL: 1}
    assert world.loaded([full(2, 20)], hashes).landed == ()
    world.store.faults = {}
    assert world.presence(hashes) == (Presence.MISS,) * 2
    world.advance_s(world.rules.belief_s)
    assert world.presence(hashes) == (Presence.HIT,) * 2


def test_a_read_that_hung_is_believed_to_be_a_miss_for_a_while(world: World) -> None:
    hashes = path(2)
    world.stored([full(2)], hashes)
    with world.store.hold(Call.GET) as gate:
        world.submit_load([full(2, 20)], hashes)
        gate.wait_for(1)
        end_late(world)
        assert world.presence(hashes) == (Presence.MISS,) * 2


def test_upkeep_that_fails_costs_nothing(world: World) -> None:
    with world.store.hold(Call.RETAIN) as gate:
        world.tier.retain(["x"], Keep.LOOSE)
        gate.wait_for(1)
        gate.fail()
        world.watched.wait_for_end(Call.RETAIN, 1)
    world.tier.retain(["x"], Keep.LOOSE)
    world.watched.wait_for_end(Call.RETAIN, 2)
    assert world.tier.status().failed == 1


# What a tier must not be confused by


def test_a_pool_that_fails_ends_the_job_and_not_the_thread(world: World) -> None:
    hashes = path(2)
    world.stored([full(2)], hashes)
    pool = world.pools[FULL]
    del pool.data[20:]  # a slot that is not there
    assert world.loaded([full(2, 19)], hashes).landed[0].slots.tolist() == [19]
    assert "IndexError" in world.tier.status().error
    assert extents(world.loaded([full(2, 10)], hashes)) == [("FULL", 0, 8, [10, 11])]


def test_hashes_that_are_too_few_end_the_job(world: World) -> None:
    job = world.submit_load([piece(MAMBA, 8, 8, [0])], path(1))
    (result,) = world.wait()
    assert (result.job.number, result.landed) == (job, ())
    world.forbid([piece(MAMBA, 8, 8, [0])])


def test_a_store_says_what_failed_in_one_kind_of_error(world: World) -> None:
    world.store.faults = {Fault.FAIL: 1}
    with pytest.raises(CacheError) as caught:
        world.store.get(["x"])
    assert caught.value.kind is Kind.STORE_FAILED
    assert world.presence(path(1)) == (Presence.RETRY,)
    assert "store_failed" in world.tier.status().error
