"""reference and release: what a marker references, how markers grow, are left, revived, capped, moved and released."""

import pytest

from agentcache.errors import Kind
from agentcache.types import FULL, MAMBA, SWA, Boundary, ComponentName, ReleaseMode, SessionId, TierName, Turn
from tests.builders import AWAY, SWA2, pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends, frontiers, markers, references, refused
from tests.driver import Driver


def offer(driver: Driver, letters: str) -> None:
    driver.insert(pages_of(letters, 4))


def turn(driver: Driver, letters: str, seqs: tuple[int, int], session: str = "s", **more: object) -> None:
    """Publish and register one turn."""
    offer(driver, letters)
    driver.turn(session, pages_of(letters, 4), seqs, **more)  # type: ignore[arg-type]


def test_a_marker_references_the_region_of_each_component(drive: Drive) -> None:
    driver, key = drive("SLM", page=4), pages_of("abcdef", 4)
    turn(driver, "abcdef", (1, 2))
    shown = {name: references(driver, key, name) for name in (FULL, SWA, SWA2, MAMBA)}
    assert shown == {
        FULL: [1] * 6,
        SWA: [0, 0, 0, 0, 0, 1],
        SWA2: [0, 0, 0, 1, 1, 1],
        MAMBA: [0, 0, 0, 0, 0, 1],
    }


def test_the_alternate_is_referenced_too(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcdef", 4)
    offer(driver, "abcdef")
    driver.turn("s", key, (1, 2), alternate=10)
    assert references(driver, key, MAMBA) == [0, 1, 0, 0, 0, 1]
    assert references(driver, key, SWA) == [0, 1, 0, 0, 0, 1]
    assert references(driver, key, FULL) == [1] * 6
    (view,) = markers(driver, "s")
    assert (view.frontier, view.alternate) == (24, 8)


def test_a_linear_conversation_keeps_one_marker(drive: Drive) -> None:
    driver = drive("SM", page=4)
    for at, letters in enumerate(("ab", "abc", "abcde")):
        turn(driver, letters, (2 * at + 1, 2 * at + 2))
    assert frontiers(driver, "s") == [20]
    assert references(driver, pages_of("abcde", 4), MAMBA) == [0, 0, 0, 0, 1]
    assert references(driver, pages_of("abcde", 4), FULL) == [1] * 5


def test_references_count_sessions_not_markers(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 4))
    turn(driver, "abxy", (2, 5))
    turn(driver, "abpq", (3, 6))
    assert len(frontiers(driver, "s")) == 3
    assert references(driver, pages_of("abcd", 4), FULL) == [1, 1, 1, 1]
    turn(driver, "abcd", (1, 4), session="t")
    assert references(driver, pages_of("abcd", 4), FULL) == [2, 2, 2, 2]


def test_two_sessions_share_a_trunk(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2), session="s")
    turn(driver, "abxy", (3, 4), session="t")
    assert references(driver, pages_of("abcd", 4), FULL) == [2, 2, 1, 1]
    assert references(driver, pages_of("abxy", 4), FULL) == [2, 2, 1, 1]
    driver.release("s")
    assert references(driver, pages_of("abcd", 4), FULL) == [1, 1, 0, 0]
    assert driver.depth(pages_of("abcd", 4)) == 16


def test_namespaces_have_their_own_references(drive: Drive) -> None:
    driver = drive(page=4)
    here, there = pages_of("ab", 4), pages_of("ab", 4, AWAY)
    driver.insert(here)
    driver.insert(there)
    driver.turn("s", here, (1, 2))
    assert references(driver, here, FULL) == [1, 1]
    assert references(driver, there, FULL) == [0, 0]


def left(driver: Driver) -> list[tuple[int, bool]]:
    return sorted((view.finish_seq, view.left) for view in markers(driver, "s"))


