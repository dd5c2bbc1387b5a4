"""An external tier on a store that works."""

import threading

import numpy as np
import pytest

from agentcache.keys import object_name
from agentcache.tiers.api import Keep, Presence
from agentcache.tiers.external import ExternalRules
from agentcache.tiers.stores.faulty import Call, Fault
from agentcache.tiers.stores.memory import MemoryStore
from agentcache.types import FULL, MAMBA, SWA, Piece, TierName
from tests.unit.tiers.conftest import NewWorld
from tests.unit.tiers.external_world import PAGE, PATIENCE_S, PATIENT, World, extents, full, path, piece

MIXED = [full(6), piece(SWA, 2 * PAGE, 5 * PAGE, [3, 1, 2]), piece(MAMBA, 4 * PAGE, 4 * PAGE, [7])]


def test_what_was_stored_is_loaded_byte_by_byte_and_whole(world: World) -> None:
    hashes = path(6)
    stored = world.stored(MIXED, hashes)
    assert extents(stored) == [
        ("FULL", 0, 24, [0, 1, 2, 3, 4, 5]),
        ("SWA", 8, 20, [3, 1, 2]),
        ("MAMBA", 16, 16, [7]),
    ]
    targets = [full(6, 20), piece(SWA, 8, 20, [30, 32, 31]), piece(MAMBA, 16, 16, [40])]
    loaded = world.loaded(targets, hashes)
    assert extents(loaded) == extents_of(targets)
    assert world.holds(targets, hashes)
    status = world.tier.status()
    assert (status.stored, status.loaded, status.failed, status.state) == (10, 10, 0, "up")


def extents_of(parts: list[Piece]) -> list[tuple[str, int, int, list[int]]]:
    return [(part.component, part.start, part.end, part.slots.tolist()) for part in parts]


def test_a_missing_page_parts_a_piece_and_a_missing_state_is_gone(world: World) -> None:
    hashes = path(6)
    world.stored(MIXED, hashes)
    gone = [(hashes[1], FULL), (hashes[2], FULL), (hashes[5], FULL), (hashes[3], MAMBA), (hashes[2], SWA)]
    world.memory.remove([object_name(one, component) for one, component in gone])
    loaded = world.loaded([full(6, 20), MIXED[1], MIXED[2]], hashes)
    assert extents(loaded) == [
        ("FULL", 0, 4, [20]),
        ("FULL", 12, 20, [23, 24]),
        ("SWA", 12, 20, [1, 2]),
    ]
    assert world.pools[FULL].data[21] == bytes([255]) * 48
    assert world.tier.status().missed == 5


def test_a_piece_in_the_middle_of_a_path_is_named_by_its_ends(world: World) -> None:
    hashes = path(8)
    world.stored([piece(FULL, 5 * PAGE, 8 * PAGE, [0, 1, 2])], hashes)
    names = [object_name(one, FULL) for one in hashes]
    assert world.memory.exists(names) == [False] * 5 + [True] * 3


def test_a_job_without_targets_ends_at_the_next_poll(world: World) -> None:
    store = world.submit_store([], ())
    load = world.submit_load([], ())
    assert world.ended.is_set()
    assert [(result.job.number, result.landed) for result in world.tier.poll()] == [(store, ()), (load, ())]
    assert world.tier.poll() == ()


def test_large_transfers_go_in_small_calls_in_walk_order(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(batch_objects=2, batch_bytes=10_000))
    hashes = path(5)
    world.stored([full(5)], hashes)
    with world.store.hold(Call.GET) as gate:
        number = world.submit_load([full(5, 20)], hashes)
        for begun in (1, 2):
            world.watched.wait_for(Call.GET, begun)
            gate.step()
        world.watched.wait_for(Call.GET, 3)
        world.tier.cancel(number)
        (result,) = world.tier.poll()
        world.forbid([full(5, 20)])
    assert extents(result) == [("FULL", 0, 16, [20, 21, 22, 23])]


