"""Handles and numbers of any size: stale, foreign, used before, beyond 32 and beyond 64 bits."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from agentcache.errors import Kind
from agentcache.types import (
    FULL,
    MAMBA,
    NO_SLOTS,
    SWA,
    Boundary,
    Insert,
    Job,
    Lease,
    NodeRef,
    ReleaseMode,
    SessionId,
    TierName,
    Turn,
    Wait,
    WaitState,
)
from tests.builders import MakeCore, config_of, interval, pages_of, slots_of, state
from tests.contract.conftest import Drive
from tests.contract.reading import refused
from tests.contract.world import World, world_of

DEVICE, HOST, EXTERNAL = TierName.DEVICE, TierName.HOST, TierName.EXTERNAL
MOST = 2**63 - 1
BEYOND = (2**63, 2**64 + 1, 2**70, -(2**63) - 1)
ODD_NUMBERS = (-1, 2**31, 2**32 + 1, 2**33 + 1, MOST, -MOST - 1, *BEYOND)


# -- handles


@pytest.mark.parametrize("length", [-4, 2, 15, 20, *ODD_NUMBERS])
def test_a_boundary_is_a_whole_page_on_the_path_of_its_node(world: World, length: int) -> None:
    refuses_boundary(world, replace(world.boundary, length=length))


@pytest.mark.parametrize("number", ODD_NUMBERS)
def test_a_boundary_with_another_node_or_epoch_is_stale(world: World, number: int) -> None:
    node = world.boundary.node
    refuses_boundary(world, replace(world.boundary, node=NodeRef(number, node.generation)))
    refuses_boundary(world, replace(world.boundary, node=NodeRef(node.index, number)))
    refuses_boundary(world, replace(world.boundary, epoch=number))


def refuses_boundary(world: World, bad: Boundary) -> None:
    """Wherever a boundary is taken."""
    core, good, session = world.core, world.boundary, SessionId("s")
    calls: list[Callable[[], object]] = [
        lambda: core.lock(bad, world.now()),
        lambda: core.relock(world.held.lease, bad, world.now()),
        lambda: core.plan_backup(bad, DEVICE, HOST, world.now()),
        lambda: core.plan_load(bad, HOST, DEVICE, world.now()),
        lambda: core.reference(session, 1, Turn(bad, None, 5, 6), world.now()),
        lambda: core.reference(session, 1, Turn(good, bad, 5, 6), world.now()),
        lambda: core.reference(session, 1, Turn(None, bad, 5, 6), world.now()),
    ]
    for call in calls:
        world.refuses(Kind.STALE_BOUNDARY, call)


@pytest.mark.parametrize("beyond", [3, 4, 5])
def test_a_boundary_reaches_no_further_than_it_was_answered_for(drive: Drive, beyond: int) -> None:
    driver, key = drive(), pages_of("abcd", 1)
    driver.insert(key)
    shallow = driver.peek(key, 2).device
    longer = replace(shallow, length=beyond)
    assert refused(lambda: driver.core.lock(longer, driver.tick())) is Kind.STALE_BOUNDARY
    assert driver.lock(key, shallow).length == 2


def test_a_boundary_above_its_node_is_as_good_as_one_of_its_own(world: World) -> None:
    upper = replace(world.boundary, length=8)
    locked = world.core.lock(upper, world.now())
    assert (locked.boundary, len(locked.pieces[0].slots)) == (upper, 2)
    world.core.unlock(locked.lease, None, world.now())


@pytest.mark.parametrize("number", [0, 1, *ODD_NUMBERS])
def test_a_lease_or_job_that_is_not_out_is_refused(world: World, number: int) -> None:
    refuses_handles(world, Lease(number), replace(world.job, number=number))


def refuses_handles(world: World, lease: Lease, job: Job) -> None:
    """Wherever a lease or a job is taken."""
    core, offer = world.core, Insert(NO_SLOTS, after=lease)
    world.refuses(Kind.LEASE_REUSED, lambda: core.unlock(lease, None, world.now()))
    world.refuses(Kind.LEASE_REUSED, lambda: core.unlock(lease, SWA, world.now()))
    world.refuses(Kind.LEASE_REUSED, lambda: core.relock(lease, world.boundary, world.now()))
    world.refuses(Kind.LEASE_REUSED, lambda: core.insert(world.key, offer, world.now()))
    world.refuses(Kind.UNKNOWN_JOB, lambda: core.commit(job, (), world.now()))


def test_what_was_released_or_committed_is_refused_from_then_on(world: World) -> None:
    world.driver.commit(world.job)
    world.driver.unlock(world.held)
    refuses_handles(replace(world, held=world.driver.lock(world.key)), world.held.lease, world.job)


def test_handles_of_another_core_are_refused(drive: Drive) -> None:
    """Two cores with one history: what the first issued means nothing to the second, whatever its numbers."""
    first, second = (world_of(drive("SM", page=4, host_tier=True)) for _ in range(2))
    assert first.core.snapshot() == second.core.snapshot()
    refuses_handles(second, first.held.lease, first.job)
    refuses_boundary(second, first.boundary)
    root = first.driver.peek(pages_of("zz", 4)).device
    refuses_boundary(second, root)
    first.finish()
    second.finish()


# -- counts and numbers


@pytest.mark.parametrize("count", [2**31, 2**32 + 1, MOST, *BEYOND[:3]])
def test_a_count_beyond_what_there_is_means_all(make_core: MakeCore, count: int) -> None:
    """`want`, `limit`, `room` and the generation of a release saturate at 64 bits."""
    core = make_core(config_of("SM", 4, host_tier=True, write_back=True))
    key = pages_of("abcd", 4)
    pieces = (interval(0, 16, [0, 1, 2, 3]), state(16, 0))
    at = core.insert(key, Insert(slots_of([0, 1, 2, 3]), pieces), 1).frontier
    assert core.match(key, count, 2) == core.peek(key, count) == core.peek(key, 16)
    core.reference(SessionId("s"), MOST, Turn(at, None, MOST, MOST), 3)
    answer = core.evict(FULL, TierName.DEVICE, count, {FULL: count, SWA: count, MAMBA: count}, 4)
    assert (answer.freed, answer.moving, answer.short) == (0, 4, min(count, MOST) - 4)
    assert core.release(SessionId("s"), count, ReleaseMode.RELEASE, 5).markers == (count >= MOST)
    core.check()


@pytest.mark.parametrize("count", [-1, -(2**31), -(2**32) - 1, -MOST - 1, BEYOND[3]])
def test_a_count_below_none_means_none(drive: Drive, count: int) -> None:
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abcd", 4)
    driver.insert(key)
    driver.turn("s", key, (1, 2), generation=0)
    before = driver.core.snapshot()
    found = driver.core.match(key, count, driver.tick())
    assert (found.device.length, found.any_tier.length, found.full_tokens, found.miss) == (0, 0, 0, None)
    answer = driver.core.evict(FULL, DEVICE, count, {}, driver.tick())
    assert (answer.freed, answer.moving, answer.short, answer.effects) == (0, 0, 0, ())
    for mode in ReleaseMode:
        assert driver.core.release(SessionId("s"), count, mode, driver.tick()).markers == 0
    assert driver.core.snapshot() == before
    room = {FULL: count, SWA: count, MAMBA: count}
    answer = driver.core.evict(FULL, DEVICE, 1, room, driver.tick())
    assert (answer.freed, answer.moving) == (1, 0)
    driver.apply(answer.effects)


@pytest.mark.parametrize("number", BEYOND)
def test_a_number_that_is_kept_fits_into_64_bits(world: World, number: int) -> None:
    core, session, at = world.core, SessionId("s"), world.boundary
    wait = Wait(WaitState.IDLE, 1, 1)
    calls: list[Callable[[], object]] = [
        lambda: core.match(world.key, 16, number),
        lambda: core.insert(pages_of("pq", 4), Insert(slots_of([130, 131])), number),
        lambda: core.lock(at, number),
        lambda: core.relock(world.held.lease, at, number),
        lambda: core.unlock(world.held.lease, None, number),
        lambda: core.evict(FULL, DEVICE, 1, {}, number),
        lambda: core.plan_backup(at, DEVICE, EXTERNAL, number),
        lambda: core.plan_load(at, HOST, DEVICE, number),
        lambda: core.commit(world.job, (), number),
        lambda: core.reference(session, 1, Turn(at, None, 5, 6), number),
        lambda: core.reference(session, number, Turn(at, None, 5, 6), 9),
        lambda: core.reference(session, 1, Turn(at, None, number, 6), 9),
        lambda: core.reference(session, 1, Turn(at, None, 5, number), 9),
        lambda: core.release(session, 1, ReleaseMode.DROP, number),
        lambda: core.expect(session, wait, number),
        lambda: core.expect(session, replace(wait, key_ns=number), 9),
        lambda: core.expect(session, replace(wait, hint_ns=number), 9),
        lambda: core.clear(None, number),
    ]
    for call in calls:
        world.refuses(Kind.BAD_REQUEST, call)
    world.finish()
