"""The tree as a drawing has it, by hand."""

from agentcache.types import FULL, MAMBA, TierName
from agentcache.views import Branch, Outline
from tests.builders import AWAY, HOME, pages_of
from tests.contract.conftest import Drive
from tests.contract.waiting import at

DEVICE, HOST = TierName.DEVICE, TierName.HOST
HERE, THERE = HOME.digest().hex(), AWAY.digest().hex()


def test_an_empty_tree_has_no_branches(drive: Drive) -> None:
    assert drive(page=4).core.outline(10) == Outline((), False)


def test_branches_end_at_forks_and_the_last_used_comes_first(drive: Drive) -> None:
    """ab, with c and xy below it; c was read last. States lie where prompts ended, b's was lost."""
    driver = drive("M", page=4)
    for now, letters in ((100, "abc"), (200, "abxy")):
        key = pages_of(letters, 4)
        at(driver, now).insert(key, [(MAMBA, len(key))])
    driver.turn("s", pages_of("abxy", 4), (1, 2))
    at(driver, 300).match(pages_of("abc", 4))
    held = driver.lock(pages_of("abc", 4))
    assert driver.core.outline(10) == Outline(
        (
            Branch(-1, 0, 8, HERE, ((FULL, DEVICE, 2),), 2, 2, 0, 0, 300),
            Branch(0, 8, 12, HERE, ((FULL, DEVICE, 1), (MAMBA, DEVICE, 1)), 0, 1, 12, 0, 300),
            Branch(0, 8, 16, HERE, ((FULL, DEVICE, 2), (MAMBA, DEVICE, 1)), 2, 0, 16, 1, 200),
        ),
        more=False,
    )
    driver.unlock(held)


def test_a_limit_leaves_the_oldest_out_and_says_so(drive: Drive) -> None:
    driver = drive(page=4)
    for now, letter in ((100, "a"), (200, "b"), (300, "c")):
        at(driver, now).insert(pages_of(letter, 4))
    outline = driver.core.outline(2)
    assert [branch.used_ns for branch in outline.branches] == [300, 200]
    assert outline.more
    assert driver.core.outline(0) == Outline((), True)


def test_what_is_out_of_reach_and_what_lies_on_the_host_is_told(drive: Drive) -> None:
    """The state at the end of abc went: only ab can be resumed."""
    driver = drive("M", page=4, host_tier=True)
    at(driver, 100).insert(pages_of("ab", 4), tier=HOST)
    at(driver, 200).insert(pages_of("abc", 4), [])
    (branch,) = driver.core.outline(5).branches
    assert (branch.end, branch.reusable) == (8, 8)
    assert (FULL, HOST, 2) in branch.resident


def test_namespaces_begin_branches_of_their_own(drive: Drive) -> None:
    driver = drive(page=4)
    at(driver, 100).insert(pages_of("a", 4, AWAY))
    at(driver, 200).insert(pages_of("a", 4))
    found = [(branch.parent, branch.namespace) for branch in driver.core.outline(5).branches]
    assert found == [(-1, HERE), (-1, THERE)]