def test_a_call_moves_at_most_batch_bytes_and_at_least_one_page(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(batch_objects=100, batch_bytes=1))
    hashes = path(2)
    world.stored([full(2)], hashes)
    with world.store.hold(Call.GET) as gate:
        number = world.submit_load([full(2, 20)], hashes)
        world.watched.wait_for(Call.GET, 1)
        gate.step()
        world.watched.wait_for(Call.GET, 2)
        world.tier.cancel(number)
        (result,) = world.tier.poll()
        world.forbid([full(2, 20)])
    assert extents(result) == [("FULL", 0, 4, [20])]


def test_lookup_asks_once_and_remembers_for_a_while(world: World) -> None:
    hashes = path(4)
    world.stored([full(2)], hashes)
    other = [(FULL, hashes[2]), (FULL, hashes[3]), (FULL, hashes[2])]
    with world.store.hold(Call.EXISTS) as gate:
        assert world.tier.lookup(other) == (Presence.PENDING,) * 3
        assert world.tier.lookup(other) == (Presence.PENDING,) * 3
        gate.wait_for(1)
        assert gate.held == 1
        assert world.tier.lookup([(FULL, hashes[0])]) == (Presence.HIT,)  # it was put: no question
    assert world.presence(hashes) == (Presence.HIT, Presence.HIT, Presence.MISS, Presence.MISS)
    with world.store.hold(Call.EXISTS) as gate:
        assert world.tier.lookup([(FULL, one) for one in hashes])[2:] == (Presence.MISS,) * 2
        world.advance_s(world.rules.belief_s)
        assert world.tier.lookup([(FULL, one) for one in hashes]) == (Presence.PENDING,) * 4
        gate.wait_for(1)


def test_lookup_tells_components_apart(world: World) -> None:
    hashes = path(3)
    world.stored([full(3), piece(MAMBA, 2 * PAGE, 2 * PAGE, [0])], hashes)
    assert world.presence(hashes, MAMBA) == (Presence.MISS, Presence.HIT, Presence.MISS)


def test_a_lookup_of_more_than_is_remembered_still_ends(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(max_known=3))
    assert world.presence(path(5)) == (*[Presence.MISS] * 3, *[Presence.RETRY] * 2)


def test_a_long_question_is_asked_in_parts(world: World) -> None:
    hashes = path(1000)
    assert world.presence(hashes) == (Presence.MISS,) * 1000


def test_what_is_stored_becomes_a_hit_although_it_was_a_miss_just_now(world: World) -> None:
    hashes = path(2)
    assert world.presence(hashes) == (Presence.MISS,) * 2
    world.stored([full(2)], hashes)
    assert world.presence(hashes) == (Presence.HIT,) * 2


def test_objects_that_are_there_are_neither_read_nor_sent_again(new_world: NewWorld) -> None:
    memory = MemoryStore(1 << 20)
    first, second = new_world(memory), new_world(memory)
    hashes = path(3)
    first.stored([full(3)], hashes)
    second.submit_store([full(3)], hashes)
    second.forbid([full(3)])  # a read would be a trespass
    (result,) = second.wait()
    assert extents(result) == [("FULL", 0, 12, [0, 1, 2])]
    with first.store.hold(Call.EXISTS, Call.PUT):  # known: not even asked for
        assert extents(first.stored([full(3)], hashes)) == extents(result)
    assert (first.tier.status().stored, second.tier.status().stored) == (3, 0)


def test_a_missed_object_is_stored_again(world: World) -> None:
    hashes = path(2)
    world.stored([full(2)], hashes)
    world.memory.remove([object_name(hashes[0], FULL)])
    assert extents(world.loaded([full(2, 20)], hashes)) == [("FULL", 4, 8, [21])]
    world.stored([full(2)], hashes)
    assert world.tier.status().stored == 3
    assert extents(world.loaded([full(2, 20)], hashes)) == [("FULL", 0, 8, [20, 21])]


