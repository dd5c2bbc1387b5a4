"""The bytes of one tier: pages of keys and values, and recurrent states, by slot.

Shapes and types come from a probe of the model, never from formulas. Every tensor is filled with NaN when it is
allocated, so a slot that nobody wrote is visible in the first logits that use it. Writing copies in and reading
copies out: a reader may update what it got in place (copy-on-write).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from agentcache.errors import CacheError, Kind
from agentcache.types import Slots


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Shape and type of one unit of data: keys or values of one token, or one state tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def allocate(self, *leading: int, device: torch.device) -> Tensor:
        """A tensor of NaN. Errors: CacheError(BAD_CONFIG) when the device has no room for it."""
        try:
            return torch.full((*leading, *self.shape), float("nan"), dtype=self.dtype, device=device)
        except RuntimeError as bad:
            gib = prod(leading) * self.size_bytes / 2**30
            raise CacheError(
                Kind.BAD_CONFIG,
                f"a pool of {leading[0]:,} slots needs {gib:,.0f} GiB in one tensor, more than {device} has; lower "
                "full_slots, swa_slots or mamba_slots",
            ) from bad


@dataclass(frozen=True, slots=True)
class KvLayout:
    """One attention layer: `[heads, dim]` of a token's keys and of its values; widths and types may differ."""

    keys: TensorLayout
    values: TensorLayout

    @property
    def token_bytes(self) -> int:
        return self.keys.size_bytes + self.values.size_bytes


class PageBuffers:
    """Pages of keys and values of the layers of one component.

    Shapes  keys[layer], values[layer]: [slots, page_tokens, heads, dim]
    """

    def __init__(
        self, slots: int, page_tokens: int, layers: Sequence[KvLayout], device: torch.device
    ) -> None:
        self.page_tokens = page_tokens
        self.slot_bytes = page_tokens * sum(layer.token_bytes for layer in layers)
        self.keys = [layer.keys.allocate(slots, page_tokens, device=device) for layer in layers]
        self.values = [layer.values.allocate(slots, page_tokens, device=device) for layer in layers]

    def write(self, layer: int, slots: Slots, keys: Tensor, values: Tensor) -> None:
        """Copy whole pages into `slots`. Shapes: keys, values [heads, len(slots) * page_tokens, dim]."""
        for pages, tokens in ((self.keys[layer], keys), (self.values[layer], values)):
            pages[_index(slots, pages)] = tokens.transpose(0, 1).reshape(len(slots), *pages.shape[1:])

    def read(self, layer: int, slots: Slots) -> tuple[Tensor, Tensor]:
        """Copy whole pages out, in the order of `slots`. Shapes: two of [heads, len(slots) * page_tokens, dim]."""
        keys, values = self.keys[layer], self.values[layer]
        return (
            keys[_index(slots, keys)].flatten(0, 1).transpose(0, 1),
            values[_index(slots, values)].flatten(0, 1).transpose(0, 1),
        )


class StateBuffers:
    """Recurrent states: one slot holds every state tensor of every layer at one position.

    Shapes  tensors[i]: [slots, *layouts[i].shape]
    """

    def __init__(self, slots: int, layouts: Sequence[TensorLayout], device: torch.device) -> None:
        self.slot_bytes = sum(layout.size_bytes for layout in layouts)
        self.tensors = [layout.allocate(slots, device=device) for layout in layouts]

    def write(self, slot: int, states: Sequence[Tensor]) -> None:
        """Copy one state in. Shapes: states[i] as layouts[i]."""
        for stored, state in zip(self.tensors, states, strict=True):
            stored[slot].copy_(state)

    def read(self, slot: int) -> list[Tensor]:
        """Copy one state out."""
        return [stored[slot].clone() for stored in self.tensors]


def _index(slots: Slots, pages: Tensor) -> Tensor:
    return torch.as_tensor(slots, dtype=torch.int64, device=pages.device)
