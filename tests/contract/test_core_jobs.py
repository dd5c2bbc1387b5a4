"""plan_backup, plan_load and commit: protection, partial and empty outcomes, late and repeated commits."""

import pytest

from agentcache.errors import Kind
from agentcache.types import FULL, MAMBA, SWA, Job, Piece, TierName
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import counts, ends, refused

HOST, DEVICE = TierName.HOST, TierName.DEVICE


def up_to(limit: int) -> object:
    return lambda _piece, end: end <= limit


def test_backup_names_the_region_and_copies_it(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    assert (job.source, job.target, job.leaving) == (DEVICE, HOST, False)
    assert counts(job.pieces) == {FULL: 3, SWA: 1, MAMBA: 1}
    answer = driver.commit(job)
    assert counts(answer.landed) == {FULL: 3, SWA: 1, MAMBA: 1}
    assert answer.dropped == ()
    assert [ends(driver, key, name, HOST) for name in (FULL, SWA, MAMBA)] == [[4, 8, 12], [12], [12]]
    assert driver.depth(key) == 12


def test_backup_names_only_what_is_missing(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key)
    first = driver.backup(pages_of("ab", 4)).job
    assert first is not None
    driver.commit(first)
    second = driver.backup(key).job
    assert second is not None
    assert counts(second.pieces) == {FULL: 1, SWA: 1, MAMBA: 1}
    driver.commit(second)
    assert driver.backup(key).job is None


def test_a_job_protects_its_source(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    assert driver.evict(FULL, 3).short == 3
    driver.evict(SWA, 3)
    driver.evict(MAMBA, 3)
    assert driver.depth(key) == 12
    driver.commit(job)
    assert driver.evict(FULL, 3).freed == 3


def test_pieces_of_a_job_stay_matchable_lockable_and_splittable(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    assert driver.depth(key) == 16
    held = driver.lock(key)
    driver.insert(pages_of("abxy", 4))
    driver.commit(job)
    driver.unlock(held)
    assert ends(driver, key, FULL, HOST) == [4, 8, 12, 16]


@pytest.mark.parametrize("landed", [0, 1, 2, 3])
def test_full_keeps_what_landed_from_the_start(drive: Drive, landed: int) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    driver.commit(job, lambda piece, end: piece.component != FULL or end <= 4 * landed)
    assert ends(driver, key, FULL, HOST) == [4, 8, 12][:landed]
    assert driver.depth(key) == 12


def test_full_keeps_no_part_beyond_a_gap_on_load(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, tier=HOST)
    planned = driver.load(key)
    assert planned.job is not None
    driver.commit(planned.job, lambda _piece, end: end != 8)
    assert ends(driver, key, FULL) == [4]
    assert driver.depth(key) == 4


def test_an_empty_outcome_changes_nothing(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key)
    before = driver.core.snapshot().pages
    job = driver.backup(key).job
    assert job is not None
    answer = driver.commit(job, lambda _piece, _end: False)
    assert (answer.landed, answer.dropped) == ((), ())
    assert driver.core.snapshot().pages == before
    assert driver.evict(FULL, 3).freed == 3


def test_aux_without_full_on_the_device_does_not_land(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key, tier=HOST)
    planned = driver.load(key)
    assert planned.job is not None
    driver.commit(planned.job, lambda piece, _end: piece.component != FULL)
    assert [ends(driver, key, name) for name in (FULL, SWA, MAMBA)] == [[], [], []]


def test_load_brings_the_region_to_the_device(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, tier=HOST)
    driver.insert(pages_of("ab", 4))
    planned = driver.load(key)
    assert planned.job is not None
    assert counts(planned.job.pieces) == {FULL: 2, SWA: 1, MAMBA: 1}
    assert planned.lease is not None
    driver.commit(planned.job)
    assert driver.depth(key) == 16
    assert ends(driver, key, FULL, HOST) == [4, 8, 12, 16]
    driver.unlock(driver.leases[planned.lease])


def test_load_protects_both_sides(drive: Drive) -> None:
    """The device part by the lease, the host part by the job."""
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, tier=HOST)
    driver.insert(pages_of("ab", 4))
    planned = driver.load(key)
    assert planned.job is not None
    assert planned.lease is not None
    driver.evict(FULL, 4)
    driver.evict(FULL, 4, HOST)
    driver.evict(SWA, 4, HOST)
    driver.evict(MAMBA, 4, HOST)
    assert driver.peek(key).any_tier.length == 16
    driver.commit(planned.job)
    assert driver.depth(key) == 16
    driver.unlock(driver.leases[planned.lease])


def test_a_loaded_region_is_locked_by_voting_again(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, tier=HOST)
    planned = driver.load(key)
    assert planned.job is not None
    assert planned.lease is not None
    driver.commit(planned.job, up_to(8))  # type: ignore[arg-type]
    held = driver.relock(driver.leases[planned.lease], key, driver.peek(key).device)
    driver.unlock(held)


def test_nothing_to_load_is_no_job(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key)
    planned = driver.load(key)
    assert planned.job is None
    if planned.lease is not None:
        driver.unlock(driver.leases[planned.lease])


def test_a_plan_that_found_no_room_is_committed_empty(drive: Drive) -> None:
    driver = drive(page=4, host_tier=True, host_slots=2)
    key = pages_of("abcd", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    driver.commit(job)
    assert len(ends(driver, key, FULL, HOST)) <= 2
    assert driver.depth(key) == 16


def test_a_page_that_came_meanwhile_wins(drive: Drive) -> None:
    """While a load is in flight a request computes the same pages: the loaded copies are freed."""
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key, tier=HOST)
    planned = driver.load(key)
    assert planned.job is not None
    assert planned.lease is not None
    driver.insert(key)
    answer = driver.commit(planned.job)
    assert counts(answer.landed) == {}
    assert driver.depth(key) == 12
    driver.unlock(driver.leases[planned.lease])


def test_a_store_only_protects(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abc", 4)
    driver.insert(key)
    job = driver.backup(key, TierName.EXTERNAL).job
    assert job is not None
    assert counts(job.pieces) == {FULL: 3, SWA: 1, MAMBA: 1}
    assert driver.evict(FULL, 3).short == 3
    before = driver.core.snapshot().pages
    answer = driver.commit(job)
    assert answer.dropped == ()
    assert driver.core.snapshot().pages == before
    assert driver.evict(FULL, 3).freed == 3


def test_jobs_complete_in_any_order(drive: Drive) -> None:
    driver = drive("SM", page=4, host_tier=True)
    keys = [pages_of(letters, 4) for letters in ("abc", "abx", "pq")]
    jobs: list[Job] = []
    for key in keys:
        driver.insert(key)
        job = driver.backup(key).job
        assert job is not None
        jobs.append(job)
    for job in reversed(jobs):
        driver.commit(job)
    assert [ends(driver, key, FULL, HOST)[-1:] for key in keys] == [[12], [12], [8]]


def test_a_job_is_committed_once(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    driver.commit(job)
    before = driver.core.snapshot()
    assert refused(lambda: driver.core.commit(job, (), driver.tick())) is Kind.UNKNOWN_JOB
    foreign = Job(4711, DEVICE, HOST, (Piece(FULL, 0, 4),))
    assert refused(lambda: driver.core.commit(foreign, (), driver.tick())) is Kind.UNKNOWN_JOB
    assert driver.core.snapshot() == before


def test_a_stale_boundary_is_not_planned(drive: Drive) -> None:
    driver, key = drive(page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key)
    old = driver.peek(key).device
    driver.evict(FULL)
    before = driver.core.snapshot()
    plans = (driver.core.plan_backup, driver.core.plan_load)
    sides = ((DEVICE, HOST), (HOST, DEVICE))
    for plan, (source, target) in zip(plans, sides, strict=True):
        call = lambda p=plan, s=source, t=target: p(old, s, t, driver.tick())  # noqa: E731
        assert refused(call) is Kind.STALE_BOUNDARY
    assert driver.core.snapshot() == before