def test_superseded_releases_the_old_branch_at_once(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcdef", (1, 2))
    turn(driver, "abx", (3, 4), superseded=True)
    assert left(driver) == [(4, False)]
    assert references(driver, pages_of("abcdef", 4), FULL) == [1, 1, 0, 0, 0, 0]


def test_an_edit_to_a_shorter_path_leaves_the_longer(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    turn(driver, "ab", (3, 4))
    assert left(driver)[-1] == (4, False)
    assert references(driver, pages_of("abcd", 4), MAMBA)[1] == 1


def test_at_most_eight_markers(drive: Drive) -> None:
    driver = drive("SM", page=4, slots=64)
    for at, letter in enumerate("bcdefghijkl"):
        turn(driver, "a" + letter, (1, 2 + at))
    views = markers(driver, "s")
    assert len(views) == 8
    assert min(view.finish_seq for view in views) == 5  # the three least recent went
    assert references(driver, pages_of("ab", 4), FULL) == [1, 0]


def test_a_turn_that_ends_where_nothing_votes_ends_above(drive: Drive) -> None:
    driver, key = drive("M", page=4, grid=2), pages_of("abcdef", 4)
    offer(driver, "abcdef")
    tip = driver.peek(key).device
    between = Boundary(tip.node, 20, tip.epoch)
    driver.core.reference(
        SessionId("s"), 1, Turn(between, Boundary(tip.node, 4, tip.epoch), 1, 2), driver.tick()
    )
    (view,) = markers(driver, "s")
    assert (view.frontier, view.alternate) == (16, 0)
    assert references(driver, key, FULL) == [1, 1, 1, 1, 0, 0]


def test_a_turn_that_reached_nothing_registers_nothing(drive: Drive) -> None:
    driver = drive("SM", page=4)
    driver.turn("s", pages_of("ab", 4), (1, 2))
    assert markers(driver, "s") == []


def test_the_first_turn_of_a_generation_drops_older_markers(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2), generation=1)
    turn(driver, "xyz", (3, 4), generation=2)
    assert [(view.generation, view.frontier) for view in markers(driver, "s")] == [(2, 12)]
    assert references(driver, pages_of("abcd", 4), FULL) == [0] * 4


def test_release_is_by_generation(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2), generation=3)
    assert driver.release("s", through=2).markers == 0
    assert frontiers(driver, "s") == [16]
    assert driver.release("s", through=3).markers == 1
    assert markers(driver, "s") == []


def test_release_frees_nothing_and_is_idempotent(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    turn(driver, "abcd", (1, 2))
    answer = driver.release("s")
    assert (answer.mode, answer.markers, answer.effects) == (ReleaseMode.RELEASE, 1, ())
    assert driver.depth(key) == 16
    again = driver.release("s")
    assert (again.markers, again.effects) == (0, ())
    assert sum(held.slots for held in again.held) == 0


def test_a_session_never_seen_is_released_as_nothing(drive: Drive) -> None:
    driver = drive(page=4)
    for mode in ReleaseMode:
        answer = driver.release("never", mode)
        assert (answer.markers, answer.effects, sum(held.slots for held in answer.held)) == (0, (), 0)


Shown = dict[tuple[ComponentName, TierName], tuple[int, int]]


def shown(answer: object) -> Shown:
    held = answer.held  # type: ignore[attr-defined]
    return {(part.component, part.tier): (part.tokens, part.slots) for part in held if part.slots}


def test_preview_tells_and_changes_nothing(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    before = driver.core.snapshot()
    answer = driver.release("s", ReleaseMode.PREVIEW)
    assert driver.core.snapshot() == before
    device = TierName.DEVICE
    assert shown(answer) == {(FULL, device): (16, 4), (SWA, device): (4, 1), (MAMBA, device): (0, 1)}
    assert shown(driver.release("s")) == shown(answer)


def test_preview_counts_both_tiers(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, tier=TierName.HOST)
    turn(driver, "abcd", (1, 2))
    answer = driver.release("s", ReleaseMode.PREVIEW)
    order = [(name, tier) for name in (FULL, SWA, MAMBA) for tier in (TierName.DEVICE, TierName.HOST)]
    assert [(part.component, part.tier) for part in answer.held] == order
    found = shown(answer)
    assert found[FULL, TierName.DEVICE] == found[FULL, TierName.HOST] == (16, 4)


def test_what_others_reference_is_told_apart(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2), session="s")
    turn(driver, "abxy", (3, 4), session="t")
    turn(driver, "ab", (5, 6), session="u")
    both = {FULL: 2, SWA: 0, MAMBA: 0}
    for mode in (ReleaseMode.PREVIEW, ReleaseMode.RELEASE):
        assert {part.component: part.shared_slots for part in driver.release("s", mode).held} == both
    driver.release("u")
    assert [part.shared_slots for part in driver.release("t", ReleaseMode.DROP).held] == [0, 0, 0]


def test_drop_frees_what_only_it_referenced(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2), session="s")
    turn(driver, "abxy", (3, 4), session="t")
    driver.release("s", ReleaseMode.DROP)
    assert ends(driver, pages_of("abcd", 4), FULL) == [4, 8]
    assert driver.depth(pages_of("abxy", 4)) == 16


def test_drop_spares_a_tip_that_another_session_references(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2), session="s")
    turn(driver, "abcd", (3, 4), session="t")
    driver.release("s", ReleaseMode.DROP)
    assert driver.depth(pages_of("abcd", 4)) == 16


