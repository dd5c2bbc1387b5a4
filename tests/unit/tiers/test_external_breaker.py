"""An external tier behind a breaker that is open, and with threads that hang: nothing waits, nothing piles up."""

import threading

from agentcache.tiers.api import JobResult, Keep, Presence
from agentcache.tiers.external import ExternalRules
from agentcache.tiers.stores.faulty import Call, Fault
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.types import FULL
from tests.unit.tiers.conftest import NewWorld
from tests.unit.tiers.external_world import PATIENCE_S, World, extents, full, path


def test_upkeep_that_is_queued_when_the_breaker_opens_is_dropped(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(threads=1, failures_to_open=1))
    with world.store.hold(Call.GET) as gate:
        world.hang(Call.GET)
        world.tier.retain(["x"], Keep.LOOSE)
        gate.fail()
        world.wait()
        world.forbid([full(64)])
        while world.tier._crew.queued:  # its thread is on its way to it
            assert world.tier.poll() == ()
    world.tier._crew.stop()
    world.tier._crew.join(PATIENCE_S)
    assert world.watched.retained == []


# The breaker


def break_it(world: World) -> None:
    """Fail until the breaker opens."""
    world.upkept()
    world.store.faults = {Fault.FAIL: 1}
    for k in range(world.rules.failures_to_open):
        world.presence(path(1, 1000 + k))
    assert world.tier.status().state == "down"


def test_an_open_breaker_asks_nothing_and_ends_everything(world: World) -> None:
    hashes = path(2)
    world.stored([full(2)], hashes)
    break_it(world)
    asked = [world.watched.begun(call) for call in Call]
    assert world.tier.lookup([(FULL, one) for one in hashes]) == (Presence.RETRY,) * 2
    assert world.loaded([full(2, 20)], hashes).landed == ()
    assert world.stored([full(2)], path(2, 3)).landed == ()
    world.tier.retain(["x"], Keep.LOOSE)
    world.tier.drain()
    assert [world.watched.begun(call) for call in Call] == asked


def test_what_is_queued_when_the_breaker_opens_ends_at_the_next_poll(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(threads=1, failures_to_open=1))
    with world.store.hold(Call.GET) as gate:
        world.hang(Call.GET)
        world.submit_load([full(1, 1)], path(1, 1))
        world.submit_store([full(1, 2)], path(1, 2))
        wanted = [(FULL, path(1, 3)[0])]
        assert world.tier.lookup(wanted) == (Presence.PENDING,)
        gate.fail()
        assert [result.landed for result in world.wait(3)] == [()] * 3
        world.forbid([full(64)])
        assert world.tier.lookup(wanted) == (Presence.RETRY,)


def test_one_probe_closes_the_breaker_and_what_was_known_is_forgotten(world: World) -> None:
    hashes = path(2)
    world.stored([full(2)], hashes)
    break_it(world)
    world.store.faults = {}
    world.store.store = MemoryStore(1 << 20)  # restarted, and empty
    with world.store.hold(Call.EXISTS) as gate:
        world.advance_s(world.rules.cool_down_s)
        assert world.tier.poll() == ()
        gate.wait_for(1)
        assert world.tier.lookup([(FULL, hashes[0])]) == (Presence.RETRY,)
        asked = world.watched.begun(Call.EXISTS)
        gate.open()
        world.watched.wait_for_end(Call.EXISTS, asked)
    while world.tier.status().state == "down":  # its thread is on its way from the store to the breaker
        assert world.tier.poll() == ()
    world.stored([full(2)], hashes)  # asked again, and put again
    assert world.store.store.status().objects == 2
    assert world.presence(hashes) == (Presence.HIT,) * 2


def test_a_probe_that_fails_keeps_it_open(world: World) -> None:
    break_it(world)
    world.advance_s(world.rules.cool_down_s)
    asked = world.watched.begun(Call.EXISTS)
    assert world.tier.status().state == "down"  # who asks for the status lets it be probed, too
    world.watched.wait_for_end(Call.EXISTS, asked + 1)
    assert world.tier.lookup([(FULL, b"x" * 32)]) == (Presence.RETRY,)


def test_probes_do_not_pile_up_behind_threads_that_hang(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(threads=1, failures_to_open=1))
    with world.store.hold(Call.GET):
        world.hang(Call.GET)
        for _ in range(200):
            world.advance_s(5)
            world.tier.poll()
        world.forbid([full(64)])
        assert world.tier._crew.queued <= 1
        assert world.tier.status().state == "down"
    world.watched.wait_for_end(Call.EXISTS, 1)


# Threads that hang


