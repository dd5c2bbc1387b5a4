"""`NativeCore`: the tree contract, served by the Rust core below `agentcache/_rust/`.

Its methods are the extension's own, so that a call costs no Python frame; results are the values of `types.py`.
"""

from typing import Self

from agentcache.tree.api import CoreConfig
from agentcache.tree.extension import TreeCore
from agentcache.tree.instances import next_instance
from agentcache.tree.shapes import demand_shape


class NativeCore(TreeCore):
    """The fast tree: one node a run of pages.

    Errors  CacheError(BAD_CONFIG) for what cannot be a tree (shapes.py), for rules that only the reference core
            serves, and where the extension is missing
    """

    __slots__ = ()

    def __new__(cls, config: CoreConfig) -> Self:
        demand_shape(config)
        return super().__new__(cls, config, next_instance())
