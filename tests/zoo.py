"""Thirty tiny random models, one of every cache class that transformers 5.24 knows, built from configurations.

Weights are large on purpose (initializer 0.15): a wrong state must be visible in the logits.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from agentcache.engine.adapter import Model, build_random, make_config

VOCABULARY = 512
WINDOW = 32
A, S, L, C = "full_attention", "sliding_attention", "linear_attention", "conv"

_BASE: dict[str, object] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.15,
    "max_position_embeddings": 4096,
}
_BARE = {name: _BASE[name] for name in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")} | {
    "hidden_size": 64
}
_DELTA: dict[str, object] = {
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_conv_kernel_dim": 4,
}
_MAMBA: dict[str, object] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 32,
}
_EXPERTS: dict[str, object] = {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2}
_FEW_EXPERTS: dict[str, object] = {"num_local_experts": 4, "num_experts_per_tok": 2}
_LATENT: dict[str, object] = {
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "moe_intermediate_size": 32,
    "num_key_value_heads": 4,
    "mlp_layer_types": ["dense"] * 4,
}


@dataclass(frozen=True)
class Family:
    """One architecture: its cache class in words, transformers' name for it, and the fields of a tiny one."""

    label: str
    model_type: str
    fields: Mapping[str, object]

    def build(self, dtype: str = "float32", device: str = "cpu") -> Model:
        return build_random(make_config(self.model_type, self.fields), 0, dtype, device)


def _family(label: str, model_type: str, *parts: Mapping[str, object], **fields: object) -> Family:
    merged: dict[str, object] = {}
    for part in (*parts, fields):
        merged |= part
    return Family(label, model_type, merged)


def _stack(*kinds: str) -> dict[str, object]:
    return {"num_hidden_layers": len(kinds), "layer_types": list(kinds)}


