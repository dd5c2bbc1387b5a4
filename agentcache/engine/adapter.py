"""The one file that touches transformers: reading a model's layers, running it on our working memory, loading it.

Pinned to transformers 5.24. What it relies on: `DynamicCache(config=…)` as a template for layer kinds,
`Cache(layers=…)`, the verbs of the three layer classes (`update`, `get_seq_length`, `get_mask_sizes`,
`*_conv_state`, `*_recurrent_state`), and the arguments `cache`, `position_ids`, `attention_mask`, `logits_to_keep`. No model code is patched.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    LinearAttentionCacheLayerMixin,
    LinearAttentionLayer,
)

from agentcache.engine.slab import EVERYTHING, KvSlab
from agentcache.errors import CacheError, Kind

KNOWN_LAYERS = (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
    LinearAttentionAndFullAttentionLayer,
    LinearAttentionAndSlidingWindowAttentionLayer,
    DummyLayer,
)
UNKNOWN_CONTEXT_TOKENS = 131_072
FORWARD_FAILURES = (RuntimeError, ValueError, AttributeError, TypeError, NotImplementedError, IndexError)
Model = PreTrainedModel


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """What one decoder layer keeps: attention with a window (0: none, all tokens), and linear states."""

    index: int
    attention: bool
    window: int
    states: int

    @property
    def full(self) -> bool:
        return self.attention and not self.window

    @property
    def reach(self) -> int:
        """Tokens before a query that it may see. A chunk of W (llama4) is at most as far back as a window of W."""
        return self.window - 1 if self.window else EVERYTHING


def read_layers(config: PreTrainedConfig) -> tuple[LayerPlan, ...]:
    """The layers of a model, from the cache that transformers itself would build for it.

    Errors  CacheError(UNSUPPORTED_MODEL) naming the cache layer class (or layer type) that we do not know
    """
    try:
        template = DynamicCache(config=config)
    except (KeyError, AttributeError, TypeError) as bad:
        raise CacheError(
            Kind.UNSUPPORTED_MODEL, f"transformers has no dynamic cache for this model: {bad}"
        ) from bad
    return tuple(_read_layer(index, layer) for index, layer in enumerate(template.layers))


def _read_layer(index: int, layer: Any) -> LayerPlan:
    if type(layer) not in KNOWN_LAYERS:
        name = type(layer).__name__
        raise CacheError(
            Kind.UNSUPPORTED_MODEL,
            f"layer {index} keeps its state in the unknown cache class {name}",
            layer=name,
        )
    return LayerPlan(
        index,
        isinstance(layer, CacheLayerMixin),
        int(getattr(layer, "sliding_window", 0)),
        int(getattr(layer, "number_of_states", 0)),
    )


class _Full(DynamicLayer):
    def __init__(self, slab: KvSlab) -> None:
        super().__init__()
        self.slab = slab
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return self.slab.append(key_states, value_states)

    def get_seq_length(self) -> int:
        return self.slab.end


class _Sliding(DynamicSlidingWindowLayer):
    def __init__(self, slab: KvSlab, window: int) -> None:
        super().__init__(sliding_window=window)
        self.slab = slab
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return self.slab.append(key_states, value_states)

    def get_seq_length(self) -> int:
        return self.slab.end

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        past = min(self.slab.reach, self.slab.end)
        return past + query_length, self.slab.end - past


class _FullHybrid(LinearAttentionLayer, _Full):
    def __init__(self, slab: KvSlab, states: int) -> None:
        _Full.__init__(self, slab)
        LinearAttentionLayer.__init__(self, number_of_states=states)


class _SlidingHybrid(LinearAttentionLayer, _Sliding):
    def __init__(self, slab: KvSlab, window: int, states: int) -> None:
        _Sliding.__init__(self, slab, window)
        LinearAttentionLayer.__init__(self, number_of_states=states)


def _build_layer(plan: LayerPlan, slab: KvSlab) -> Any:
    if not plan.attention:
        return LinearAttentionLayer(number_of_states=plan.states) if plan.states else DummyLayer()
    if plan.window:
        return _SlidingHybrid(slab, plan.window, plan.states) if plan.states else _Sliding(slab, plan.window)
    return _FullHybrid(slab, plan.states) if plan.states else _Full(slab)


class Rows:
    """The working memory of requests that run together: one row each, newest tokens aligned.

    `end` is the virtual length (of the longest row); row r has `pads[r]` places before its first token.
    `spare_tokens` behind each window stay readable, so that pages can be saved after the window has moved on.
    """

    def __init__(self, plans: Sequence[LayerPlan], spare_tokens: int, start: int = 0) -> None:
        self.plans = plans
        self.spare_tokens = spare_tokens
        self.slabs = {plan.index: _slab(plan, spare_tokens, start) for plan in plans if plan.attention}
        unused = KvSlab()
        self.cache = Cache(layers=[_build_layer(plan, self.slabs.get(plan.index, unused)) for plan in plans])
        self.end = start
        self.pads = [0]
        self.capacity = 1

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
        return max(0, self.slabs[layer].start - self.pads[row])

    def tokens(self, layer: int, row: int, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Views of keys and values of tokens `[start, end)` of a row. Shapes: two of [heads, end - start, dim]."""
        pad = self.pads[row]
        return self.slabs[layer].read(row, start + pad, end + pad)

    def state_tensors(self) -> Iterator[Tensor]:
        """Every recurrent tensor, layer by layer, convolution before recurrence. Shapes: [rows, …]."""
        for layer in self._linear_layers():
            for number in range(layer.number_of_states):
                stored = (layer.conv_states[number], layer.recurrent_states[number])
                yield from (tensor for tensor in stored if tensor is not None)

    def load_states(self, like: "Rows", tensors: Sequence[Tensor]) -> None:
        """Set every recurrent tensor, in the order and with the presence of `like`. Keeps `tensors` (no copy)."""
        rest = iter(tensors)
        for layer, model in zip(self._linear_layers(), like._linear_layers(), strict=True):
            for number in range(layer.number_of_states):
                _load_state(layer, model, number, rest)

    def join(self, other: "Rows", row: int) -> None:
        """Copy a row of another working memory behind our rows. It must not be longer than `end`."""
        length = other.length(row)
        for index, slab in self.slabs.items():
            held = max(other.held_from(index, row), length - (slab.end - slab.start))
            slab.place(len(self.pads), *other.tokens(index, row, held, length))
        added = [tensor[row : row + 1] for tensor in other.state_tensors()]
        mine = list(self.state_tensors()) if self.pads else [tensor[:0] for tensor in added]
        self.load_states(other, [torch.cat(pair) for pair in zip(mine, added, strict=True)])
        self.pads.append(self.end - length)

    def leave(self, row: int) -> None:
        """Forget a row; the last row takes its number."""
        last = len(self.pads) - 1
        keep = [last if number == row else number for number in range(last)]
        if row != last:
            for slab in self.slabs.values():
                slab.move_row(last, row)
        self.pads = [self.pads[number] for number in keep]
        self.load_states(self, [tensor[keep] for tensor in list(self.state_tensors())])

    def _linear_layers(self) -> list[Any]:
        return [layer for layer in self.cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]


