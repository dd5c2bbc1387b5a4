"""A core that has a bit of everything, to put bad input to."""

from collections.abc import Callable
from dataclasses import dataclass

from agentcache.errors import Kind
from agentcache.keys import Key
from agentcache.tree.api import UnifiedTreeCore
from agentcache.types import Boundary, Job
from tests.builders import pages_of
from tests.check import check_all
from tests.contract.reading import refused
from tests.driver import Driver
from tests.flight import HeldLease


@dataclass
class World:
    """A core with a bit of everything: pages on both tiers, a lease, a job in flight, a session's marker."""

    driver: Driver
    key: Key
    held: HeldLease
    job: Job
    boundary: Boundary

    @property
    def core(self) -> UnifiedTreeCore:
        return self.driver.core

    def now(self) -> int:
        return self.driver.tick()

    def refuses(self, kind: Kind, call: Callable[[], object]) -> None:
        """The call is refused with this kind; the snapshot and the counts are as before, and `check` passes."""
        before = self.core.snapshot(), self.core.stats()
        assert refused(call) is kind
        assert (self.core.snapshot(), self.core.stats()) == before
        check_all(self.driver)

    def finish(self) -> None:
        """All that was outstanding still ends as it should."""
        self.driver.commit(self.job)
        self.driver.unlock(self.held)
        self.driver.clear()
        assert self.core.snapshot().pages == ()


def world_of(driver: Driver) -> World:
    """Of an empty core with FULL, windows, states and a host tier, page 4."""
    key = pages_of("abcd", 4)
    driver.insert(pages_of("abx", 4))
    driver.insert(key)
    driver.turn("s", key, (1, 2))
    held = driver.lock(pages_of("ab", 4))
    job = driver.backup(key).job
    assert job is not None
    return World(driver, key, held, job, driver.peek(key).device)