def test_drop_alone_frees_everything(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    driver.release("s", ReleaseMode.DROP)
    assert ends(driver, pages_of("abcd", 4), FULL) == []


def test_drop_keeps_what_carries_something_kept(drive: Drive) -> None:
    """An unreferenced branch hangs below the session's trunk: the trunk stays under it."""
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    offer(driver, "abz")
    driver.release("s", ReleaseMode.DROP)
    assert driver.depth(pages_of("abz", 4)) == 12
    assert ends(driver, pages_of("abcd", 4), FULL) == [4, 8]


def test_drop_never_takes_what_is_locked(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    turn(driver, "abcd", (1, 2))
    held = driver.lock(key)
    driver.release("s", ReleaseMode.DROP)
    assert driver.depth(key) == 16
    driver.unlock(held)


def test_drop_takes_the_host_copies_too(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key, tier=TierName.HOST)
    turn(driver, "abcd", (1, 2))
    driver.release("s", ReleaseMode.DROP)
    assert driver.peek(key).any_tier.length == 0


def test_drop_spares_the_source_of_a_job(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    turn(driver, "abcd", (1, 2))
    job = driver.backup(key).job
    assert job is not None
    driver.release("s", ReleaseMode.DROP)
    driver.commit(job)
    assert driver.peek(key).any_tier.length == 16


def test_demote_without_a_lower_tier_acts_as_release_and_says_so(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    turn(driver, "abcd", (1, 2))
    answer = driver.release("s", ReleaseMode.DEMOTE)
    assert answer.mode is ReleaseMode.RELEASE
    assert driver.depth(key) == 16
    assert markers(driver, "s") == []


def test_demote_moves_to_the_host(drive: Drive) -> None:
    driver, key = drive("SM", page=4, host_tier=True), pages_of("abcd", 4)
    turn(driver, "abcd", (1, 2))
    answer = driver.release("s", ReleaseMode.DEMOTE)
    assert answer.mode is ReleaseMode.DEMOTE
    while driver.flights:
        driver.commit(next(iter(driver.flights.values())).job)
    found = driver.peek(key)
    assert (found.device.length, found.any_tier.length) == (0, 16)


def test_eviction_moves_a_marker_to_the_deepest_boundary_left(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    turn(driver, "abcd", (1, 2))
    driver.evict(FULL, 1)
    assert frontiers(driver, "s") == [12]
    assert references(driver, key, MAMBA) == [0, 0, 1, 0]
    assert references(driver, key, SWA) == [0, 0, 1, 0]


def test_eviction_of_everything_drops_the_marker(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    driver.evict(FULL, 4)
    assert markers(driver, "s") == []


def test_demotion_moves_no_marker(drive: Drive) -> None:
    driver = drive("SM", page=4, host_tier=True, write_back=True)
    turn(driver, "abcd", (1, 2))
    driver.evict(FULL, 1)
    assert frontiers(driver, "s") == [16]
    driver.commit(next(iter(driver.flights.values())).job)
    assert frontiers(driver, "s") == [16]
    assert driver.peek(pages_of("abcd", 4)).any_tier.length == 16


def test_a_demotion_that_did_not_land_moves_the_marker(drive: Drive) -> None:
    driver = drive("SM", page=4, host_tier=True, write_back=True)
    turn(driver, "abcd", (1, 2))
    driver.evict(FULL, 1)
    driver.commit(next(iter(driver.flights.values())).job, lambda _piece, _end: False)
    assert frontiers(driver, "s") == [12]


def test_a_fork_under_a_marker_keeps_it(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    offer(driver, "axyz")
    assert frontiers(driver, "s") == [16]
    assert references(driver, pages_of("axyz", 4), FULL) == [1, 0, 0, 0]


def test_a_turn_at_a_stale_boundary_is_refused(drive: Drive) -> None:
    driver, key = drive("SM", page=4), pages_of("abcd", 4)
    turn(driver, "ab", (1, 2))
    driver.insert(key)
    old = driver.peek(key).device
    driver.evict(FULL, 1)
    before = driver.core.snapshot()
    late = Turn(old, None, 3, 4)
    call = lambda: driver.core.reference(SessionId("s"), 1, late, driver.tick())  # noqa: E731
    assert refused(call) is Kind.STALE_BOUNDARY
    assert driver.core.snapshot() == before


def test_drop_makes_boundaries_stale_and_release_does_not(drive: Drive) -> None:
    driver = drive("SM", page=4)
    turn(driver, "ab", (1, 2), session="s")
    turn(driver, "xy", (3, 4), session="t")
    old = driver.peek(pages_of("xy", 4)).device
    driver.release("t")
    driver.unlock(driver.lock(pages_of("xy", 4), old))
    driver.release("s", ReleaseMode.DROP)
    assert refused(lambda: driver.core.lock(old, driver.tick())) is Kind.STALE_BOUNDARY


@pytest.mark.parametrize("mode", [ReleaseMode.RELEASE, ReleaseMode.DROP])
def test_double_close(drive: Drive, mode: ReleaseMode) -> None:
    driver = drive("SM", page=4)
    turn(driver, "abcd", (1, 2))
    driver.release("s", mode)
    before = driver.core.snapshot()
    assert driver.release("s", mode).markers == 0
    assert driver.core.snapshot() == before
