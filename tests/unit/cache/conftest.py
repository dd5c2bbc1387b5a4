"""A fresh cache for each test."""

import pytest

from tests.unit.cache.world import World


@pytest.fixture
def world() -> World:
    return World()
