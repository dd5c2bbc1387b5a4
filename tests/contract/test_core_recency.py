"""What counts as use, on which tier, and what a turn, a lock or an offer changes in the order."""

from agentcache.tree.api import Order, OrderBase
from agentcache.types import FULL, MAMBA, SWA, TierName
from tests.builders import pages_of
from tests.contract.conftest import Drive
from tests.contract.reading import ends
from tests.driver import Driver

HOST = TierName.HOST


def leaves(driver: Driver, *letters: str, tier: TierName = TierName.DEVICE) -> None:
    for letter in letters:
        driver.insert(pages_of(letter, 4), tier=tier)


def goes(driver: Driver, *letters: str, tier: TierName = TierName.DEVICE) -> str:
    """Which of these one-page branches goes next."""
    before = {letter for letter in letters if ends(driver, pages_of(letter, 4), FULL, tier)}
    driver.evict(FULL, 1, tier)
    (gone,) = [letter for letter in before if not ends(driver, pages_of(letter, 4), FULL, tier)]
    return gone


def test_a_match_uses_what_is_on_the_host(drive: Drive) -> None:
    driver = drive(page=4, host_tier=True)
    leaves(driver, "a", "b", tier=HOST)
    assert driver.match(pages_of("a", 4)).device.length == 0
    assert goes(driver, "a", "b", tier=HOST) == "b"


def test_both_tiers_share_one_time(drive: Drive) -> None:
    """Used on the device, so recent on the host; used by a graft, so recent on the device."""
    driver = drive(page=4, host_tier=True)
    leaves(driver, "a", "b")
    leaves(driver, "a", "b", tier=HOST)
    leaves(driver, "a")
    assert goes(driver, "a", "b", tier=HOST) == "b"
    leaves(driver, "b", tier=HOST)
    assert goes(driver, "a", "b") == "a"


def test_a_lock_is_no_use(drive: Drive) -> None:
    driver = drive(page=4)
    leaves(driver, "a", "b")
    driver.unlock(driver.lock(pages_of("a", 4)))
    held = driver.lock(pages_of("x", 4))
    driver.unlock(driver.relock(held, pages_of("a", 4), driver.peek(pages_of("a", 4)).device))
    assert goes(driver, "a", "b") == "a"


def test_a_turn_and_a_copy_are_no_use(drive: Drive) -> None:
    driver = drive(page=4, host_tier=True)
    leaves(driver, "a", "b")
    driver.turn("s", pages_of("a", 4), (1, 2))
    driver.release("s")
    job = driver.backup(pages_of("a", 4)).job
    assert job is not None
    driver.commit(job)
    assert goes(driver, "a", "b") == "a"


def test_an_offer_uses_what_it_brings(drive: Drive) -> None:
    """The state at 4 comes late: it is younger than those of xyz."""
    driver, key, other = drive("M", page=4), pages_of("abc", 4), pages_of("xyz", 4)
    driver.insert(key, [(MAMBA, 12)])
    driver.insert(other)
    driver.insert(key, [(MAMBA, 4), (MAMBA, 12)])
    driver.evict(MAMBA, 2)
    assert (ends(driver, key, MAMBA), ends(driver, other, MAMBA)) == ([4, 12], [4])


def test_an_offer_does_not_use_its_duplicates_off_the_frontier(drive: Drive) -> None:
    """Offered again, the states at 4 and 8 are as old as before; the one at the frontier is used."""
    driver, key, other = drive("M", page=4), pages_of("abc", 4), pages_of("xyz", 4)
    driver.insert(key)
    driver.insert(other)
    driver.insert(key)
    driver.evict(MAMBA, 2)
    assert (ends(driver, key, MAMBA), ends(driver, other, MAMBA)) == ([12], [4, 8, 12])


