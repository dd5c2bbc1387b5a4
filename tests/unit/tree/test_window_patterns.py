"""Every pattern of present and lost window pages against the definition of a window's boundary."""

from itertools import product

import pytest

from agentcache.tree.reference.component import component_for
from agentcache.types import swa_spec

PAGES = 12


@pytest.mark.parametrize(
    ("window", "page"), [(1, 1), (3, 1), (8, 1), (20, 1), (3, 4), (15, 4), (16, 4), (17, 4)]
)
def test_a_boundary_has_its_whole_window_directly_before_it(window: int, page: int) -> None:
    """R034: a lost page ends a run, however short the run was; one that reaches the start needs no more."""
    component = component_for(swa_spec(window), page)
    for pattern in product((True, False), repeat=PAGES):
        accept = component.accepts()
        for at, resident in enumerate(pattern, 1):
            first = max(0, at * page - window) // page
            assert accept(at * page, resident) == all(pattern[first:at]), (pattern, at)
