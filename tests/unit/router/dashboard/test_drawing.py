"""What is drawn where: pools, prompts, shares and trees, by hand; and nothing leaves the picture whatever is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentcache.router.dashboard.answers import Branch, Slots, Turn
from agentcache.router.dashboard.drawing import (
    CHART_PX,
    ROW_PX,
    Bar,
    pool_bars,
    rate_blocks,
    tree_picture,
    turn_bars,
)
from agentcache.router.dashboard.rates import Column

COUNTS = st.integers(0, 2**53)
PAGE = 16


def test_a_pool_is_what_is_written_then_what_is_referenced_then_the_rest() -> None:
    slots = Slots(size=100, free=30, cached=50, leased=15, in_flight=5, protected=60, referenced=20)
    assert pool_bars(slots) == (Bar("running", 0, 20), Bar("referenced", 20, 20), Bar("cached", 40, 30))


def test_a_prompt_is_what_came_from_each_tier_and_what_was_computed() -> None:
    turn = Turn(prompt_tokens=80, cached_tokens={"device": 40, "external": 10})
    assert turn_bars(turn, 100) == (Bar("device", 0, 40), Bar("external", 40, 10), Bar("computed", 50, 30))


def test_shares_stand_on_each_other_and_nothing_is_drawn_where_nothing_was() -> None:
    low, high = rate_blocks([Column((0.5, 0.25, 0.0)), Column(())])
    assert (low.kind, low.x, low.width, low.y, low.height) == ("device", 0, 50, CHART_PX / 2, CHART_PX / 2)
    assert (high.kind, high.y, high.height) == ("host", CHART_PX / 4, CHART_PX / 4)


def branch(parent: int | None, start: int, end: int, **more: int) -> Branch:
    return replace(Branch(parent=parent, start=start, end=end, reusable=end), **more)


def test_the_first_branch_goes_on_in_the_line_of_its_parent_the_others_below() -> None:
    tree = [
        branch(None, 0, 50),
        branch(0, 50, 100),
        branch(0, 50, 80),
        branch(1, 100, 200),
        branch(None, 0, 20),
    ]
    picture = tree_picture(tree, PAGE)
    assert [line.y // ROW_PX for line in picture.lines] == [0, 0, 1, 0, 2]
    assert [line.up // ROW_PX for line in picture.lines] == [0, 0, 1, 0, 0]
    assert picture.height == 3 * ROW_PX
    assert [(tick.x, tick.tokens) for tick in picture.ticks] == [
        (0, 0), (25, 50), (50, 100), (75, 150), (100, 200)
    ]  # fmt: skip


def test_a_branch_is_running_then_referenced_then_free_then_out_of_reach() -> None:
    tree = [branch(None, 0, 160, running_pages=1, referenced_pages=4, reusable=128)]
    (line,) = tree_picture(tree, PAGE).lines
    assert line.bars == (
        Bar("running", 0, 10), Bar("referenced", 10, 30), Bar("cached", 40, 40), Bar("beyond", 80, 20)
    )  # fmt: skip


@pytest.mark.parametrize("end", [0, 1, 3, 4, 5, 9, 10, 49, 99, 131_072, 2**53])
def test_ticks_are_few_and_round(end: int) -> None:
    ticks = tree_picture([branch(None, 0, end)], PAGE).ticks
    assert 1 <= len(ticks) <= 7
    assert all(str(tick.tokens).rstrip("0") in ("", *(str(n) for n in range(1, 50))) for tick in ticks)


def test_nothing_cached_is_no_picture() -> None:
    assert not tree_picture([], PAGE).lines


WILD = st.builds(
    Branch,
    parent=st.none() | st.integers(0, 8),
    start=COUNTS,
    end=COUNTS,
    reusable=COUNTS,
    referenced_pages=COUNTS,
    running_pages=COUNTS,
)


@given(st.lists(WILD, max_size=8))
def test_whatever_a_worker_says_its_tree_stays_in_the_picture(branches: list[Branch]) -> None:
    picture = tree_picture(branches, 2**31)
    assert len(picture.lines) == len(branches)
    for line in picture.lines:
        assert 0 <= line.y < picture.height
        assert 0 <= line.up <= line.y
        assert 0 <= line.x <= 100
        assert all(0 <= bar.x <= bar.x + bar.width <= 101 for bar in line.bars)


@given(st.builds(Slots, *[COUNTS] * 7))
def test_whatever_a_worker_says_its_pools_stay_in_their_bars(slots: Slots) -> None:
    for bar in pool_bars(slots):
        assert 0 <= bar.x <= bar.x + bar.width <= 100.0001
