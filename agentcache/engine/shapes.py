"""What the built-in models keep of a token and of a boundary, from their recipes alone: no model is built.

A test compares it with what the models themselves say.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from agentcache.engine.models import FULL, RECURRENT, WINDOW, Recipe
from agentcache.types import ComponentSpec, full_spec, mamba_spec, swa_spec

ITEM_BYTES: Mapping[str, int] = MappingProxyType({"float32": 4, "bfloat16": 2, "float16": 2})
STATE_ITEM_BYTES = 4
"""Gated delta nets keep their recurrent state in float32 whatever the model's type is."""


def built_in_specs(
    recipe: Recipe, dtype: str, page_tokens: int, grid_tokens: int
) -> tuple[ComponentSpec, ...]:
    """The components of a built-in model with their slot bytes, FULL first."""
    return tuple(_specs(recipe.fields, ITEM_BYTES[dtype], page_tokens, grid_tokens))


def _specs(
    fields: Mapping[str, Any], item_bytes: int, page_tokens: int, grid_tokens: int
) -> Iterator[ComponentSpec]:
    layers = list(fields["layer_types"])
    token_bytes = 2 * fields["num_key_value_heads"] * fields["head_dim"] * item_bytes
    yield full_spec(page_tokens * token_bytes * layers.count(FULL))
    if WINDOW in layers:
        yield swa_spec(
            fields["sliding_window"] - 1, slot_bytes=page_tokens * token_bytes * layers.count(WINDOW)
        )
    if RECURRENT in layers:
        state_bytes = _convolution(fields) * item_bytes + _recurrence(fields) * STATE_ITEM_BYTES
        yield mamba_spec(grid_tokens, slot_bytes=state_bytes * layers.count(RECURRENT))


def _convolution(fields: Mapping[str, Any]) -> int:
    """Items of one layer's short convolution: queries, keys and values, as many steps as its kernel is long."""
    keys = fields["linear_num_key_heads"] * fields["linear_key_head_dim"]
    values = fields["linear_num_value_heads"] * fields["linear_value_head_dim"]
    return int((2 * keys + values) * fields["linear_conv_kernel_dim"])


def _recurrence(fields: Mapping[str, Any]) -> int:
    """Items of one layer's state: heads × key × value."""
    return int(
        fields["linear_num_value_heads"] * fields["linear_key_head_dim"] * fields["linear_value_head_dim"]
    )
