"""The working memory of requests that run together, layer by layer."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from agentcache.engine.adapter import LayerPlan, build_cache, linear_layers, load_layer_state
from agentcache.engine.slab import EVERYTHING, KvSlab


class Rows:
    """The working memory of requests that run together: one row each, newest tokens aligned.

    `end` is the virtual length (of the longest row); row r has `pads[r]` places before its first token.
    `spare_tokens` behind each window stay readable, so that pages can be saved after the window has moved on.
    `copied_from[r]` says per layer where the tokens of a copied row begin; before them is padding.
    """

    def __init__(self, plans: Sequence[LayerPlan], spare_tokens: int) -> None:
        self.plans = plans
        self.spare_tokens = spare_tokens
        self.slabs = {plan.index: _slab(plan, spare_tokens) for plan in plans if plan.attention}
        self.cache = build_cache(plans, self.slabs)
        self.end = 0
        self.pads = [0]
        self.capacity = 1
        self.copied_from: list[dict[int, int]] = [{}]

    def begin(self, layer: int, start: int, keys: Tensor, values: Tensor) -> None:
        """Fill an empty single row's layer with the tokens from `start` on. Shapes: two of [heads, n, dim]."""
        slab = self.slabs[layer]
        slab.start = slab.end = start
        slab.append(keys[None], values[None])

    def length(self, row: int) -> int:
        """True length of a row in tokens."""
        return self.end - self.pads[row]

    def held_from(self, layer: int, row: int) -> int:
        """The first token of a row that the layer still holds."""
        return max(self.copied_from[row].get(layer, 0), self.slabs[layer].start - self.pads[row])

    def tokens(self, layer: int, row: int, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Views of keys and values of tokens `[start, end)` of a row. Shapes: two of [heads, end - start, dim]."""
        pad = self.pads[row]
        return self.slabs[layer].read(row, start + pad, end + pad)

    def state_tensors(self) -> Iterator[Tensor]:
        """Every recurrent tensor, layer by layer, convolution before recurrence. Shapes: [rows, …]."""
        for layer in linear_layers(self.cache):
            for number in range(layer.number_of_states):
                stored = (layer.conv_states[number], layer.recurrent_states[number])
                yield from (tensor for tensor in stored if tensor is not None)

    def load_states(self, like: "Rows", tensors: Sequence[Tensor]) -> None:
        """Set every recurrent tensor, in the order and with the presence of `like`. Keeps `tensors` (no copy)."""
        rest = iter(tensors)
        for layer, model in zip(linear_layers(self.cache), linear_layers(like.cache), strict=True):
            for number in range(layer.number_of_states):
                load_layer_state(layer, model, number, rest)

    def join(self, other: "Rows", row: int) -> None:
        """Copy a row of another working memory behind our rows. It must not be longer than `end`."""
        length = other.length(row)
        held = {
            index: max(other.held_from(index, row), length - (slab.end - slab.start))
            for index, slab in self.slabs.items()
        }
        for index, slab in self.slabs.items():
            slab.place(len(self.pads), *other.tokens(index, row, held[index], length))
        added = [tensor[row : row + 1] for tensor in other.state_tensors()]
        mine = list(self.state_tensors()) if self.pads else [tensor[:0] for tensor in added]
        self.load_states(other, [torch.cat(pair) for pair in zip(mine, added, strict=True)])
        self.pads.append(self.end - length)
        self.copied_from.append(held)

    def leave(self, row: int) -> None:
        """Forget a row; the last row takes its number."""
        last = len(self.pads) - 1
        keep = [last if number == row else number for number in range(last)]
        if row != last:
            for slab in self.slabs.values():
                slab.move_row(last, row)
        self.pads = [self.pads[number] for number in keep]
        self.copied_from = [self.copied_from[number] for number in keep]
        self.load_states(self, [tensor[keep] for tensor in list(self.state_tensors())])


def merge(members: Sequence[tuple[Rows, int]], row_capacity: int) -> Rows:
    """A new working memory with copies of the given rows (memory, row), in that order."""
    first, _ = members[0]
    rows = Rows(first.plans, first.spare_tokens)
    rows.pads, rows.copied_from = [], []
    rows.capacity = row_capacity
    rows.end = max(memory.length(row) for memory, row in members)
    for index, slab in rows.slabs.items():
        slab.open(row_capacity, rows.end, first.tokens(index, 0, first.length(0), first.length(0)))
    for memory, row in members:
        rows.join(memory, row)
    return rows


def _slab(plan: LayerPlan, spare_tokens: int) -> KvSlab:
    keep = plan.reach + spare_tokens if plan.window else EVERYTHING
    return KvSlab(plan.reach, keep)
