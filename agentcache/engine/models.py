"""The built-in models: small architectures of every mix of components, with random weights from a seed.

Their answers are noise; their caches are real. Plain fields of transformers' configurations, no transformers here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

FULL, WINDOW, RECURRENT = "full_attention", "sliding_attention", "linear_attention"
WINDOW_TOKENS = 256
CONTEXT_TOKENS = 131_072
VOCABULARY = 4096
INITIALIZER_RANGE = 0.06
"""Wide enough that two logits are seldom close: greedy choices then do not hang on rounding."""

COMMON: Mapping[str, object] = MappingProxyType(
    {
        "vocab_size": VOCABULARY,
        "hidden_size": 384,
        "num_attention_heads": 2,  # few heads: on a CPU a long prompt is mostly attention
        "num_key_value_heads": 1,
        "head_dim": 64,
        "max_position_embeddings": CONTEXT_TOKENS,
        "initializer_range": INITIALIZER_RANGE,
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
)
GATED_DELTA: Mapping[str, object] = MappingProxyType(
    {
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 64,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 4,
        "linear_conv_kernel_dim": 4,
    }
)
"""Gated delta net: a state of heads x key x value, and a short convolution."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model family of transformers and the fields that differ from its defaults."""

    family: str
    fields: Mapping[str, object]
    what: str


def _recipe(family: str, what: str, layers: list[str], **fields: object) -> Recipe:
    shape = {"num_hidden_layers": len(layers), "layer_types": layers}
    return Recipe(family, MappingProxyType({**COMMON, **shape, **fields}), what)


BUILT_IN: Mapping[str, Recipe] = MappingProxyType(
    {
        "tiny-full": _recipe("qwen3", "full attention", [FULL] * 6, intermediate_size=2048),
        "tiny-swa": _recipe(
            "gemma3_text",
            "full attention and sliding windows, 1:3",
            [WINDOW, WINDOW, WINDOW, FULL] * 2,
            intermediate_size=1408,
            sliding_window=WINDOW_TOKENS,
            query_pre_attn_scalar=64,
        ),
        "tiny-hybrid": _recipe(
            "qwen3_5_text",
            "full attention and gated delta nets, 1:3",
            [RECURRENT, RECURRENT, RECURRENT, FULL] * 2,
            intermediate_size=1408,
            **GATED_DELTA,
        ),
        "tiny-all": _recipe(
            "lara_mini",
            "full attention, sliding windows and gated delta nets, with experts",
            [RECURRENT, WINDOW, RECURRENT, FULL, WINDOW, RECURRENT, WINDOW, FULL],
            sliding_window=WINDOW_TOKENS,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=288,
            shared_expert_intermediate_size=288,
            **GATED_DELTA,
        ),
    }
)
