"""One call at a time: a call from another thread, or from an argument's own code, is refused and changes nothing."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from agentcache.errors import CacheError, Kind
from agentcache.keys import Key
from agentcache.types import (
    FULL,
    Insert,
    MatchResult,
    ReleaseMode,
    SessionId,
    TierName,
    Tokens,
    Turn,
    Wait,
    WaitState,
)
from tests.builders import AWAY, HOME, MakeCore, config_of, pages_of, slots_of
from tests.check import check_all
from tests.contract.conftest import Drive
from tests.driver import Driver

DEVICE, HOST = TierName.DEVICE, TierName.HOST
Call = Callable[[], object]


class Prying:
    """A key that makes calls of its own when its tokens are read."""

    def __init__(self, key: Key, look: Call) -> None:
        self.namespace = key.namespace
        self._tokens = key.tokens
        self._look = look

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def tokens(self) -> Tokens:
        self._look()
        return self._tokens


def elsewhere(call: Call) -> BaseException | None:
    """What a call raises on a thread of its own, which has ended when this returns."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).exception()


def here(call: Call) -> BaseException | None:
    """What a call raises on this thread."""
    try:
        call()
    except CacheError as error:
        return error
    return None


def every_call(driver: Driver, key: Key) -> dict[str, Call]:
    """One call of every method, each of which would go through if it came alone."""
    core, at, now = driver.core, driver.peek(key).device, driver.tick()
    held = driver.lock(key)
    job = driver.backup(key).job
    assert job is not None
    s = SessionId("s")
    return {
        "match": lambda: core.match(key, 8, now),
        "peek": lambda: core.peek(key, 8),
        "insert": lambda: core.insert(pages_of("x", 4), Insert(slots_of([9])), now),
        "lock": lambda: core.lock(at, now),
        "relock": lambda: core.relock(held.lease, at, now),
        "unlock": lambda: core.unlock(held.lease, None, now),
        "plan_backup": lambda: core.plan_backup(at, DEVICE, TierName.EXTERNAL, now),
        "plan_load": lambda: core.plan_load(at, HOST, DEVICE, now),
        "commit": lambda: core.commit(job, (), now),
        "reference": lambda: core.reference(s, 1, Turn(at, None, 1, 2), now),
        "expect": lambda: core.expect(s, Wait(WaitState.RUNNING), now),
        "snapshot": core.snapshot,
        "check": core.check,
        "stats": core.stats,
        "release": lambda: core.release(s, 1, ReleaseMode.DROP, now),
        "evict": lambda: core.evict(FULL, DEVICE, 1, {}, now),
        "clear": lambda: core.clear(AWAY, now),
    }


def outer_calls(driver: Driver) -> Iterator[Callable[[Any], object]]:
    """The calls that read a key, and so run its code."""
    core = driver.core
    yield lambda prying: core.match(prying, 8, driver.tick())
    yield lambda prying: core.peek(prying, 8)
    yield lambda prying: core.insert(prying, Insert(slots_of([20, 21])), driver.tick())


@pytest.mark.parametrize("attempt", [elsewhere, here])
def test_a_call_while_another_runs_is_refused(
    drive: Drive, attempt: Callable[[Call], BaseException | None]
) -> None:
    driver, key = drive(page=4, host_tier=True), pages_of("ab", 4)
    driver.insert(key)
    inner = every_call(driver, key)
    before = driver.core.snapshot()
    met: dict[str, object] = {}

    def look() -> None:
        for name, call in inner.items():
            error = attempt(call)
            met[name] = error.kind if isinstance(error, CacheError) else error

    for outer in outer_calls(driver):
        met.clear()
        answer = outer(cast(Key, Prying(key, look)))
        assert met == dict.fromkeys(inner, Kind.IN_USE)
        if isinstance(answer, MatchResult):
            assert answer.device.length == 8, "the call that came first goes on"
    assert driver.core.snapshot() == before
    check_all(driver)


def test_calls_one_after_the_other_may_come_from_any_thread(make_core: MakeCore) -> None:
    driver, key = Driver(make_core(config_of(page=4, host_tier=True))), pages_of("ab", 4)
    driver.insert(key)
    errors = {name: elsewhere(call) for name, call in every_call(driver, key).items()}
    in_flight = errors.pop("clear")
    assert isinstance(in_flight, CacheError)
    assert in_flight.kind is Kind.IN_USE
    assert errors == dict.fromkeys(errors)
    driver.core.check()


def test_an_error_of_an_argument_leaves_the_core_as_it_was(drive: Drive) -> None:
    driver, key = drive(page=4), pages_of("ab", 4)
    driver.insert(key)
    before = driver.core.snapshot()

    def fail() -> None:
        raise ValueError("no tokens today")

    for outer in outer_calls(driver):
        with pytest.raises(ValueError, match="today"):
            outer(cast(Key, Prying(key, fail)))
        assert driver.core.snapshot() == before
    assert driver.depth(key) == 8


def test_two_cores_may_run_at_once(drive: Drive) -> None:
    first, second, key = drive(page=4), drive(page=4), pages_of("ab", 4, HOME)
    second.insert(key)
    found: list[int] = []
    prying = Prying(key, lambda: found.append(second.depth(key)))
    assert first.core.peek(cast(Key, prying), 8).device.length == 0
    assert found
    assert set(found) == {8}
