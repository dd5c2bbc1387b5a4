"""Worlds of tiers, looked over when their test is done."""

from collections.abc import Callable, Iterator

import pytest

from agentcache.tiers.external import ExternalRules
from agentcache.tiers.stores.api import BlobStore
from tests.unit.tiers.external_world import World

NewWorld = Callable[..., World]


@pytest.fixture
def new_world() -> Iterator[NewWorld]:
    """A builder of worlds; each must have touched nothing that was not its own, and hold no job, at the end."""
    worlds: list[World] = []

    def build(store: BlobStore | None = None, rules: ExternalRules | None = None, slots: int = 64) -> World:
        worlds.append(World(store, rules, slots))
        return worlds[-1]

    yield build
    for world in worlds:
        world.settle()


@pytest.fixture
def world(new_world: NewWorld) -> World:
    return new_world()
