"""Sidecars: data of an engine that belong to the slots of another pool and go where those go.

A sidecar has no slots, no vote and no place in the tree. Its tensors are further parts of its source pool's: what
copies a slot copies them, so a slot without its sidecars arrives nowhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentcache.errors import CacheError, Kind
from agentcache.pools.buffers import SlotTensors, TensorLayout
from agentcache.types import ComponentName


@dataclass(frozen=True, slots=True)
class SidecarPool:
    """What an engine keeps beside every slot of the component that it follows: one tensor for each layout."""

    name: str
    follows: ComponentName
    layouts: tuple[TensorLayout, ...]

    @property
    def slot_bytes(self) -> int:
        return sum(layout.size_bytes for layout in self.layouts)

    @property
    def names(self) -> tuple[str, ...]:
        """What its tensors are called among the parts of its source pool."""
        return tuple(f"{self.name}.{number}" for number in range(len(self.layouts)))


def with_sidecars(tensors: SlotTensors, slots: int, sidecars: Sequence[SidecarPool]) -> SlotTensors:
    """The parts of a pool of `slots` slots, and after them those of its sidecars, allocated on the same device.

    Errors  CacheError(BAD_CONFIG) for a name twice, or no room
    """
    parts = [
        layout.allocate(slots, device=tensors.device) for sidecar in sidecars for layout in sidecar.layouts
    ]
    return tensors.extended(parts, [name for sidecar in sidecars for name in sidecar.names])


def followers(
    sidecars: Sequence[SidecarPool], pools: Sequence[ComponentName]
) -> Mapping[ComponentName, tuple[SidecarPool, ...]]:
    """Who follows each pool. Errors: CacheError(UNKNOWN_COMPONENT) for a sidecar of a pool that is not there."""
    for sidecar in sidecars:
        if sidecar.follows not in pools:
            raise CacheError(
                Kind.UNKNOWN_COMPONENT,
                f"sidecar {sidecar.name} follows a pool that this model does not have",
                follows=sidecar.follows,
                known=list(pools),
            )
    return {name: tuple(sidecar for sidecar in sidecars if sidecar.follows == name) for name in pools}
