"""Which layers belong to which component, and how large their slots are, read off a sample run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from agentcache.engine.adapter import LayerPlan
from agentcache.engine.rows import Rows
from agentcache.pools.buffers import KvLayout, TensorLayout
from agentcache.types import FULL, SWA, ComponentName, ComponentSpec, full_spec, mamba_spec, swa_spec


@dataclass(frozen=True, slots=True)
class Layout:
    """A model's components. `layers` has FULL always (perhaps without layers), then one SWA component a window.

    `windows` are tokens before a boundary: an attention window of W needs W - 1. `states` is empty without
    recurrent layers.
    """

    layers: Mapping[ComponentName, tuple[int, ...]]
    windows: Mapping[ComponentName, int]
    kv: Mapping[int, KvLayout]
    states: tuple[TensorLayout, ...]

    def kv_of(self, component: ComponentName) -> list[KvLayout]:
        return [self.kv[layer] for layer in self.layers[component]]

    def specs(self, page_tokens: int, grid_tokens: int) -> tuple[ComponentSpec, ...]:
        """The components as the tree knows them, FULL first, with the bytes of one slot."""
        return tuple(self._specs(page_tokens, grid_tokens))

    def _specs(self, page_tokens: int, grid_tokens: int) -> Iterator[ComponentSpec]:
        for name in self.layers:
            slot_bytes = page_tokens * sum(layer.token_bytes for layer in self.kv_of(name))
            yield full_spec(slot_bytes) if name == FULL else swa_spec(self.windows[name], name, slot_bytes)
        if self.states:
            yield mamba_spec(grid_tokens, slot_bytes=sum(state.size_bytes for state in self.states))


def read_layout(sample: Rows) -> Layout:
    """Components of a model whose `sample` has run at least one token."""
    windows = sorted({plan.window for plan in sample.plans if plan.window}, reverse=True)
    names = {window: ComponentName(SWA if len(windows) == 1 else f"{SWA}_{window}") for window in windows}
    layers = {FULL: tuple(plan.index for plan in sample.plans if plan.full)}
    for window, name in names.items():
        layers[name] = tuple(plan.index for plan in sample.plans if plan.window == window)
    return Layout(
        layers,
        {name: window - 1 for window, name in names.items()},
        {plan.index: _kv_layout(sample, plan) for plan in sample.plans if plan.attention},
        tuple(TensorLayout(tuple(state.shape[1:]), state.dtype) for state in sample.state_tensors()),
    )


def _kv_layout(sample: Rows, plan: LayerPlan) -> KvLayout:
    keys, values = sample.tokens(plan.index, 0, sample.length(0), sample.length(0))
    return KvLayout(_token_layout(keys), _token_layout(values))


def _token_layout(tokens: Tensor) -> TensorLayout:
    return TensorLayout((tokens.shape[0], tokens.shape[2]), tokens.dtype)