ZOO: Mapping[str, Family] = {
    "qwen3": _family("FULL", "qwen3", _BASE, num_hidden_layers=4, head_dim=16),
    "llama": _family("FULL", "llama", _BASE, num_hidden_layers=4),
    "mistral": _family("SWA", "mistral", _BASE, num_hidden_layers=4, sliding_window=WINDOW),
    "gemma3": _family(
        "FULL+SWA",
        "gemma3_text",
        _BASE,
        _stack(S, S, A, S, S, A),
        head_dim=16,
        sliding_window=WINDOW,
        query_pre_attn_scalar=16,
    ),
    "gemma4": _family(
        "FULL+SWA, shared keys",
        "gemma4_text",
        _BASE,
        _stack(S, S, A, S, S, A),
        head_dim=16,
        sliding_window=WINDOW,
        num_kv_shared_layers=2,
        hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=VOCABULARY,
    ),
    "gemma3n": _family(
        "FULL+SWA, shared keys",
        "gemma3n_text",
        _BASE,
        _stack(S, S, A, S, A),
        intermediate_size=[128] * 5,
        head_dim=16,
        sliding_window=WINDOW,
        num_kv_shared_layers=2,
        vocab_size_per_layer_input=VOCABULARY,
        hidden_size_per_layer_input=16,
        laurel_rank=8,
        activation_sparsity_pattern=[0.0] * 5,
        altup_num_inputs=2,
    ),
    "gpt_oss": _family(
        "FULL+SWA", "gpt_oss", _BASE, _stack(S, A, S, A), _FEW_EXPERTS, head_dim=16, sliding_window=WINDOW
    ),
    "olmo3": _family("FULL+SWA", "olmo3", _BASE, _stack(S, S, S, A), sliding_window=WINDOW),
    "granite_swa": _family("FULL+SWA", "granite_swa", _BASE, _stack(S, A, S, A), sliding_window=WINDOW),
    "llama4": _family(
        "FULL+chunked",
        "llama4_text",
        _BASE,
        num_hidden_layers=4,
        head_dim=16,
        attention_chunk_size=WINDOW,
        num_local_experts=4,
        num_experts_per_tok=1,
        intermediate_size_mlp=128,
        interleave_moe_layer_step=2,
        no_rope_layers=[1, 1, 1, 0],
    ),
    "qwen3_next": _family(
        "FULL+delta net",
        "qwen3_next",
        _BASE,
        _DELTA,
        _stack(L, L, L, A),
        _EXPERTS,
        head_dim=16,
        shared_expert_intermediate_size=32,
    ),
    "qwen3_5": _family("FULL+delta net", "qwen3_5_text", _BASE, _DELTA, _stack(L, L, L, A), head_dim=16),
    "olmo_hybrid": _family("FULL+delta net", "olmo_hybrid", _BASE, _DELTA, _stack(L, L, L, A)),
    "kimi_linear": _family(
        "FULL(latent)+KDA",
        "kimi_linear",
        _BASE,
        _LATENT,
        _FEW_EXPERTS,
        _stack(L, L, L, A),
        linear_head_dim=16,
        linear_num_heads=4,
    ),
    "bailing": _family(
        "FULL(latent)+KDA",
        "bailing_hybrid",
        _BASE,
        _LATENT,
        _FEW_EXPERTS,
        _stack(L, L, A, L),
        head_dim=16,
        n_group=1,
        topk_group=1,
        num_mtp_layers=0,
    ),
    "bamba": _family("FULL+Mamba2", "bamba", _BASE, _MAMBA, num_hidden_layers=4, attn_layer_indices=[1, 3]),
    "granite4": _family(
        "FULL+Mamba2",
        "granitemoehybrid",
        _BASE,
        _MAMBA,
        _FEW_EXPERTS,
        _stack(L, A, L, L),
        shared_intermediate_size=64,
    ),
    "nemotron_h": _family(
        "FULL+Mamba2",
        "nemotron_h",
        _BASE,
        layer_types=[L, "mlp", A, L, "mlp"],
        head_dim=16,
        ssm_state_size=16,
        mamba_num_heads=8,
        mamba_head_dim=16,
        n_groups=1,
        conv_kernel=4,
        expand=2,
        chunk_size=32,
    ),
    "falcon_h1": _family(
        "FULL beside Mamba2", "falcon_h1", _BASE, _MAMBA, num_hidden_layers=3, mamba_d_ssm=128, head_dim=16
    ),
    "zamba2": _family(
        "FULL beside Mamba2",
        "zamba2",
        _BASE,
        num_hidden_layers=4,
        layers_block_type=[L, "hybrid", L, "hybrid"],
        mamba_d_state=16,
        n_mamba_heads=8,
        mamba_ngroups=1,
        chunk_size=32,
        num_key_value_heads=4,
        hybrid_layer_ids=[1, 3],
    ),
    "mamba2": _family(
        "Mamba2",
        "mamba2",
        _BARE,
        num_heads=8,
        head_dim=16,
        state_size=16,
        n_groups=1,
        num_hidden_layers=3,
        chunk_size=32,
    ),
    "lfm2": _family("FULL+conv", "lfm2", _BASE, _stack(C, C, A, C), conv_L_cache=3),
    "lfm3": _family(
        "FULL+SWA+conv", "lfm3", _BASE, _stack(C, S, A, C, S, A), head_dim=16, sliding_window=WINDOW
    ),
    "lara_mini": _family(
        "FULL+SWA+delta net",
        "lara_mini",
        _BASE,
        _DELTA,
        _stack(L, S, L, A, S),
        _EXPERTS,
        head_dim=16,
        sliding_window=WINDOW,
        shared_expert_intermediate_size=32,
    ),
    "inkling": _family(
        "FULL+SWA+4 convs a layer",
        "inkling_text",
        _BASE,
        _FEW_EXPERTS,
        num_hidden_layers=6,
        head_dim=16,
        swa_num_attention_heads=4,
        swa_num_key_value_heads=2,
        swa_head_dim=16,
        sliding_window_size=WINDOW,
        d_rel=4,
        rel_extent=64,
        local_layer_ids=[0, 1, 3, 4],
        dense_mlp_idx=1,
        moe_intermediate_size=32,
        n_routed_experts=4,
        n_shared_experts=1,
        logits_mup_width_multiplier=1.0,
    ),
    "zaya": _family(
        "FULL and SWA beside conv+state",
        "zaya",
        {name: value for name, value in _BASE.items() if name != "intermediate_size"},
        _stack("hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid"),
        head_dim=16,
        sliding_window=WINDOW,
        moe_intermediate_size=32,
        num_experts=4,
        router_hidden_size=16,
    ),
    "jamba": _family(
        "FULL+Mamba1",
        "jamba",
        _BASE,
        num_hidden_layers=4,
        attn_layer_period=4,
        attn_layer_offset=2,
        num_experts=1,
        num_experts_per_tok=1,
        mamba_d_state=8,
        use_mamba_kernels=False,
    ),
    "falcon_mamba": _family("Mamba1", "falcon_mamba", _BARE, state_size=8, num_hidden_layers=3),
    "recurrent_gemma": _family(
        "SWA+RG-LRU, state on the module",
        "recurrent_gemma",
        _BARE,
        intermediate_size=128,
        num_attention_heads=4,
        num_key_value_heads=1,
        num_hidden_layers=6,
        attention_window_size=WINDOW,
        lru_width=64,
    ),
    "minimax": _family(
        "FULL+lightning, a cache of its own",
        "minimax",
        _BASE,
        _stack(A, L, A, L),
        num_local_experts=4,
        block_size=32,
        head_dim=16,
    ),
}