def test_only_matches_are_hits(drive: Drive) -> None:
    """b is offered, peeked at and locked over and over; a is matched once."""
    driver = drive(page=4, order=Order.SESSION, base=OrderBase.LFU)
    leaves(driver, "a", "b")
    driver.match(pages_of("a", 4))
    for _ in range(3):
        leaves(driver, "b")
        driver.peek(pages_of("b", 4))
        driver.unlock(driver.lock(pages_of("b", 4)))
    assert goes(driver, "a", "b") == "b"


def test_equally_frequent_or_important_go_by_age(drive: Drive) -> None:
    for base in (OrderBase.LFU, OrderBase.PRIORITY):
        driver = drive(page=4, order=Order.SESSION, base=base)
        leaves(driver, "a", "b")
        for letter in "ba":
            driver.match(pages_of(letter, 4))
        assert goes(driver, "a", "b") == "b"


def test_a_page_that_left_starts_anew(drive: Drive) -> None:
    """Its hits and its priority are gone with it."""
    for base in (OrderBase.LFU, OrderBase.PRIORITY):
        driver = drive(page=4, order=Order.SESSION, base=base)
        driver.insert(pages_of("a", 4), priority=9)
        driver.match(pages_of("a", 4))
        driver.evict(FULL)
        leaves(driver, "a")
        driver.insert(pages_of("b", 4), priority=1)
        driver.match(pages_of("b", 4))
        leaves(driver, "a")
        assert goes(driver, "a", "b") == "a"


def test_how_many_sessions_want_an_aux_piece_does_not_matter(drive: Drive) -> None:
    """Two want the state of a and one that of b, which is younger."""
    driver = drive("SM", page=4, order=Order.SESSION)
    for letter, sessions in (("a", "st"), ("b", "u")):
        driver.insert(pages_of(letter, 4))
        for session in sessions:
            driver.turn(session, pages_of(letter, 4), (1, 2))
    for component in (SWA, MAMBA):
        held = [driver.lock(pages_of(letter, 4)) for letter in "ab"]
        for lease in held:
            driver.unlock(lease, component)
        assert driver.evict(component).freed == 1
        assert (ends(driver, pages_of("a", 4), component), ends(driver, pages_of("b", 4), component)) == (
            [],
            [4],
        )
        for lease in held:
            driver.unlock(lease)
        driver.insert(pages_of("b", 4))
        driver.insert(pages_of("a", 4))
        driver.match(pages_of("b", 4))


def test_a_lease_protects_no_host_copy(drive: Drive) -> None:
    driver, key = drive("M", page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key)
    job = driver.backup(key).job
    assert job is not None
    driver.commit(job)
    held = driver.lock(key)
    assert driver.evict(MAMBA, 1, HOST).freed == 1
    assert driver.evict(FULL, 2, HOST).freed == 2
    assert driver.depth(key) == 8
    driver.unlock(held)


# -- epochs


def test_epochs_rise_by_one_in_each_call_that_let_go_of_a_copy(drive: Drive) -> None:
    driver, key = drive("M", page=4, host_tier=True, write_back=True), pages_of("abcd", 4)
    epoch = driver.core.snapshot().epoch

    def risen() -> int:
        nonlocal epoch
        before, epoch = epoch, driver.core.snapshot().epoch
        return epoch - before

    driver.insert(key)
    driver.insert(key)  # duplicates were never in the tree
    driver.match(key)
    backup = driver.backup(key).job
    assert backup is not None
    driver.commit(backup)
    driver.unlock(driver.lock(key))
    assert risen() == 0
    assert driver.evict(FULL, 1).freed == 1
    assert risen() == 1
    assert driver.evict(FULL, 3, HOST).freed > 0
    assert risen() == 1
    assert driver.evict(MAMBA, 1).moving == 1
    assert risen() == 0
    driver.commit(next(iter(driver.flights.values())).job)
    assert risen() == 1
    driver.clear()
    assert risen() == 1
    driver.clear()
    assert risen() == 0
