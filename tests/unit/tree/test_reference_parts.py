"""The small parts of the reference core, each on its own."""

import gc
import itertools

import numpy as np
import pytest

from agentcache.keys import Namespace
from agentcache.tree.api import CoreConfig
from agentcache.tree.reference.changes import Changes, Pieces
from agentcache.tree.reference.component import Validator, WindowComponent, component_for
from agentcache.tree.reference.core import ReferenceCore
from agentcache.tree.reference.node import Node, is_prefix, path_to, region_nodes, subtree
from agentcache.types import (
    FULL,
    MAMBA,
    SWA,
    ComponentSpec,
    Free,
    Job,
    Move,
    PoolName,
    Region,
    TierName,
    full_spec,
    mamba_spec,
    swa_spec,
)
from tests.builders import key_of
from tests.driver import Driver

PAGE = 4


def chain_of(pages: int) -> list[Node]:
    nodes = [Node(b"", None, Namespace(), 0)]
    for number in range(pages):
        edge = np.full(PAGE, number, dtype=np.int32).tobytes()
        node = Node(edge, nodes[-1], Namespace(), number + 1)
        nodes[-1].children[node.child_key()] = node
        nodes.append(node)
    return nodes


@pytest.mark.parametrize(
    ("region", "is_state", "ends"),
    [
        (Region(0, 20), False, [20, 16, 12, 8, 4]),
        (Region(8, 16), False, [16, 12]),
        (Region(16, 16), False, []),
        (Region(0, 0), False, []),
        (Region(12, 12), True, [12]),
        (Region(0, 0), True, []),
    ],
)
def test_region_nodes_are_the_pages_of_the_interval_deepest_first(
    region: Region, is_state: bool, ends: list[int]
) -> None:
    tip = chain_of(5)[-1]
    assert [node.end for node in region_nodes(tip, region, is_state)] == ends


def test_path_and_subtree_are_the_two_directions_of_a_chain() -> None:
    nodes = chain_of(3)
    assert path_to(nodes[-1]) == nodes[1:]
    assert set(subtree(nodes[1])) == set(nodes[1:])
    assert is_prefix(nodes[1], nodes[3])
    assert not is_prefix(nodes[3], nodes[1])


@pytest.mark.parametrize(
    ("window", "boundary", "start"),
    [(6, 40, 32), (8, 40, 32), (9, 40, 28), (6, 4, 0), (0, 16, 16), (3, 16, 12)],
)
def test_window_region_is_rounded_outward_to_pages(window: int, boundary: int, start: int) -> None:
    component = component_for(swa_spec(window), PAGE)
    assert component.region(boundary) == Region(start, boundary)


def test_window_accepts_again_once_a_whole_window_follows_the_gap() -> None:
    accept = component_for(swa_spec(6), PAGE).accepts()
    resident = [True, True, False, True, True, True]
    answers = [accept(PAGE * (at + 1), there) for at, there in enumerate(resident)]
    assert answers == [True, True, False, False, True, True]


def test_window_near_the_root_needs_only_what_exists() -> None:
    accept = component_for(swa_spec(1000), PAGE).accepts()
    assert [accept(PAGE * (at + 1), True) for at in range(4)] == [True] * 4


def test_checkpoint_accepts_on_its_grid_only() -> None:
    accept = component_for(mamba_spec(8), PAGE).accepts()
    assert [accept(end, True) for end in (4, 8, 12, 16)] == [False, True, False, True]


def test_full_never_accepts_again_after_a_gap() -> None:
    accept = component_for(full_spec(), PAGE).accepts()
    assert [accept(4, True), accept(8, False), accept(12, True)] == [True, False, False]


def test_cascade_of_a_window_takes_smaller_windows_and_states_unless_it_survives_below() -> None:
    others = [swa_spec(4, "SMALL"), swa_spec(64, "LARGE"), mamba_spec(8)]
    window = component_for(swa_spec(16), PAGE)
    assert window.cascade(others, demoted=False) == ("SMALL", MAMBA)
    assert window.cascade(others, demoted=True) == ("SMALL",)
    assert component_for(mamba_spec(8), PAGE).cascade(others, demoted=False) == ()


