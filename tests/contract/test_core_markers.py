"""Markers at their limits: how many are kept, which move on, what an odd turn ends, how they are repaired."""

from agentcache.types import FULL, MAMBA, ReleaseMode, SessionId, TierName, Turn
from tests.builders import AWAY, HOME, pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends, frontiers, markers, references
from tests.contract.test_core_sessions import left, shown, turn
from tests.driver import Driver

HOST = TierName.HOST


def seen(driver: Driver) -> list[tuple[int, int, int]]:
    """Frontier, alternate and generation of the session's markers."""
    return sorted((view.frontier, view.alternate, view.generation) for view in markers(driver, "s"))


# -- how many


def test_the_least_recently_finished_go_first(drive: Drive) -> None:
    """In whatever order they register: the last one here finished first, and is not kept."""
    driver = drive(page=4, max_markers=2)
    for letters, finish in (("ab", 9), ("ac", 8), ("ad", 3)):
        turn(driver, letters, (1, finish))
    assert left(driver) == [(8, False), (9, False)]
    assert references(driver, pages_of("ad", 4), FULL) == [1, 0]
    turn(driver, "ae", (1, 10))
    assert left(driver) == [(9, False), (10, False)]


def test_moving_forward_takes_no_second_place(drive: Drive) -> None:
    driver = drive(page=4, max_markers=2)
    turn(driver, "ab", (1, 3))
    turn(driver, "xy", (2, 4))
    turn(driver, "abc", (3, 5))
    assert sorted(frontiers(driver, "s")) == [8, 12]


# -- moving forward


def test_a_turn_takes_in_every_marker_on_its_path(drive: Drive) -> None:
    """Two turns that ran side by side left markers on one path; the next one passes both."""
    driver = drive(page=4)
    turn(driver, "abcd", (1, 3))
    turn(driver, "ab", (2, 4))
    turn(driver, "abcde", (5, 6))
    assert left(driver) == [(6, False)]


def test_a_turn_that_ends_where_the_last_one_did_is_no_extension(drive: Drive) -> None:
    """What was left for the branch stays until the branch grows."""
    driver = drive(page=4)
    turn(driver, "ab", (1, 2))
    turn(driver, "xy", (3, 4))
    turn(driver, "xy", (5, 6))
    assert left(driver) == [(2, True), (6, False)]
    turn(driver, "xyz", (7, 8))
    assert left(driver) == [(8, False)]


def test_a_return_to_a_left_branch_is_no_extension_of_it(drive: Drive) -> None:
    """abcd was left for xy, and pq for abcd before that: coming back revives abcd and drops nothing yet."""
    driver = drive(page=4)
    turn(driver, "pq", (1, 2))
    turn(driver, "abcd", (3, 4))
    turn(driver, "xy", (5, 6))
    turn(driver, "abcde", (7, 8))
    assert left(driver) == [(2, True), (6, True), (8, False)]
    turn(driver, "abcdef", (9, 10))
    assert left(driver) == [(10, False)]


def test_a_turn_admitted_before_the_other_finished_leaves_nothing(drive: Drive) -> None:
    """Finished at the very sequence at which the other was admitted: not before it."""
    driver = drive(page=4)
    turn(driver, "ab", (1, 2))
    turn(driver, "xy", (2, 3))
    assert left(driver) == [(2, False), (3, False)]
    turn(driver, "pq", (2, 4), superseded=True)
    assert left(driver) == [(2, False), (3, False), (4, False)]
    turn(driver, "rs", (4, 5), superseded=True)
    assert left(driver) == [(4, False), (5, False)]


def test_a_marker_of_an_older_generation_on_the_path_moves_forward(drive: Drive) -> None:
    driver = drive(page=4)
    turn(driver, "ab", (1, 2), generation=1)
    turn(driver, "xy", (1, 3), generation=1)
    turn(driver, "abc", (4, 5), generation=2)
    assert seen(driver) == [(12, 0, 2)]


def test_what_a_marker_shows_is_of_its_last_turn(drive: Drive) -> None:
    driver = drive(page=4)
    turn(driver, "abc", (1, 2))
    driver.insert(pages_of("abcd", 4))
    driver.turn("s", pages_of("abcd", 4), (5, 9), generation=3, alternate=8)
    (view,) = markers(driver, "s")
    assert (view.frontier, view.alternate, view.generation) == (16, 8, 3)
    assert (view.start_seq, view.finish_seq, view.left) == (5, 9, False)


def test_a_left_branch_stays_left_for_the_one_that_followed_it(drive: Drive) -> None:
    """pq runs beside xy, for which ab was left: pq goes on, and ab stays until xy goes too."""
    driver = drive(page=4)
    turn(driver, "ab", (1, 2))
    turn(driver, "xy", (3, 6))
    turn(driver, "pq", (5, 7))
    assert left(driver) == [(2, True), (6, False), (7, False)]
    turn(driver, "pqr", (8, 9))
    assert left(driver) == [(2, True), (6, True), (9, False)]
    turn(driver, "pqrs", (10, 11))
    assert left(driver) == [(11, False)]


# -- turns that reached nothing