def test_a_lookup_that_finds_nothing_lets_it_be_stored_again(world: World) -> None:
    hashes = path(1)
    world.stored([full(1)], hashes)
    world.memory.remove([object_name(hashes[0], FULL)])
    world.advance_s(world.rules.belief_s)
    assert world.presence(hashes) == (Presence.MISS,)
    world.stored([full(1)], hashes)
    assert world.tier.status().stored == 2


def classes(memory: MemoryStore) -> dict[Keep, int]:
    return {keep: len(held) for keep, held in memory._classes.items()}


def test_a_store_says_how_dear_its_objects_are(world: World) -> None:
    world.stored([full(2)], path(2), Keep.REFERENCED)
    assert classes(world.memory) == {Keep.LOOSE: 0, Keep.REFERENCED: 2}


@pytest.mark.parametrize("known", [True, False])
def test_objects_that_are_there_are_retained_when_they_become_dear(new_world: NewWorld, known: bool) -> None:
    memory = MemoryStore(1 << 20)
    world = new_world(memory)
    world.stored([full(2)], path(2))
    again = world if known else new_world(memory)
    assert extents(again.stored([full(2)], path(2), Keep.REFERENCED)) == [("FULL", 0, 8, [0, 1])]
    assert classes(memory) == {Keep.LOOSE: 0, Keep.REFERENCED: 2}


def test_retain_moves_objects_later_and_the_last_word_counts(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(max_known=4))
    world.stored([full(4)], path(4))
    names = [object_name(one, FULL) for one in path(4)]
    with world.store.hold(Call.RETAIN) as gate:
        world.tier.retain(["first"], Keep.LOOSE)
        gate.wait_for(1)
        world.tier.retain(["too many", "to be remembered"], Keep.REFERENCED)
        world.tier.retain(names, Keep.REFERENCED)
        world.tier.retain(names[:1], Keep.LOOSE)
        gate.step()
        world.watched.wait_for(Call.RETAIN, 2)  # what is dear, in one call
        gate.step()
        world.watched.wait_for(Call.RETAIN, 3)  # and what is not
        gate.step()
        world.watched.wait_for_end(Call.RETAIN, 3)
    world.tier.close()
    assert world.watched.retained == [["first"], names[1:], names[:1]]
    assert classes(world.memory) == {Keep.LOOSE: 1, Keep.REFERENCED: 3}


def test_status_has_the_stores_own_figures_and_never_waits_for_them(world: World) -> None:
    world.stored([full(2)], path(2))
    world.advance_s(world.rules.status_s)
    with world.store.hold(Call.STATUS) as gate:
        assert world.tier.status().backend == "memory"
        gate.wait_for(1)
        assert world.tier.status().state == "up"
        world.advance_s(world.rules.status_s)
        gate.step()
        world.tier.status()
        world.watched.wait_for(Call.STATUS, 3)
        status = world.tier.status()
    assert (status.objects, status.capacity_bytes, status.address) == (2, 1 << 24, "this process's memory")


def test_drain_lets_one_poll_report_everything(new_world: NewWorld) -> None:
    world = new_world(rules=PATIENT)
    hashes = path(8)
    numbers = [world.submit_store([full(8)], hashes)]
    numbers += [world.submit_store([piece(SWA, 0, 4, [k])], path(1, seed=k)) for k in range(10)]
    world.tier.lookup([(FULL, path(1, seed=99)[0])])
    world.tier.drain()
    assert sorted(result.job.number for result in world.tier.poll()) == numbers
    assert world.tier.lookup([(FULL, path(1, seed=99)[0])]) == (Presence.MISS,)
    world.forbid([full(8), piece(SWA, 0, 4, range(10))])


def test_drain_lets_questions_be_answered(new_world: NewWorld) -> None:
    world = new_world(rules=PATIENT)
    wanted = [(FULL, path(1)[0])]
    with world.store.hold(Call.EXISTS) as gate:
        assert world.tier.lookup(wanted) == (Presence.PENDING,)
        gate.wait_for(1)
        opener = threading.Timer(0.02, gate.open)
        opener.start()
        world.tier.drain()
        assert world.tier.lookup(wanted) == (Presence.MISS,)
        opener.join()


