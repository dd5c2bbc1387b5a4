"""Figures 2 and 5 of the article that the project implements, as tests by those names."""

from agentcache.tree.api import Order
from agentcache.types import FULL, MAMBA, SWA, TierName
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends, markers, references


def test_figure_2_deepest_boundary_that_every_component_accepts(drive: Drive) -> None:
    """Four nodes: n1 and n2 pass, n3 has no window, n4 has a window and no state. The walk reaches n4, n2 is kept."""
    driver, path = drive("SM", page=4), pages_of("1234", 4)
    n1, n2, n3, n4 = 4, 8, 12, 16
    longer = pages_of("12345", 4)  # a deeper turn that everything accepts is why n3 and n4 are in the tree
    offered = [(SWA, n1), (SWA, n2), (SWA, n4), (SWA, 20), (MAMBA, n1), (MAMBA, n2), (MAMBA, n3), (MAMBA, 20)]
    assert driver.insert(longer, offered).frontier.length == 20

    request = pages_of("1234x", 4)
    found = driver.match(request)
    assert found.full_tokens == n4  # how far the walk went
    assert found.device.length == found.any_tier.length == n2
    assert found.miss is not None
    assert (found.miss.component, found.miss.position) == (MAMBA, n4)

    assert [driver.depth(path, end) for end in (n1, n2, n3, n4)] == [n1, n2, n2, n2]
    assert driver.peek(path, n3).miss is not None
    assert driver.depth(longer) == 20  # a refusal does not stop the walk
    held = driver.lock(request)
    assert held.covered == {FULL: (n1, n2), SWA: (n2,), MAMBA: (n2,)}
    driver.unlock(held)


def test_figure_5_three_sessions_share_one_tree(drive: Drive) -> None:
    """A trunk of two pages; sessions A and B go on below it, C in a branch of A's; D is nobody's."""
    driver = drive("LM", page=4, order=Order.SESSION)
    paths = {"A": pages_of("ttab", 4), "B": pages_of("ttxy", 4), "C": pages_of("ttac", 4)}
    orphan = pages_of("ttd", 4)
    for at, (session, key) in enumerate(paths.items()):
        driver.insert(key)
        driver.turn(session, key, (2 * at + 1, 2 * at + 2))
    driver.insert(orphan)
    driver.match(orphan)  # the most recent of all

    # FULL tracks paths: how many sessions want each page
    assert references(driver, paths["A"], FULL) == [3, 3, 2, 1]
    assert references(driver, paths["B"], FULL) == [3, 3, 1, 1]
    assert references(driver, orphan, FULL) == [3, 3, 0]
    # the window tracks its trailing tokens, the state its frontier
    assert references(driver, paths["A"], driver.config.specs[1].name) == [0, 3, 2, 1]
    assert references(driver, paths["A"], MAMBA) == [0, 0, 0, 1]
    assert references(driver, orphan, MAMBA) == [0, 0, 0]

    # unreferenced first, however recent
    driver.evict(FULL)
    assert driver.depth(orphan) == 8
    assert all(driver.depth(key) == 16 for key in paths.values())
    driver.evict(MAMBA, 3)
    assert [ends(driver, key, MAMBA)[-1] for key in paths.values()] == [16, 16, 16]

    # closing removes references and frees nothing
    before = driver.core.stats()
    answer = driver.release("B")
    assert answer.effects == ()
    after = driver.core.stats()
    assert [count.cached for count in after.pools] == [count.cached for count in before.pools]
    assert markers(driver, "B") == []
    assert references(driver, paths["A"], FULL) == [2, 2, 2, 1]
    assert driver.depth(paths["B"]) == 16

    # what was closed leaves next, though it is younger than A's; the others stay reusable
    driver.evict(FULL, 2)
    assert driver.peek(paths["B"]).full_tokens == 8
    assert driver.depth(paths["A"]) == driver.depth(paths["C"]) == 16

    # references are a preference, not a pin: with nothing else left they go too
    assert driver.evict(FULL, 99).freed == 5
    assert driver.core.snapshot().pages == ()
    assert not any(count.cached for count in driver.core.stats().pools if count.pool.tier is TierName.DEVICE)
