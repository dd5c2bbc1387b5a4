"""Jobs in their odder moments: claims, jobs below jobs, what is used meanwhile, partial outcomes, demoting closes."""

from dataclasses import replace

import pytest

from agentcache.errors import Kind
from agentcache.keys import Key
from agentcache.types import FULL, MAMBA, SWA, Free, Job, Move, ReleaseMode, TierName
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import counts, ends, refused
from tests.contract.test_core_write_back import named, only_job
from tests.driver import Driver

DEVICE, HOST, EXTERNAL = TierName.DEVICE, TierName.HOST, TierName.EXTERNAL
ALL = [4, 8, 12, 16]


def backed_up(driver: Driver, key: Key, *names: str) -> None:
    """Copy the region of a key to the host, all of it or some components."""
    job = driver.backup(key).job
    assert job is not None
    driver.commit(job, lambda piece, _end: not names or piece.component in names)


def stored(driver: Driver, key: Key) -> Job:
    """A store to the external tier, in flight: it reads what it names."""
    job = driver.backup(key, EXTERNAL).job
    assert job is not None
    return job


# -- what jobs keep from going


def test_a_page_that_only_the_device_has_waits_for_jobs_below(drive: Drive) -> None:
    """c is on the device, d on the host and being stored: without c the path to d would be gone."""
    driver, key = drive(page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(pages_of("abc", 4))
    driver.insert(key, tier=HOST)
    driver.evict(FULL, 3, HOST)  # d, c and b
    driver.insert(key, tier=HOST)
    planned = driver.core.plan_backup(driver.peek(key).any_tier, HOST, EXTERNAL, driver.tick())
    driver.plan(planned, key, driver.peek(key).any_tier)
    assert driver.evict(FULL, 3).freed == 3
    assert ends(driver, key, FULL, HOST) == ALL
    driver.commit(only_job(driver))


def test_a_last_copy_waits_for_jobs_below(drive: Drive) -> None:
    driver, key = drive("M", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(pages_of("abc", 4), [(MAMBA, 12)])
    driver.insert(key, [(MAMBA, 16)], driver.lock(pages_of("abc", 4)), HOST)
    driver.unlock(next(iter(driver.leases.values())))
    assert (ends(driver, key, FULL), ends(driver, key, FULL, HOST)) == ([4, 8, 12], [16])
    at = driver.peek(key).any_tier
    driver.plan(driver.core.plan_backup(at, HOST, EXTERNAL, driver.tick()), key, at)
    assert driver.evict(FULL, 1).short == 1
    driver.commit(only_job(driver))
    assert driver.evict(FULL, 1).freed == 3
    assert driver.core.snapshot().pages == ()


def test_a_page_whose_aux_data_a_job_reads_waits(drive: Drive) -> None:
    """FULL is on the host already, so the backup reads window and state alone: the page stays on the device."""
    driver, key = drive("SM", page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key)
    backed_up(driver, key, FULL)
    job = driver.backup(key).job
    assert job is not None
    assert counts(job.pieces) == {SWA: 1, MAMBA: 1}
    assert driver.evict(FULL, 1).short == 1
    driver.commit(job)
    assert driver.evict(FULL, 1).freed == 1


def test_a_page_that_the_host_has_waits_for_the_one_below_on_its_way(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    backed_up(driver, pages_of("ab", 4))
    answer = driver.evict(FULL, 2)
    assert (answer.freed, answer.moving, answer.short) == (0, 1, 1)
    driver.commit(only_job(driver))
    assert driver.evict(FULL, 2).freed == 2


def test_a_page_waits_for_a_demotion_below_it_in_the_same_call(drive: Drive) -> None:
    """c was used later than d, so they are two victims; of the same age they go in one job."""
    driver, key = drive(page=4, host_tier=True, write_back=True), pages_of("abcd", 4)
    driver.insert(key)
    driver.match(pages_of("abc", 4))
    answer = driver.evict(FULL, 2)
    assert (answer.freed, answer.moving, answer.short) == (0, 1, 1)
    driver.commit(only_job(driver))
    assert driver.evict(FULL, 2).moving == 2
    assert counts(only_job(driver).pieces) == {FULL: 2}
    driver.commit(only_job(driver))


def test_a_page_that_did_not_land_stays_while_a_job_reads_below_it(drive: Drive) -> None:
    """c was sent off; d, on the host alone, is being stored by a job that began later."""
    driver, key = drive(page=4, host_tier=True, write_back=True), pages_of("abcd", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    driver.commit(only_job(driver))
    driver.evict(FULL, 1)
    demotion, at = only_job(driver), driver.peek(key).any_tier
    store = driver.plan(driver.core.plan_backup(at, HOST, EXTERNAL, driver.tick()), key, at).job
    assert store is not None
    answer = driver.commit(demotion, lambda _piece, _end: False)
    assert (answer.landed, answer.dropped) == ((), ())
    assert (ends(driver, key, FULL), ends(driver, key, FULL, HOST)) == ([4, 8, 12], [16])
    driver.commit(store)


def test_a_page_that_another_job_reads_stays_on_the_device(drive: Drive) -> None:
    """c was sent off; a store that reads it began meanwhile and is still running when c has landed."""
    driver, key = drive("SM", page=4, host_tier=True, write_back=True), pages_of("abc", 4)
    driver.insert(key)
    driver.evict(FULL, 1)
    demotion, store = only_job(driver), stored(driver, key)
    driver.commit(demotion)
    for name in (FULL, SWA, MAMBA):
        assert ends(driver, key, name)[-1] == 12
        assert ends(driver, key, name, HOST) == [12]
    driver.commit(store)
    assert driver.depth(key) == 12


def test_aux_data_without_their_page_go_with_the_last_job_that_reads_them(drive: Drive) -> None:
    """The page is on the host alone; its state was sent off, did not land, and is still read by a store."""
    driver, key = drive("M", page=4, host_tier=True, write_back=True), pages_of("ab", 4)
    driver.insert(key)
    backed_up(driver, key, FULL)
    driver.evict(FULL, 1)
    demotion, store = only_job(driver), stored_anywhere(driver, key)
    assert named(store.pieces)[-1][:3] == (MAMBA, 8, 8)
    assert driver.commit(demotion, lambda _piece, _end: False).dropped == ()
    assert ends(driver, key, MAMBA) == [4, 8]
    answer = driver.commit(store)
    assert [part[:3] for part in named(answer.dropped)] == [(MAMBA, 8, 8)]
    assert ends(driver, key, MAMBA) == [4]


def stored_anywhere(driver: Driver, key: Key) -> Job:
    """A store of what the device has at the deepest boundary of any tier."""
    at = driver.peek(key).any_tier
    planned = driver.plan(driver.core.plan_backup(at, DEVICE, EXTERNAL, driver.tick()), key, at)
    assert planned.job is not None
    return planned.job


# -- plans


def test_a_backup_names_what_the_device_has_of_a_region(drive: Drive) -> None:
    """a is on both tiers, b on the device, c and d on the host."""
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(pages_of("a", 4), tier=HOST)
    driver.insert(pages_of("ab", 4))
    driver.insert(key, [(SWA, 16), (MAMBA, 16)], driver.lock(pages_of("ab", 4)), HOST)
    driver.unlock(next(iter(driver.leases.values())))
    at = driver.peek(key).any_tier
    assert at.length == 16
    job = driver.plan(driver.core.plan_backup(at, DEVICE, HOST, driver.tick()), key, at).job
    assert job is not None
    assert [part[:3] for part in named(job.pieces)] == [(FULL, 4, 8)]
    driver.commit(job)
    assert ends(driver, key, FULL, HOST) == ALL


def test_a_load_needs_the_whole_region_somewhere(drive: Drive) -> None:
    """At 12 the window is there and no state, at 8 a state and no window."""
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, [(SWA, 4), (SWA, 12), (SWA, 16), (MAMBA, 4), (MAMBA, 8), (MAMBA, 16)], tier=HOST)
    before, at = driver.core.snapshot(), driver.peek(key).any_tier
    for length in (12, 8):
        upper = replace(at, length=length)
        call = lambda upper=upper: driver.core.plan_load(upper, HOST, DEVICE, driver.tick())  # noqa: E731
        assert refused(call) is Kind.NOT_RESIDENT
    assert driver.core.snapshot() == before


# -- loads


def test_a_load_leases_no_more_than_the_device_has(drive: Drive) -> None:
    """FULL and windows are there, the state is on the host: its place is leased, so that it stays once it lands."""
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, tier=HOST)
    driver.insert(key, [(SWA, end) for end in ALL])
    planned = driver.load(key)
    assert planned.job is not None
    assert planned.lease is not None
    assert counts(planned.job.pieces) == {MAMBA: 1}
    driver.commit(planned.job)
    driver.evict(MAMBA, 4)
    assert driver.depth(key) == 16
    moved = driver.relock(driver.leases[planned.lease], key, driver.peek(key).device)
    assert moved.lease == planned.lease
    driver.unlock(moved)


def test_a_load_brings_what_stands_on_what_landed(drive: Drive) -> None:
    """FULL at 12 did not land: neither do window and state at 16, which would lie on nothing."""
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, tier=HOST)
    job = driver.load(key).job
    assert job is not None
    answer = driver.commit(job, lambda piece, end: piece.component != FULL or end != 12)
    assert [part[:3] for part in named(answer.landed)] == [(FULL, 0, 8)]
    assert answer.dropped == ()
    assert driver.peek(key).any_tier.length == 16
    driver.unlock(next(iter(driver.leases.values())))


# -- closes that demote


def session_on(drive: Drive, kinds: str = "", **config: object) -> tuple[Driver, Key]:
    driver, key = drive(kinds, page=4, host_tier=True, **config), pages_of("abcd", 4)
    driver.insert(key)
    driver.turn("s", key, (1, 2))
    return driver, key


def test_a_demotion_by_close_drops_nothing_that_does_not_land(drive: Drive) -> None:
    driver, key = session_on(drive, "SM")
    driver.release("s", ReleaseMode.DEMOTE)
    answer = driver.commit(only_job(driver), lambda _piece, _end: False)
    assert (answer.landed, answer.dropped) == ((), ())
    assert driver.depth(key) == 16


def test_a_demotion_by_close_keeps_what_carries_data_on_the_device(drive: Drive) -> None:
    """d and the state at 16 did not land: d stays on the device, and all above it on both tiers."""
    driver, key = session_on(drive, "M")
    driver.release("s", ReleaseMode.DEMOTE)
    driver.commit(only_job(driver), lambda piece, end: end < 16 and piece.component == FULL)
    assert (ends(driver, key, FULL), ends(driver, key, FULL, HOST)) == (ALL, [4, 8, 12])
    other, key = session_on(drive, "M")
    other.release("s", ReleaseMode.DEMOTE)
    other.commit(only_job(other), lambda piece, _end: piece.component == FULL)
    assert (ends(other, key, FULL), ends(other, key, FULL, HOST)) == (ALL, ALL)
    assert ends(other, key, MAMBA)[-1] == 16


def test_a_demotion_by_close_frees_at_once_what_the_host_has(drive: Drive) -> None:
    driver, key = session_on(drive)
    backed_up(driver, key)
    answer = driver.release("s", ReleaseMode.DEMOTE)
    assert [type(effect) for effect in answer.effects] == [Free]
    assert (ends(driver, key, FULL), ends(driver, key, FULL, HOST)) == ([], ALL)


def test_a_demotion_by_close_leaves_what_aux_data_on_their_way_lie_on(drive: Drive) -> None:
    """FULL is on the host, the states are not: they move, and their pages wait for them on the device."""
    driver, key = session_on(drive, "M")
    backed_up(driver, key, FULL)
    answer = driver.release("s", ReleaseMode.DEMOTE)
    (job,) = [effect.job for effect in answer.effects if isinstance(effect, Move)]
    assert counts(job.pieces) == {MAMBA: 4}
    assert ends(driver, key, FULL) == ALL
    driver.commit(job)
    assert ends(driver, key, MAMBA, HOST) == ALL


def test_a_demotion_by_close_spares_others(drive: Drive) -> None:
    """ab is another session's too; d is locked by a request, so c cannot leave either."""
    driver, key = session_on(drive)
    driver.turn("t", pages_of("ab", 4), (3, 4))
    held = driver.lock(key)
    assert driver.release("s", ReleaseMode.DEMOTE).effects == ()
    driver.unlock(held)
    driver.turn("s", key, (5, 6))
    driver.release("s", ReleaseMode.DEMOTE)
    assert counts(only_job(driver).pieces) == {FULL: 2}
    driver.commit(only_job(driver))
    assert (ends(driver, key, FULL), ends(driver, key, FULL, HOST)) == ([4, 8], [12, 16])


@pytest.mark.parametrize("trunk_first", [True, False])
def test_a_demotion_by_close_sends_each_branch_on_its_own(drive: Drive, trunk_first: bool) -> None:
    """The older branch goes with the trunk; landed first, the trunk stays for what is below it."""
    driver, key = session_on(drive)
    other = pages_of("abxy", 4)
    driver.insert(other)
    driver.turn("s", other, (1, 4))
    answer = driver.release("s", ReleaseMode.DEMOTE)
    jobs = [effect.job for effect in answer.effects if isinstance(effect, Move)]
    spans = [[(part.start, part.end) for part in job.pieces] for job in jobs]
    assert spans == [[(0, 16)], [(8, 16)]]
    for job in jobs if trunk_first else reversed(jobs):
        driver.commit(job)
    assert ends(driver, other, FULL) == ([4, 8] if trunk_first else [])
    assert ends(driver, key, FULL, HOST) == ends(driver, other, FULL, HOST) == ALL
