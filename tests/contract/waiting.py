"""What tests of the order `ert` say: waits, calls at a time, and in which order branches leave."""

from agentcache.keys import Key
from agentcache.types import FULL, TierName, Wait, WaitState
from tests.builders import pages_of
from tests.contract.reading import ends
from tests.driver import Driver


def running(since: int, key: int | None = None) -> Wait:
    return Wait(WaitState.RUNNING, since, since if key is None else key)


def queued(seq: int, eta: int | None = None) -> Wait:
    return Wait(WaitState.PENDING, seq=seq, eta_ns=eta)


def idle(since: int, key: int, hint: int | None = None) -> Wait:
    return Wait(WaitState.IDLE, since, key, hint)


def at(driver: Driver, now: int) -> Driver:
    """The driver whose next call is at `now`."""
    assert now > driver.now, "time goes on"
    driver.now = now - 1
    return driver


def publish(driver: Driver, letters: str, now: int) -> Key:
    key = pages_of(letters, 4)
    at(driver, now).insert(key)
    return key


def read(driver: Driver, letters: str) -> None:
    """Match every boundary of a branch once, so that no window and no state only lies on the way."""
    for count in range(1, len(letters) + 1):
        driver.match(pages_of(letters[:count], 4))


def owned(driver: Driver, letters: str, now: int, **waits: Wait) -> Key:
    """A branch that these sessions reference, each doing what it says."""
    key = publish(driver, letters, now)
    for session, wait in waits.items():
        driver.turn(session, key, (1, 2))
        driver.expect(session, wait)
    return key


def leaving(driver: Driver, *branches: str, tier: TierName = TierName.DEVICE) -> str:
    """The order in which branches lose their last page, by their last letters; the time hardly moves."""
    keys = {letters[-1]: pages_of(letters, 4) for letters in branches}
    gone = ""
    while len(gone) < len(keys):
        driver.evict(FULL, 1, tier)
        left = [name for name, key in keys.items() if len(key) not in ends(driver, key, FULL, tier)]
        gone += "".join(name for name in left if name not in gone)
    return gone
