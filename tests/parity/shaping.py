"""Random shapes of a core."""

import random

from agentcache.tree.api import CoreConfig, Order, OrderBase, WritePolicy
from agentcache.types import ComponentSpec, full_spec, mamba_spec, swa_spec
from tests.parity.shapes import Shape

ORDERS = [
    (order, base) for order in Order for base in (OrderBase if order is Order.SESSION else [OrderBase.LRU])
]


def random_shape(chance: random.Random) -> Shape:
    """Any combination of components, page, grid, order, tiers and pool sizes."""
    page = chance.choice([1, 1, 2, 4, 4, 16, 64])
    grid = page * chance.choice([1, 1, 1, 2, 3, 5])
    order, base = chance.choice([*ORDERS, *[(Order.ERT, OrderBase.LRU)] * 3])
    host = chance.random() < 0.6
    config = CoreConfig(
        page,
        _specs(chance, page, grid),
        grid_tokens=grid,
        order=order,
        base=base,
        write_policy=WritePolicy.WRITE_BACK if host and chance.random() < 0.7 else WritePolicy.WRITE_THROUGH,
        host_tier=host,
        emit_events=chance.random() < 0.4,
        max_markers=chance.choice([1, 2, 3, 8]),
        unclaimed_ns=chance.choice([0, 0, 5, 300_000_000_000]),
    )
    slots = chance.choice([9, 18, 30, 60, 120, 120 if page > 4 else 600])
    return Shape(config, slots, chance.choice([2, 4, slots // 2, slots, 2 * slots]) if host else 0)


def _specs(chance: random.Random, page: int, grid: int) -> tuple[ComponentSpec, ...]:
    """FULL, up to three windows and up to two kinds of states, in any order."""
    tokens = [max(1, page - 1), page, page + 1, 2 * page + 1, 5 * page, 17 * page + 3]
    windows = chance.sample(tokens, chance.choice([0, 0, 1, 1, 2, 3]))
    grids = chance.sample([grid, grid, 2 * grid, page], chance.choice([0, 0, 1, 1, 2]))
    specs = [swa_spec(size, f"W{at}") for at, size in enumerate(windows)]
    specs += [mamba_spec(size, f"M{at}") for at, size in enumerate(grids)]
    chance.shuffle(specs)
    return (full_spec(), *specs)
