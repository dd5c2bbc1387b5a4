"""Looking up a cached path of many tokens, and adding 200 tokens behind it."""

import ctypes
from collections.abc import Iterator

import numpy as np

from agentcache.bench.tree_rows import Place, Row, repeat, row, settled
from agentcache.bench.tree_world import NAMESPACE, World, clock
from agentcache.keys import Key
from agentcache.tree.api import Order
from agentcache.types import Boundary, Tokens

ADDED_TOKENS = 200
INSERTS = 60
SHAPES = ("one", "chain")
"""The path is one node, or a chain of nodes of about 200 tokens, as a conversation grows them."""

LIBC = Place("libc", "-", None)


def lookup_rows(place: Place, tokens: int, order: Order = Order.SESSION) -> Iterator[Row]:
    """Match all of a path that a session references, then branch off at its end again and again."""
    world = World(place, order)
    context = world.tokens(tokens)
    boundary = _build(world, context, place.shape)
    assert boundary.length == tokens
    core = world.core
    with settled():
        seconds = repeat(lambda: core.match(Key(context[:tokens], NAMESPACE), tokens, world.now()))
        yield row("match", place, seconds, tokens)
        yield row("insert", place, _inserts(world, context, boundary), tokens)


def _build(world: World, context: Tokens, shape: str) -> Boundary:
    if shape == "one":
        return world.grow(context, len(context))
    return world.grow(context, max(world.page, world.whole(ADDED_TOKENS)))


def _inserts(world: World, context: Tokens, boundary: Boundary) -> list[float]:
    """A running request that holds the path publishes 200 tokens behind it: a new branch each time."""
    lease = world.core.lock(boundary, world.now()).lease
    end = boundary.length + max(world.page, world.whole(ADDED_TOKENS))
    seconds = []
    for _ in range(INSERTS):
        buffer = np.concatenate([context, world.tokens(end - boundary.length)])
        offer = world.offer(boundary.length, end, lease)
        began = clock()
        world.core.insert(Key(buffer[:end], NAMESPACE), offer, world.now())
        seconds.append(clock() - began)
    return seconds


def memcmp_rows(tokens: int) -> list[Row]:
    """What comparing the tokens of a path costs the C library: the floor under a match."""
    one = np.random.default_rng(7).integers(0, 1 << 17, tokens, dtype=np.int32)
    other = one.copy()
    compare = ctypes.CDLL(None).memcmp
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    addresses = one.ctypes.data, other.ctypes.data
    assert compare(*addresses, one.nbytes) == 0
    seconds = repeat(lambda: compare(*addresses, one.nbytes))
    return [row("memcmp", LIBC, seconds, tokens, sessions="-")]
