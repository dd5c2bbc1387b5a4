"""Eviction order `session` and its bases: unreferenced first, then fewest references, then the base."""

from agentcache.keys import Key
from agentcache.tree.api import Order, OrderBase
from agentcache.types import FULL, MAMBA, SWA, TierName
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends
from tests.driver import Driver


def one_by_one(driver: Driver, *letters: str) -> str:
    """The order in which one-page branches lose their page, as letters."""
    keys: dict[str, Key] = {letter: pages_of(letter, 4) for letter in letters}
    gone = ""
    while len(gone) < len(letters):
        driver.evict(FULL)
        gone += "".join(letter for letter in letters if letter not in gone and not driver.depth(keys[letter]))
    return gone


def offer(driver: Driver, letters: str, *sessions: str, priority: int = 0) -> None:
    key = pages_of(letters, 4)
    driver.insert(key, priority=priority)
    for session in sessions:
        driver.turn(session, key, (1, 2))


def test_unreferenced_first_then_fewest_references_then_age(drive: Drive) -> None:
    driver = drive(page=4, order=Order.SESSION)
    offer(driver, "a", "s", "t")
    offer(driver, "b", "u")
    offer(driver, "c")
    offer(driver, "d", "v")
    offer(driver, "e")
    assert one_by_one(driver, *"abcde") == "cebda"


def test_references_are_soft(drive: Drive) -> None:
    driver = drive(page=4, order=Order.SESSION)
    offer(driver, "a", "s")
    assert driver.evict(FULL, 1).freed == 1


def test_release_gives_the_place_back(drive: Drive) -> None:
    driver = drive(page=4, order=Order.SESSION)
    offer(driver, "a", "s")
    offer(driver, "b")
    driver.release("s")
    assert one_by_one(driver, *"ab") == "ab"


def test_lru_ignores_references(drive: Drive) -> None:
    driver = drive(page=4, order=Order.LRU)
    offer(driver, "a", "s")
    offer(driver, "b")
    driver.match(pages_of("a", 4))
    offer(driver, "c", "t")
    driver.match(pages_of("b", 4))
    assert one_by_one(driver, *"abc") == "acb"


def test_least_frequent_first(drive: Drive) -> None:
    driver = drive(page=4, order=Order.SESSION, base=OrderBase.LFU)
    for letter in "abc":
        offer(driver, letter)
    for letter in "aacccb":
        driver.match(pages_of(letter, 4))
    assert one_by_one(driver, *"abc") == "bac"


def test_lowest_priority_first(drive: Drive) -> None:
    driver = drive(page=4, order=Order.SESSION, base=OrderBase.PRIORITY)
    for letter, priority in (("a", 5), ("b", 1), ("c", 3)):
        offer(driver, letter, priority=priority)
    assert one_by_one(driver, *"abc") == "bca"


def test_priority_is_raised_along_the_path(drive: Drive) -> None:
    """What an important path stands on is as important: with x gone, its parent outranks b."""
    driver = drive(page=4, order=Order.SESSION, base=OrderBase.PRIORITY)
    offer(driver, "a", priority=1)
    offer(driver, "b", priority=3)
    offer(driver, "ax", priority=5)
    held = driver.lock(pages_of("b", 4))
    driver.evict(FULL)
    driver.unlock(held)
    assert one_by_one(driver, *"ab") == "ba"


def test_priority_is_never_lowered(drive: Drive) -> None:
    driver = drive(page=4, order=Order.SESSION, base=OrderBase.PRIORITY)
    offer(driver, "a", priority=5)
    offer(driver, "b", priority=3)
    offer(driver, "a", priority=0)
    offer(driver, "a", priority=1)
    offer(driver, "a", priority=-9)
    assert one_by_one(driver, *"ab") == "ba"


def test_references_outrank_priority(drive: Drive) -> None:
    driver = drive(page=4, order=Order.SESSION, base=OrderBase.PRIORITY)
    offer(driver, "a", priority=9)
    offer(driver, "b", "s", priority=0)
    assert one_by_one(driver, *"ab") == "ab"


def test_aux_pieces_go_unreferenced_first(drive: Drive) -> None:
    driver, key = drive("SM", page=4, order=Order.SESSION), pages_of("abcd", 4)
    offer(driver, "abcd")
    driver.turn("s", pages_of("ab", 4), (1, 2))
    driver.evict(MAMBA, 3)
    assert ends(driver, key, MAMBA) == [8]
    driver.insert(key)
    driver.evict(SWA, 3)
    assert ends(driver, key, SWA) == [8]


def test_a_reference_to_one_component_does_not_shield_another(drive: Drive) -> None:
    """The session wants the window at 16 and the state at 16; those further up have no reference."""
    driver, key = drive("LM", page=4, order=Order.SESSION), pages_of("abcdef", 4)
    offer(driver, "abcdef", "s")
    driver.evict(MAMBA, 5)
    assert ends(driver, key, MAMBA) == [24]
    assert driver.depth(key) == 24


def test_a_dead_tail_that_a_session_references_outlives_an_unreferenced_trigger(drive: Drive) -> None:
    driver, key = drive("SM", page=4, order=Order.SESSION), pages_of("abcd", 4)
    offer(driver, "abcd", "s")
    other = pages_of("abxy", 4)
    driver.insert(other)
    driver.evict(MAMBA, 5)
    assert ends(driver, key, FULL) == [4, 8, 12, 16]
    assert driver.depth(key) == 16


def test_the_same_order_on_the_host(drive: Drive) -> None:
    driver = drive(page=4, order=Order.SESSION, host_tier=True)
    keys = {letter: pages_of(letter, 4) for letter in "abc"}
    for key in keys.values():
        driver.insert(key, tier=TierName.HOST)
    driver.turn("s", keys["a"], (1, 2))
    gone = []
    for _ in keys:
        driver.evict(FULL, 1, TierName.HOST)
        gone += [
            letter for letter in "abc" if letter not in gone and not driver.peek(keys[letter]).any_tier.length
        ]
    assert gone == ["b", "c", "a"]


def test_a_trunk_with_many_sessions_goes_last(drive: Drive) -> None:
    driver = drive(page=4, order=Order.SESSION)
    for session, letters in (("s", "abx"), ("t", "aby"), ("u", "pqr")):
        offer(driver, letters, session)
    driver.match(pages_of("pqr", 4))
    driver.evict(FULL, 5)
    assert driver.depth(pages_of("abx", 4)) == 8
    assert driver.depth(pages_of("pqr", 4)) == 0
