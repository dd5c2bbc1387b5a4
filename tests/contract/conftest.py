"""Every contract test runs on every core, and every core is checked after every step."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.builders import CORES, MakeCore, config_of
from tests.check import check_all
from tests.contract.world import World, world_of
from tests.driver import Driver
from tests.sessionstores import scene as scene
from tests.sessionstores import servers as servers

Drive = Callable[..., Driver]


@pytest.fixture(params=sorted(CORES))
def make_core(request: pytest.FixtureRequest) -> MakeCore:
    """A core factory: `CoreConfig → UnifiedTreeCore`."""
    return CORES[str(request.param)]


@pytest.fixture
def drive(make_core: MakeCore) -> Iterator[Drive]:
    """Drivers by component letters (see `builders.specs_of`); each is checked after every step and at the end."""
    made: list[Driver] = []

    def start(
        kinds: str = "", page: int = 1, grid: int = 1, slots: int = 32, host_slots: int = 32, **config: Any
    ) -> Driver:
        driver = Driver(make_core(config_of(kinds, page, grid, **config)), slots, host_slots)
        driver.watch = check_all
        made.append(driver)
        return driver

    yield start
    for driver in made:
        check_all(driver)


@pytest.fixture
def world(drive: Drive) -> World:
    return world_of(drive("SM", page=4, host_tier=True))