def test_a_call_that_comes_back_in_time_speaks_for_the_store_although_its_job_was_cancelled(
    world: World,
) -> None:
    standing = world.tier._desk.standing
    with world.store.hold(Call.GET) as gate:
        (number,) = world.hang(Call.GET)
        before = standing.successes
        world.tier.cancel(number)
        world.forbid([full(64)])
        gate.open()
        world.watched.wait_for_end(Call.GET, 1)
    world.tier._crew.stop()
    world.tier._crew.join(PATIENCE_S)
    assert standing.successes == before + 1


def test_the_deadline_that_opens_the_breaker_ends_the_others_in_the_same_poll(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(threads=1, failures_to_open=1))
    with world.store.hold(Call.GET):
        world.hang(Call.GET)
        world.advance_s(1.5)
        world.submit_load([full(1)], path(1))
        world.advance_s(1)
        assert len(world.tier.poll()) == 2
        world.forbid([full(64)])


def test_cancelled_jobs_leave_the_queue_although_every_thread_hangs(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(threads=1))
    with world.store.hold(Call.GET):
        numbers = world.hang(Call.GET)
        numbers += [world.submit_load([full(1, k)], path(1, k)) for k in range(5)]
        for number in numbers:
            world.tier.cancel(number)
        assert world.tier._crew.queued == 0
        assert len(world.tier.poll()) == 6
        world.forbid([full(64)])


def test_nothing_leaks_while_all_threads_hang_and_all_is_well_when_they_come_back(
    new_world: NewWorld,
) -> None:
    world = new_world(rules=ExternalRules(failures_to_open=10_000, cool_down_s=1))
    hashes = path(2)
    world.stored([full(2)], hashes)
    world.upkept()
    with world.store.hold(Call.GET, Call.PUT):
        hung = world.hang(Call.GET, 2)
        ended: list[JobResult] = []
        for k in range(50):
            world.submit_load([full(1, 10)], path(1, k))
            world.submit_store([full(1, 11)], path(1, k))
            world.tier.lookup([(FULL, one) for one in path(3, k)])
            world.advance_s(60)
            ended += world.tier.poll()
            world.forbid([full(64)])
            assert world.tier._crew.queued == 0
        assert len(ended) == 102
        assert {result.job.number for result in ended} >= set(hung)
        assert world.tier._flights == {}
    world.advance_s(60)
    assert extents(world.loaded([full(2, 20)], hashes)) == [("FULL", 0, 8, [20, 21])]


def test_stores_that_hang_do_not_keep_loads_waiting(world: World) -> None:
    hashes = path(2)
    world.stored([full(2)], hashes)
    with world.store.hold(Call.PUT):
        world.hang(Call.PUT)
        world.submit_store([full(1, 30)], path(1, 7))
        load = world.submit_load([full(2, 20)], hashes)
        (result,) = world.wait()
        assert result.job.number == load
        assert extents(result) == [("FULL", 0, 8, [20, 21])]
    world.wait(2)
    world.forbid([full(64)])


def test_drain_waits_for_a_hung_store_no_longer_than_the_deadline(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(deadline_s=0.05, deadline_per_mib_s=0.001))
    with world.store.hold(Call.PUT, Call.GET):
        numbers = world.hang(Call.GET, 1) + world.hang(Call.PUT, 1)
        world.tier.drain()
        results = world.tier.poll()
        world.forbid([full(64)])
    assert sorted(result.job.number for result in results) == sorted(numbers)
    assert all(result.landed == () for result in results)


def test_close_does_not_wait_for_a_hung_store_and_closes_it_all_the_same(new_world: NewWorld) -> None:
    closed = threading.Event()

    class Closing(MemoryStore):
        def close(self) -> None:
            closed.set()

    world = new_world(Closing(1 << 20), rules=ExternalRules(close_s=0.3))
    with world.store.hold(Call.PUT, Call.GET):
        numbers = world.hang(Call.GET, 1) + world.hang(Call.PUT, 1)
        queued = world.submit_load([full(1)], path(1))
        world.tier.close()
        results = world.tier.poll()
        world.forbid([full(64)])
    assert sorted(result.job.number for result in results) == sorted([*numbers, queued])
    assert closed.wait(PATIENCE_S)


def test_a_store_that_hangs_in_its_close_is_left_to_itself(new_world: NewWorld) -> None:
    class Hanging(MemoryStore):
        def close(self) -> None:
            gate.enter()

    world = new_world(rules=ExternalRules(close_s=0.02))
    with world.store.hold(Call.GET) as gate:
        world.store.store = Hanging(1)
        world.tier.close()
