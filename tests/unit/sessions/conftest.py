"""A fresh registry for each test."""

import pytest

from tests.unit.sessions.world import World


@pytest.fixture
def world() -> World:
    return World()
