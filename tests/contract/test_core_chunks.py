"""A prompt published chunk by chunk, as a prefill does it: only the window that each boundary needs is offered."""

from itertools import product

import pytest

from agentcache.tree.api import CoreConfig
from agentcache.types import FULL, MAMBA, SWA, ComponentName, full_spec, mamba_spec, swa_spec
from tests.builders import MakeCore, key_of
from tests.check import check_all
from tests.driver import Driver
from tests.flight import HeldLease

CHUNKS = 4
SHAPES = list(product((1, 4, 64), (1, 4, 16, 128)))


def chunked(make_core: MakeCore, page: int, window: int) -> Driver:
    chunk = max(page, 16)
    config = CoreConfig(page, (full_spec(), swa_spec(window), mamba_spec(chunk)), grid_tokens=chunk)
    driver = Driver(make_core(config), slots=CHUNKS * chunk * 2)
    driver.watch = check_all
    return driver


def needed(driver: Driver, start: int, boundary: int) -> list[tuple[ComponentName, int]]:
    """The state at a boundary and the window pages before it that lie beyond `start`."""
    page = driver.config.page_tokens
    region = driver.config.specs[1].rule.region(boundary, page)
    return [
        (MAMBA, boundary),
        *((SWA, end) for end in range(max(start, region.start) + page, boundary + 1, page)),
    ]


def publish(driver: Driver, tokens: list[int], boundary: int, held: HeldLease | None) -> HeldLease:
    """One chunk: offer it after the lease, then move the lease to the frontier."""
    key = key_of(tokens[:boundary], driver.config.page_tokens)
    start = held.length if held else 0
    answer = driver.insert(key, needed(driver, start, boundary), after=held)
    assert answer.frontier.length == boundary
    return driver.relock(held, key, answer.frontier) if held else driver.lock(key, answer.frontier)


@pytest.mark.parametrize(("page", "window"), SHAPES)
@pytest.mark.parametrize("stop", range(1, CHUNKS + 1))
def test_every_chunk_moves_the_boundary_and_an_abort_leaves_valid_data(
    make_core: MakeCore, page: int, window: int, stop: int
) -> None:
    """R010, R011, R033, R117: after each chunk the boundary is its end; whoever comes later gets that, or less."""
    driver = chunked(make_core, page, window)
    chunk = driver.config.grid
    tokens = list(range(CHUNKS * chunk))
    held: HeldLease | None = None
    for boundary in range(chunk, stop * chunk + 1, chunk):
        held = publish(driver, tokens, boundary, held)
    assert held is not None
    driver.unlock(held)
    assert driver.depth(key_of(tokens, page)) == stop * chunk
    again = driver.lock(key_of(tokens, page))  # reads every slot that it names
    driver.evict(FULL, 10**6)
    assert driver.depth(key_of(tokens, page)) == stop * chunk, "locked data went"
    driver.unlock(again)


@pytest.mark.parametrize(("page", "window"), SHAPES)
def test_two_requests_publish_the_same_chunks_in_turn(make_core: MakeCore, page: int, window: int) -> None:
    """R035, R063, R119: the later one's slots are duplicates, the earlier one's lease keeps naming its own."""
    driver = chunked(make_core, page, window)
    chunk = driver.config.grid
    tokens = list(range(CHUNKS * chunk))
    leases: list[HeldLease | None] = [None, None]
    for boundary in range(chunk, len(tokens) + 1, chunk):
        for one in (0, 1):
            leases[one] = publish(driver, tokens, boundary, leases[one])
    held = len(tokens) // page
    assert len(driver.ledger(FULL).cached()) == held
    for lease in leases:
        assert lease is not None
        driver.evict(SWA, 10**6)
        assert driver.depth(key_of(tokens, page)) == len(tokens)
        driver.unlock(lease)
    driver.evict(SWA, 10**6)
    assert driver.depth(key_of(tokens, page)) == 0
