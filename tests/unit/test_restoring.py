"""What could be restored from outside, against the definition of a vote, over every small pattern."""

from itertools import chain, combinations

import pytest

from agentcache.restoring import missing, questions, restorable, slots_of, stretches
from agentcache.tree.api import CoreConfig
from agentcache.types import FULL, Checkpoint, ComponentName, ComponentSpec, Path, Window
from tests.builders import config_of, piece

Held = frozenset[tuple[ComponentName, int]]

SHAPES = [
    pytest.param("", 1, 1, 4, id="full"),
    pytest.param("S", 2, 1, 8, id="window of a page"),
    pytest.param("L", 1, 1, 4, id="window of three pages"),
    pytest.param("M", 1, 2, 4, id="states on a grid of two pages"),
    pytest.param("SM", 2, 2, 8, id="window and states"),
]


def needed(spec: ComponentSpec, boundary: int, voted: int, page: int) -> set[tuple[ComponentName, int]]:
    """By definition: the objects that a boundary needs of one component beyond what the tree has."""
    match spec.rule:
        case Path():
            return {(spec.name, end) for end in range(voted + page, boundary + 1, page)}
        case Window(tokens):
            first = max(0, boundary - tokens) // page * page
            return {(spec.name, end) for end in range(first + page, boundary + 1, page)}
        case Checkpoint():
            return {(spec.name, boundary)}


def possible(config: CoreConfig, boundary: int) -> bool:
    """States exist on their own grid only."""
    grids = [spec.rule.grid_tokens for spec in config.specs if isinstance(spec.rule, Checkpoint)]
    return all(boundary % grid == 0 for grid in grids)


def by_definition(config: CoreConfig, voted: int, limit: int, held: Held) -> tuple[int, ...]:
    found = []
    for boundary in range(config.grid, limit + 1, config.grid):
        wants = [needed(spec, boundary, voted, config.page_tokens) for spec in config.specs]
        if boundary > voted and possible(config, boundary) and all(want <= held for want in wants):
            found.append(boundary)
    return tuple(found)


def subsets(things: list[tuple[ComponentName, int]]) -> list[Held]:
    counts = range(len(things) + 1)
    return [frozenset(some) for some in chain.from_iterable(combinations(things, n) for n in counts)]


@pytest.mark.parametrize(("kinds", "page", "grid", "limit"), SHAPES)
def test_restorable_is_the_vote_of_every_candidate(kinds: str, page: int, grid: int, limit: int) -> None:
    """R039, R143: FULL alone is worth nothing where a window or a state is missing outside."""
    config = config_of(kinds, page, grid)
    for voted in range(0, limit + 1, page):
        asked = list(questions(config, voted, limit))
        assert len(asked) == len(set(asked))
        for held in subsets(asked):
            found = restorable(config, voted, limit, lambda name, end: (name, end) in held)  # noqa: B023
            assert found == by_definition(config, voted, limit, held), (voted, sorted(held))


@pytest.mark.parametrize(("kinds", "page", "grid", "limit"), SHAPES)
def test_questions_leave_out_nothing_that_a_boundary_needs(
    kinds: str, page: int, grid: int, limit: int
) -> None:
    config = config_of(kinds, page, grid)
    for voted in range(0, limit + 1, page):
        candidates = [end for end in range(config.grid, limit + 1, config.grid) if end > voted]
        wants = {
            want
            for end in candidates
            if possible(config, end)
            for spec in config.specs
            for want in needed(spec, end, voted, page)
        }
        assert set(questions(config, voted, limit)) >= wants
        everything = restorable(config, voted, limit, lambda _name, _end: True)
        assert everything == tuple(end for end in candidates if possible(config, end))


@pytest.mark.parametrize(("kinds", "page", "grid", "limit"), SHAPES)
def test_missing_names_what_a_boundary_needs_and_no_more(
    kinds: str, page: int, grid: int, limit: int
) -> None:
    config = config_of(kinds, page, grid)
    for end in range(config.grid, limit + 1, config.grid):
        if not possible(config, end):
            continue
        for voted in range(0, end, page):
            pieces = {one.component: one for one in missing(config, voted, end)}
            for spec in config.specs:
                one = pieces[spec.name]
                assert slots_of(one, page) == len(needed(spec, end, voted, page))
                assert one.end == end
            assert (pieces[FULL].start, pieces[FULL].slots.size) == (voted, 0)


def test_a_limit_off_the_grid_is_cut_to_it() -> None:
    config = config_of("M", 1, 2)
    assert restorable(config, 0, 5, lambda _name, _end: True) == (2, 4)
    assert max(end for _, end in questions(config, 0, 5)) == 4


def test_a_gap_in_full_ends_it_and_a_gap_elsewhere_does_not() -> None:
    config = config_of("M", 1, 2)
    assert restorable(config, 0, 8, lambda name, end: (name, end) != (FULL, 5)) == (2, 4)
    assert restorable(config, 0, 8, lambda name, end: name == FULL or end != 4) == (2, 6, 8)


@pytest.mark.parametrize(
    ("boundaries", "apart", "chosen"),
    [
        ((), 4, []),
        ((8,), 4, [8]),
        ((2, 4, 6, 8), 4, [4, 8]),
        ((2, 4, 6, 8), 1, [2, 4, 6, 8]),
        ((2, 4, 6, 8), 100, [8]),
        ((2, 10, 11), 4, [2, 11]),
    ],
)
def test_stretches_keep_the_deepest_and_their_distance(
    boundaries: tuple[int, ...], apart: int, chosen: list[int]
) -> None:
    assert stretches(boundaries, apart) == chosen


def test_slots_of_a_state_are_one() -> None:
    assert slots_of(piece(FULL, 8, 8, []), 4) == 1
    assert slots_of(piece(FULL, 4, 12, []), 4) == 2


def test_states_on_a_wider_grid_than_the_chunks() -> None:
    config = config_of("M", 1, 1, states=2)
    assert restorable(config, 0, 6, lambda _name, _end: True) == by_definition(
        config, 0, 6, frozenset(questions(config, 0, 6))
    )