def test_a_turn_that_reached_nothing_still_ends_what_it_ends(drive: Drive) -> None:
    """Older generations, and what it superseded; what ran beside it stays."""
    driver = drive(page=4)
    core, s = driver.core, SessionId("s")
    turn(driver, "ab", (1, 2), generation=1)
    turn(driver, "xy", (3, 4), generation=2)
    core.reference(s, 2, Turn(None, None, 3, 5), driver.tick())
    assert seen(driver) == [(8, 0, 2)]
    turn(driver, "pq", (6, 8), generation=2)
    core.reference(s, 2, Turn(None, None, 7, 9, superseded=True), driver.tick())
    assert [view.finish_seq for view in markers(driver, "s")] == [8]
    core.reference(s, 3, Turn(None, None, 7, 9), driver.tick())
    assert markers(driver, "s") == []


# -- what turns answer


def test_a_turn_says_what_it_let_go(drive: Drive) -> None:
    driver = drive("M", page=4)
    turn(driver, "abcd", (1, 2))
    driver.insert(pages_of("abxy", 4))
    answer = driver.turn("s", pages_of("abxy", 4), (3, 4), superseded=True)
    device = TierName.DEVICE
    assert (answer.mode, answer.effects) == (ReleaseMode.RELEASE, ())
    assert shown(answer) == {(FULL, device): (8, 2), (MAMBA, device): (0, 1)}


def test_a_close_by_generation_says_what_that_alone_held(drive: Drive) -> None:
    """The branches share ab: the older generation lets go of cd only."""
    driver = drive(page=4)
    turn(driver, "abxy", (1, 2), generation=2)
    turn(driver, "abcd", (1, 3), generation=1)
    for mode in (ReleaseMode.PREVIEW, ReleaseMode.RELEASE):
        answer = driver.release("s", mode, through=1)
        assert (answer.markers, shown(answer)) == (1, {(FULL, TierName.DEVICE): (8, 2)})
    assert seen(driver) == [(16, 0, 2)]


# -- repair


def test_an_alternate_moves_on_its_own(drive: Drive) -> None:
    """The state at the alternate goes, then the next one above it; the frontier stays where it is."""
    driver, key = drive("M", page=4), pages_of("abcdef", 4)
    driver.insert(key, [(MAMBA, 8), (MAMBA, 16), (MAMBA, 24)])
    driver.turn("s", key, (1, 2), alternate=16)
    driver.match(key)
    assert seen(driver) == [(24, 16, 1)]
    driver.evict(MAMBA)
    assert seen(driver) == [(24, 8, 1)]
    assert references(driver, key, MAMBA) == [0, 1, 0, 0, 0, 1]
    driver.evict(MAMBA)
    assert seen(driver) == [(24, 0, 1)]
    assert references(driver, key, MAMBA) == [0, 0, 0, 0, 0, 1]


def test_a_lost_frontier_leaves_the_alternate_where_it_votes(drive: Drive) -> None:
    driver, key = drive("M", page=4), pages_of("abcdef", 4)
    driver.insert(key, [(MAMBA, 8), (MAMBA, 16), (MAMBA, 24)])
    driver.turn("s", key, (1, 2), alternate=8)
    driver.match(pages_of("ab", 4))
    driver.match(pages_of("abcd", 4))
    driver.evict(MAMBA)
    assert seen(driver) == [(16, 8, 1)]


def test_a_drop_by_one_session_moves_no_marker_of_another(drive: Drive) -> None:
    driver = drive("M", page=4)
    turn(driver, "abcd", (1, 2))
    turn(driver, "abxy", (3, 4), session="t")
    driver.release("t", ReleaseMode.DROP)
    assert seen(driver) == [(16, 0, 1)]


def test_a_copy_on_the_host_keeps_a_marker_where_it_is(drive: Drive) -> None:
    driver, key = drive("M", page=4, host_tier=True), pages_of("abcd", 4)
    driver.insert(key)
    driver.turn("s", key, (1, 2))
    job = driver.backup(key).job
    assert job is not None
    driver.commit(job)
    driver.evict(FULL, 4)
    assert seen(driver) == [(16, 0, 1)]
    driver.evict(MAMBA, 1, HOST)
    assert markers(driver, "s") == []


# -- one session in two namespaces


def test_clearing_one_namespace_keeps_what_its_sessions_have_elsewhere(drive: Drive) -> None:
    driver = drive("M", page=4)
    here, there = pages_of("abc", 4, HOME), pages_of("abcd", 4, AWAY)
    for seqs, key in (((1, 3), here), ((2, 4), there)):
        driver.insert(key)
        driver.turn("s", key, seqs)
    gone = driver.clear(AWAY)
    assert gone.markers == 1
    assert shown(gone) == {(FULL, TierName.DEVICE): (16, 4), (MAMBA, TierName.DEVICE): (0, 4)}
    assert seen(driver) == [(12, 0, 1)]
    assert references(driver, here, FULL) == [1, 1, 1]
    assert ends(driver, there, FULL) == []
    assert driver.release("s").markers == 1


def test_equal_paths_in_two_namespaces_are_two_branches(drive: Drive) -> None:
    """A longer path in another namespace is no extension."""
    driver = drive(page=4)
    for seqs, key in (((1, 2), pages_of("ab", 4, HOME)), ((3, 4), pages_of("abc", 4, AWAY))):
        driver.insert(key)
        driver.turn("s", key, seqs)
    assert left(driver) == [(2, True), (4, False)]