def test_stores_beyond_the_queue_end_with_nothing(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(max_queued_bytes=48 * 5))
    with world.store.hold(Call.PUT) as gate:
        first = world.submit_store([full(9)], path(9))  # one alone is let in, whatever its size
        gate.wait_for(1)
        refused = world.submit_store([full(1, 20)], path(1, seed=1))
        (result,) = world.tier.poll()
        assert (result.job.number, result.landed) == (refused, ())
        gate.open()
        assert [result.job.number for result in world.wait()] == [first]
        assert world.tier._queued_bytes == 0
    with world.store.hold(Call.PUT) as gate:
        world.submit_store([full(2)], path(2, seed=2))
        world.submit_store([full(4, 10)], path(4, seed=3))  # too much beside the first
        world.submit_store([full(3, 20)], path(3, seed=4))  # what was refused takes no room
        assert len(world.tier.poll()) == 1
        gate.open()
        assert [len(result.landed) for result in world.wait(2)] == [1, 1]
    world.forbid([full(64)])


def test_loads_go_before_queued_stores(new_world: NewWorld) -> None:
    world = new_world(rules=ExternalRules(threads=1))
    hashes = path(1)
    world.stored([full(1)], hashes)
    with world.store.hold(Call.PUT) as gate:
        stores = [world.submit_store([full(1, 10 + k)], path(1, seed=9 + k)) for k in range(3)]
        gate.wait_for(1)
        load = world.submit_load([full(1, 1)], hashes)
        gate.step()
        assert [result.job.number for result in world.wait(2)] == [stores[0], load]
        gate.open()
        world.wait(2)
    world.forbid([full(64)])


def test_a_closed_tier_ends_everything_with_nothing(world: World) -> None:
    hashes = path(1)
    world.stored([full(1)], hashes)
    world.tier.close()
    world.tier.close()
    assert world.tier.lookup([(FULL, hashes[0])]) == (Presence.RETRY,)
    numbers = [world.submit_store([full(1)], hashes), world.submit_load([full(1)], hashes)]
    world.tier.retain(["x"], Keep.LOOSE)
    world.tier.cancel(77)
    assert [(result.job.number, result.landed) for result in world.tier.poll()] == [(n, ()) for n in numbers]
    assert world.tier.status().backend == "memory"
    assert world.tier.name is TierName.EXTERNAL


def test_a_full_store_keeps_what_it_can(new_world: NewWorld) -> None:
    world = new_world()
    world.store.faults = {Fault.REFUSED: 0.5}
    hashes = path(12)
    stored = world.stored([full(12)], hashes)
    world.store.faults = {}
    names = [object_name(one, FULL) for one in hashes]
    there = world.memory.exists(names)
    landed = np.concatenate([part.slots for part in stored.landed])
    assert 0 < sum(there) < 12
    assert landed.tolist() == [k for k, present in enumerate(there) if present]
    assert world.tier.status().failed == 0  # being full is a value


def test_status_may_be_read_from_any_thread_while_the_engine_works(world: World) -> None:
    stop = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(world.tier.status().stored)

    reader = threading.Thread(target=read)
    reader.start()
    for k in range(50):
        world.stored([full(4)], path(4, seed=k))
    stop.set()
    reader.join(PATIENCE_S)
    assert seen == sorted(seen)
    assert world.tier.status().stored == 200


def test_two_jobs_of_the_same_pages_both_land(world: World) -> None:
    hashes = path(4)
    world.submit_store([full(4)], hashes)
    world.submit_store([full(4)], hashes)
    assert [extents(result) for result in world.wait(2)] == [[("FULL", 0, 16, [0, 1, 2, 3])]] * 2
    assert world.memory.status().objects == 4
    world.forbid([full(4)])