def merge(members: Sequence[tuple[Rows, int]], row_capacity: int) -> Rows:
    """A new working memory with copies of the given rows (memory, row), in that order."""
    first, _ = members[0]
    rows = Rows(first.plans, first.spare_tokens)
    rows.pads = []
    rows.capacity = row_capacity
    rows.end = max(memory.length(row) for memory, row in members)
    for index, slab in rows.slabs.items():
        slab.open(row_capacity, rows.end, first.tokens(index, 0, first.length(0), first.length(0)))
    for memory, row in members:
        rows.join(memory, row)
    return rows


def _slab(plan: LayerPlan, spare_tokens: int, start: int) -> KvSlab:
    keep = plan.reach + spare_tokens if plan.window else EVERYTHING
    return KvSlab(plan.reach, keep, start)


def _load_state(layer: Any, model: Any, number: int, rest: Iterator[Tensor]) -> None:
    """The convolution first: until it is there, the layer says that it has no previous state."""
    if model.conv_states[number] is not None:
        layer.conv_states[number] = next(rest)
        layer.conv_kernel_size[number] = layer.conv_states[number].shape[-1]
        layer.is_conv_states_initialized[number] = True
        layer.dtype, layer.device = layer.conv_states[number].dtype, layer.conv_states[number].device
    if model.recurrent_states[number] is not None:
        layer.recurrent_states[number] = next(rest)
        layer.is_recurrent_states_initialized[number] = True
    layer.has_previous_state[number] = model.has_previous_state[number]


class ModelAdapter:
    """A loaded model that runs on `Rows`. Stateless itself."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval()
        self.device = model.device
        text = model.config.get_text_config(decoder=True)
        self.vocab_size = int(text.vocab_size)
        self.context_tokens = int(getattr(text, "max_position_embeddings", 0) or UNKNOWN_CONTEXT_TOKENS)
        self.dtype = str(model.dtype).removeprefix("torch.")

    def layers(self) -> tuple[LayerPlan, ...]:
        """Errors: CacheError(UNSUPPORTED_MODEL) as `read_layers`."""
        return read_layers(self.model.config)

    def forward(self, tokens: Tensor, rows: Rows, keep: int = 1) -> Tensor:
        """Run `n` new tokens of every row; logits of the last `keep`.

        Shapes  tokens: int64[rows, n] -> [rows, keep, vocab] in the model's type
        A single row runs without a mask, the exact path. Several rows run with the mask of their padding.
        """
        count = tokens.shape[1]
        pads = torch.tensor(rows.pads, device=self.device)[:, None]
        places = torch.arange(rows.end + count, device=self.device)[None]
        alone = len(rows.pads) == 1 and rows.pads[0] == 0
        output = self.model(
            input_ids=tokens,
            attention_mask=None if alone else (places >= pads).long(),
            position_ids=places[:, rows.end :] - pads,
            cache=rows.cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        rows.end += count
        return _last(output.logits, keep)

    def forward_without_cache(self, tokens: Tensor, keep: int = 1) -> Tensor:
        """The model itself: all tokens in one forward, nothing kept. Shapes: int64[1, n] -> [1, keep, vocab]."""
        positions = torch.arange(tokens.shape[1], device=self.device)[None]
        output = self.model(input_ids=tokens, position_ids=positions, use_cache=False, logits_to_keep=keep)
        return _last(output.logits, keep)


def _last(logits: Tensor, keep: int) -> Tensor:
    return logits[:, -keep:]
