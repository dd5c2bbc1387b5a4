"""Which `CoreConfig` can be a tree: every core refuses the others, and in the same words."""

from collections.abc import Iterator

from agentcache.errors import CacheError, Kind
from agentcache.tree.api import CoreConfig, Order, OrderBase
from agentcache.types import FULL, Checkpoint, ComponentSpec, Path, Window

MOST_TOKENS = 2**32
MOST_NS = 2**62


def demand_shape(config: CoreConfig) -> None:
    """Errors: CacheError(BAD_CONFIG) names the first thing that cannot be."""
    for fault in shape_faults(config):
        raise CacheError(Kind.BAD_CONFIG, fault)


def shape_faults(config: CoreConfig) -> Iterator[str]:
    """What cannot be, in words; what comes later may rest on what came before."""
    if config.order not in list(Order):
        yield f"no eviction order is called {config.order!r}; there are {_list(Order)}"
    if config.base not in list(OrderBase):
        yield f"no base of the session order is called {config.base!r}; there are {_list(OrderBase)}"
    if config.page_tokens < 1:
        yield f"a page has at least one token, not {config.page_tokens}"
    if not config.specs or config.specs[0].name != FULL or not isinstance(config.specs[0].rule, Path):
        yield "the first component is FULL, with the Path rule; for a model without it its slots carry no bytes"
    names = [spec.name for spec in config.specs]
    if len(set(names)) < len(names):
        yield f"component names are unique, unlike {_list(names)}"
    if config.grid < 1 or config.grid % config.page_tokens:
        yield f"grid_tokens {config.grid} is not a multiple of page_tokens {config.page_tokens}"
    if config.grid >= MOST_TOKENS:
        yield f"grid_tokens lie below 2^32, unlike {config.grid}"
    if not 0 <= config.unclaimed_ns < MOST_NS:
        yield f"unclaimed_ns is a time from 0 to below 2^62 ns, unlike {config.unclaimed_ns}"
    for spec in config.specs:
        yield from _rule_faults(spec, config)


def _rule_faults(spec: ComponentSpec, config: CoreConfig) -> Iterator[str]:
    match spec.rule:
        case Window(tokens) if tokens < 1:
            yield f"the window of {spec.name} has at least one token, not {tokens}"
        case Checkpoint(grid) if grid < 1 or grid % config.page_tokens:
            yield f"the grid of {spec.name}, {grid}, is not a multiple of page_tokens {config.page_tokens}"
        case Window(tokens) | Checkpoint(tokens) if tokens >= MOST_TOKENS:
            yield f"the tokens of {spec.name}'s rule lie below 2^32, unlike {tokens}"


def _list(names: object) -> str:
    return ", ".join(str(name) for name in names) or "none"  # type: ignore[attr-defined]
