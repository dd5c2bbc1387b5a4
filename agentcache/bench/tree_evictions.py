"""Eviction from trees of many one-page leaves, and demotion of the children of one wide parent."""

from collections.abc import Iterator, Mapping

import numpy as np

from agentcache.bench.tree_rows import REFERENCED, UNREFERENCED, Place, Row, row, settled
from agentcache.bench.tree_world import World, clock
from agentcache.tree.api import Order
from agentcache.types import FULL, Effects, Move, Piece, Slots, TierName

PARENT_PAGES = 4
FAMILY = 100
"""Leaves under one parent."""
CALLS = {1: 1_000, 1_000: 5}
"""How many slots are asked for, and how often."""
EDGE = 20
"""How many siblings are the first ones, and the last ones."""


def grow_leaves(world: World, leaves: int, sessions: str = UNREFERENCED, first: int = 0) -> None:
    """One-page leaves, 100 under each parent of four pages; each referenced by a session of its own, or by none."""
    base = world.tokens(0)
    for number in range(leaves):
        if number % FAMILY == 0:
            base = world.tokens(PARENT_PAGES * world.page)
            world.add(base)
        leaf = world.add(np.concatenate([base, world.tokens(world.page)]))
        if sessions == REFERENCED:
            world.refer(f"s{first + number}", leaf.frontier)


def evict_rows(
    place: Place,
    leaves: int,
    sessions: str,
    order: Order = Order.SESSION,
    asked: Mapping[int, int] = CALLS,
) -> Iterator[Row]:
    """Ask for slots of the last component, one at a time and many at once; the tree shrinks meanwhile."""
    world = World(place, order)
    grow_leaves(world, leaves, sessions)
    length = (PARENT_PAGES + 1) * world.page
    with settled():
        for want, calls in asked.items():
            seconds = [_evict(world, want) for _ in range(calls)]
            yield row(f"evict_{want}", place, seconds, length, leaves, sessions)


def _evict(world: World, want: int) -> float:
    component = world.specs[-1].name
    began = clock()
    answer = world.core.evict(component, TierName.DEVICE, want, {}, world.now())
    took = clock() - began
    assert answer.freed >= want
    return took


def demote_rows(place: Place, siblings: int, order: Order = Order.SESSION) -> Iterator[Row]:
    """Send the leaves of one parent to the host one by one (evict and commit): the first ones, the last ones."""
    world = World(place, order, host_tier=True)
    base = world.tokens(PARENT_PAGES * world.page)
    for number in range(siblings):
        leaf = world.add(np.concatenate([base, world.tokens(world.page)]))
        world.refer(f"s{number}", leaf.frontier)
    host = np.arange(siblings, dtype=np.int32)
    with settled():
        seconds = [_demote(world, host[number : number + 1]) for number in range(siblings)]
    length = len(base) + world.page
    yield row("demote_first", place, seconds[:EDGE], length, siblings)
    yield row("demote_last", place, seconds[-EDGE:], length, siblings)


def _demote(world: World, slots: Slots) -> float:
    room = {FULL: len(slots)}
    began = clock()
    answer = world.core.evict(FULL, TierName.DEVICE, 1, room, world.now())
    _land(world, answer.effects, slots)
    took = clock() - began
    assert answer.moving == 1
    return took


def _land(world: World, effects: Effects, slots: Slots) -> None:
    for effect in effects:
        if isinstance(effect, Move):
            piece = effect.job.pieces[0]
            landed = (Piece(piece.component, piece.start, piece.end, slots),)
            world.core.commit(effect.job, landed, world.now())
