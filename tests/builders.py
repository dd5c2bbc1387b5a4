"""Short builders for configs, namespaces, keys and offers, and the list of cores that every suite judges."""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from agentcache.keys import Key, Namespace, page_key
from agentcache.tree.api import CoreConfig, Order, UnifiedTreeCore, WritePolicy
from agentcache.tree.native import NativeCore
from agentcache.tree.reference.core import ReferenceCore
from agentcache.types import (
    MAMBA,
    SWA,
    Checkpoint,
    ComponentName,
    ComponentSpec,
    Piece,
    Slots,
    Window,
    full_spec,
    mamba_spec,
    swa_spec,
)

SWA2 = ComponentName("SWA2")
HOME = Namespace(tenant_salt="home", model="m")
AWAY = Namespace(tenant_salt="away", model="m")

MakeCore = Callable[[CoreConfig], UnifiedTreeCore]
CORES: dict[str, MakeCore] = {"native": NativeCore, "reference": ReferenceCore}

KINDS = ("S", "L", "M")  # short window, long window, checkpoint


def specs_of(kinds: str, page: int = 1, states: int = 1) -> tuple[ComponentSpec, ...]:
    """FULL with `S` a window of a page less a token, `L` of two pages and a token, `M` a state every `states` pages."""
    made = {
        "S": swa_spec(max(1, page - 1)),
        "L": swa_spec(2 * page + 1, SWA2),
        "M": mamba_spec(states * page),
    }
    return (full_spec(), *(made[kind] for kind in kinds))


def all_kinds() -> list[str]:
    """Every combination of components: FULL alone to FULL with both windows and checkpoints."""
    return ["".join(k for k, on in zip(KINDS, mask, strict=True) if on) for mask in product((0, 1), repeat=3)]


def config_of(
    kinds: str = "", page: int = 1, grid: int = 1, states: int = 0, write_back: bool = False, **more: Any
) -> CoreConfig:
    """A config for a component combination; `grid` and `states` count pages, and states lie on the grid if not said.

    `more` are fields of `CoreConfig`; the order is `lru` if not said, and `unclaimed_ns` is 0.
    """
    more = {"order": Order.LRU, "unclaimed_ns": 0, **more}
    policy = WritePolicy.WRITE_BACK if write_back else WritePolicy.WRITE_THROUGH
    specs = specs_of(kinds, page, states or grid)
    return CoreConfig(page, specs, grid_tokens=grid * page, write_policy=policy, **more)


def key_of(tokens: Sequence[int] | Slots, page: int, namespace: Namespace = HOME) -> Key:
    return page_key(tokens, namespace, page)


def pages_of(letters: str, page: int, namespace: Namespace = HOME) -> Key:
    """A key of one page a letter; equal letters after equal letters are equal pages."""
    return page_key([ord(letter) * 100 + at for letter in letters for at in range(page)], namespace, page)


def slots_of(values: Iterable[int]) -> Slots:
    return np.fromiter(values, dtype=np.int32)


def window_names(config: CoreConfig) -> tuple[ComponentName, ...]:
    return tuple(spec.name for spec in config.specs if isinstance(spec.rule, Window))


def checkpoint_grids(config: CoreConfig) -> dict[ComponentName, int]:
    return {spec.name: spec.rule.grid_tokens for spec in config.specs if isinstance(spec.rule, Checkpoint)}


def piece(component: ComponentName, start: int, end: int, slots: Iterable[int]) -> Piece:
    return Piece(component, start, end, slots_of(slots))


def state(position: int, slot: int, component: ComponentName = MAMBA) -> Piece:
    return piece(component, position, position, [slot])


def interval(start: int, end: int, slots: Iterable[int], component: ComponentName = SWA) -> Piece:
    return piece(component, start, end, slots)