def test_pieces_join_neighbouring_pages_and_keep_states_apart() -> None:
    pieces = Pieces(CoreConfig(PAGE, (full_spec(), swa_spec(4), mamba_spec(4))))
    pieces.add(SWA, 8, 5, is_state=False)
    pieces.add(FULL, 4, 1, is_state=False)
    pieces.add(FULL, 8, 2, is_state=False)
    pieces.add(FULL, 16, 3, is_state=False)
    pieces.add(MAMBA, 8, 9, is_state=True)
    pieces.add(MAMBA, 12, 8, is_state=True)
    spans = [(piece.component, piece.start, piece.end, piece.slots.tolist()) for piece in pieces.build()]
    assert spans == [
        (FULL, 0, 8, [1, 2]),
        (FULL, 12, 16, [3]),
        (SWA, 4, 8, [5]),
        (MAMBA, 8, 8, [9]),
        (MAMBA, 12, 12, [8]),
    ]


def test_frees_before_a_move_stay_before_it() -> None:
    changes, job = Changes(), Job(1, TierName.DEVICE, TierName.HOST, ())
    host, device = PoolName(FULL, TierName.HOST), PoolName(FULL, TierName.DEVICE)
    changes.free(host, 3)
    changes.free(device, 1)
    changes.free(host, 4)
    changes.move(job)
    changes.free(device, 2)
    steps = [
        (effect.pool, effect.slots.tolist()) if isinstance(effect, Free) else effect
        for effect in changes.effects(CoreConfig(PAGE, (full_spec(),)))
    ]
    assert steps == [(host, [3, 4]), (device, [1]), Move(job), (device, [2])]


@pytest.mark.parametrize("spec", [swa_spec(1), swa_spec(5), swa_spec(9), mamba_spec(4), mamba_spec(8)])
def test_a_validator_fed_from_reads_from_answers_like_one_fed_from_the_root(spec: ComponentSpec) -> None:
    component = component_for(spec, PAGE)
    for resident in itertools.product([False, True], repeat=6):
        pages = [(end, here) for end, here in zip(range(PAGE, 28, PAGE), resident, strict=True)]
        whole = component.accepts()
        for count, (end, here) in enumerate(pages, start=1):
            part = component.accepts()
            read = [page for page in pages[:count] if page[0] > component.reads_from(end)]
            assert [part(*page) for page in read][-1] == whole(end, here)


class CountingWindow(WindowComponent):
    """Counts how often it is put to the vote."""

    asked = 0

    def accepts(self) -> Validator:
        self.asked += 1
        return super().accepts()


def test_an_eviction_asks_about_the_sessions_that_it_concerns_and_no_others() -> None:
    """100 sessions with three pages each below a common one: a page goes, one marker moves, two votes are enough."""
    specs = (full_spec(), swa_spec(1))
    window = CountingWindow(specs[1], 1)
    core = ReferenceCore(CoreConfig(1, specs), [component_for(specs[0], 1), window])
    driver = Driver(core, slots=1000)
    for number in range(100):
        key = key_of([0, 1000 + number, 2000 + number, 3000 + number], 1)
        driver.insert(key)
        driver.turn(f"s{number}", key, (2 * number + 1, 2 * number + 2))
    window.asked = 0
    driver.evict(FULL)
    assert sorted(marker.frontier for marker in core.snapshot().markers) == [3] + 99 * [4]
    assert 0 < window.asked < 8


def test_nothing_keeps_a_dropped_page_alive() -> None:
    """200 pages come and go beside 50 that stay; void entries of the eviction order hold none of them."""
    core = ReferenceCore(CoreConfig(1, (full_spec(),)))
    driver = Driver(core, slots=60)
    gc.collect()
    before = sum(type(thing) is Node for thing in gc.get_objects())
    for number in range(250):
        driver.insert(key_of([number], 1))
        if number >= 50:
            driver.evict(FULL)
    assert core.stats().pages == 50
    assert sum(type(thing) is Node for thing in gc.get_objects()) - before == 50


def test_an_eviction_reads_no_branch_twice() -> None:
    """50 branches of eight pages below a trunk, two windows deep: the trunk's window goes, each branch is met once."""
    specs = (full_spec(), swa_spec(4))
    window = CountingWindow(specs[1], 1)
    driver = Driver(ReferenceCore(CoreConfig(1, specs), [component_for(specs[0], 1), window]), slots=1000)
    driver.insert(key_of([1, 2, 3, 4], 1))
    for number in range(50):
        key = key_of([1, 2, 3, 4, *(10 * number + 10 + at for at in range(8))], 1)
        driver.insert(key, [(SWA, end) for end in range(9, 13)])
    window.asked = 0
    driver.evict(SWA, 4)
    assert driver.core.stats().pages == 404
    assert window.asked < 50 * 8 + 50
    driver.evict(SWA, 200)
    assert driver.core.stats().pages == 0
