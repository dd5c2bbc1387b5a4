"""A fourth component, defined only here: the component contract is enough for a rule that is none of the three."""

from dataclasses import dataclass

from agentcache.tree.api import CoreConfig, Order
from agentcache.tree.reference.component import TreeComponent, Validator, component_for
from agentcache.tree.reference.core import ReferenceCore
from agentcache.types import FULL, SWA, ComponentName, ComponentSpec, MissReason, Region, TierName
from tests.builders import pages_of, specs_of
from tests.check import check_all
from tests.contract.reading import ends, frontiers, references
from tests.driver import Driver

SINK = ComponentName("SINK")


@dataclass(frozen=True)
class Head:
    """The region is the first `tokens` tokens of the path (attention sinks), or all of them on a shorter one."""

    tokens: int

    def region(self, boundary: int, page_tokens: int) -> Region:
        whole = -(-self.tokens // page_tokens) * page_tokens
        return Region(0, min(boundary, whole))


class SinkComponent(TreeComponent):
    """Reads the head of the path at every boundary; pages beyond it carry nothing."""

    def accepts(self) -> Validator:
        gap = False

        def accept(end: int, resident: bool) -> bool:
            nonlocal gap
            gap = gap or (self.can_lie_at(end) and not resident)
            return not gap

        return accept

    def can_lie_at(self, end: int) -> bool:
        return 0 < end <= self.region(end).end


def driver_of(host: bool = False) -> Driver:
    """FULL, a window of one page and sinks of two pages of four tokens."""
    specs = (*specs_of("S", 4), ComponentSpec(SINK, Head(7)))  # type: ignore[arg-type]
    config = CoreConfig(4, specs, order=Order.SESSION, host_tier=host)
    components = [*(component_for(spec, 4) for spec in specs[:2]), SinkComponent(specs[2], 4)]
    driver = Driver(ReferenceCore(config, components))
    driver.watch = check_all
    return driver


WINDOWS = [(SWA, end) for end in (4, 8, 12, 16)]
WHOLE = [*WINDOWS, (SINK, 4), (SINK, 8)]


def test_a_custom_component_votes() -> None:
    driver, key = driver_of(), pages_of("abcd", 4)
    assert driver.insert(key, WHOLE).frontier.length == 16
    assert driver.depth(key) == 16
    assert driver.depth(key, 4) == 4


def test_a_custom_refusal_is_named() -> None:
    """The window at 16 keeps the path; without sinks at 8 nothing below 4 votes."""
    driver, key = driver_of(), pages_of("abcd", 4)
    answer = driver.insert(key, [*WINDOWS, (SINK, 4)])
    assert answer.frontier.length == 4
    driver.insert(key, WHOLE)
    held = driver.lock(key)
    driver.unlock(held, SINK)
    driver.evict(SINK, 1)
    miss = driver.peek(key).miss
    assert miss is not None
    assert (miss.component, miss.position, miss.reason) == (SINK, 16, MissReason.CUSTOM)
    driver.unlock(held)


def test_a_custom_region_is_locked_and_referenced() -> None:
    driver, key = driver_of(), pages_of("abcd", 4)
    driver.insert(key, WHOLE)
    held = driver.lock(key)
    assert held.covered[SINK] == (4, 8)
    assert driver.evict(SINK, 2).short == 2
    driver.unlock(held)
    driver.turn("s", key, (1, 2))
    assert references(driver, key, SINK) == [1, 1, 0, 0]
    assert references(driver, key, FULL) == [1, 1, 1, 1]


def test_a_fork_shares_the_custom_data_of_the_trunk() -> None:
    driver, left, right = driver_of(), pages_of("abcd", 4), pages_of("abxy", 4)
    driver.insert(left, WHOLE)
    answer = driver.insert(right, WHOLE)
    assert answer.frontier.length == 16
    assert driver.ledger(SINK).cached() == set(driver.ledger(SINK).marks)
    assert len(driver.ledger(SINK).cached()) == 2


def test_a_custom_piece_is_evicted_with_what_it_carried() -> None:
    """Below 4 nothing votes without the second sink page: the tail goes, the marker moves up."""
    driver, key = driver_of(), pages_of("abcd", 4)
    driver.insert(key, WHOLE)
    driver.turn("s", key, (1, 2))
    driver.evict(SINK, 1)
    assert ends(driver, key, FULL) == [4]
    assert frontiers(driver, "s") == [4]


def test_full_takes_custom_data_with_it() -> None:
    driver, key = driver_of(), pages_of("abcd", 4)
    driver.insert(key, WHOLE)
    driver.evict(FULL, 3)
    assert ends(driver, key, SINK) == [4]
    driver.evict(FULL, 1)
    assert driver.core.snapshot().pages == ()


def test_custom_data_moves_between_tiers() -> None:
    driver, key = driver_of(host=True), pages_of("abcd", 4)
    driver.insert(key, WHOLE)
    job = driver.backup(key).job
    assert job is not None
    driver.commit(job)
    assert ends(driver, key, SINK, TierName.HOST) == [4, 8]
    driver.evict(FULL, 4)
    assert driver.depth(key) == 0
    planned = driver.load(key)
    assert planned.job is not None
    assert planned.lease is not None
    driver.commit(planned.job)
    assert driver.depth(key) == 16
    driver.unlock(driver.leases[planned.lease])
