"""The one file that touches transformers: reading a model's layers, running it on our working memory, loading it.

Pinned to transformers 5.24. What it relies on: `DynamicCache(config=…)` as a template for layer kinds,
`Cache(layers=…)`, the verbs of the three layer classes (`update`, `get_seq_length`, `get_mask_sizes`,
`*_conv_state`, `*_recurrent_state`), and the arguments `cache`, `position_ids`, `attention_mask`,
`logits_to_keep`. No model code is patched.
"""

# transformers is typed in part: its verbs have no annotations and its hybrid layers override attributes by properties.
# mypy: disable-error-code="override,misc,no-untyped-call"

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedModel
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
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

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
FORWARD_FAILURES = (RuntimeError, ValueError, AttributeError, TypeError, NotImplementedError, IndexError)
Model = PreTrainedModel
Config = PreTrainedConfig


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
    is_compileable = False  # as in the stock class: masks are built differently for compileable caches

    def __init__(self, slab: KvSlab, states: int) -> None:
        _Full.__init__(self, slab)
        LinearAttentionLayer.__init__(self, number_of_states=states)


class _SlidingHybrid(LinearAttentionLayer, _Sliding):
    is_compileable = False

    def __init__(self, slab: KvSlab, window: int, states: int) -> None:
        _Sliding.__init__(self, slab, window)
        LinearAttentionLayer.__init__(self, number_of_states=states)


def build_cache(plans: Sequence[LayerPlan], slabs: Mapping[int, KvSlab]) -> Cache:
    """The cache object that a model's forward takes: one layer a plan, attention layers on their slabs."""
    unused = KvSlab()
    return Cache(layers=[_build_layer(plan, slabs.get(plan.index, unused)) for plan in plans])


def linear_layers(cache: Cache) -> list[Any]:
    """The layers that carry convolution or recurrent states, in order."""
    return [layer for layer in cache.layers if isinstance(layer, LinearAttentionCacheLayerMixin)]


def load_layer_state(layer: Any, model: Any, number: int, tensors: Iterator[Tensor]) -> None:
    """Set one state of a linear layer from `tensors`, with the presence of convolution and recurrence of `model`."""
    if model.conv_states[number] is not None:
        layer.conv_states[number] = next(tensors)
        layer.conv_kernel_size[number] = layer.conv_states[number].shape[-1]
        layer.is_conv_states_initialized[number] = True
        layer.dtype, layer.device = layer.conv_states[number].dtype, layer.conv_states[number].device
    if model.recurrent_states[number] is not None:
        layer.recurrent_states[number] = next(tensors)
        layer.is_recurrent_states_initialized[number] = True
    layer.has_previous_state[number] = model.has_previous_state[number]


def _build_layer(plan: LayerPlan, slab: KvSlab) -> Any:
    if not plan.attention:
        return LinearAttentionLayer(number_of_states=plan.states) if plan.states else DummyLayer()
    if plan.window:
        return _SlidingHybrid(slab, plan.window, plan.states) if plan.states else _Sliding(slab, plan.window)
    return _FullHybrid(slab, plan.states) if plan.states else _Full(slab)


def make_config(model_type: str, fields: Mapping[str, object]) -> Config:
    """A configuration of a model family that transformers knows, from our own fields.

    Errors  CacheError(UNSUPPORTED_MODEL) for an unknown family; BAD_CONFIG for fields that it refuses
    """
    _quiet()
    if model_type not in CONFIG_MAPPING:
        raise CacheError(Kind.UNSUPPORTED_MODEL, f"transformers has no model family {model_type!r}")
    try:
        family: Any = CONFIG_MAPPING[model_type]
        config: Config = family(**fields)
    except (TypeError, ValueError, StrictDataclassError) as bad:
        raise CacheError(Kind.BAD_CONFIG, f"{model_type} refuses these fields: {bad}") from bad
    return config


def build_random(config: Config, seed: int, dtype: str = "float32", device: str = "cpu") -> Model:
    """A model with random weights that depend on the seed only. The global random state is left as it was."""
    _quiet()
    target = _dtype(dtype)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        kept = any(module in name for module in model._keep_in_fp32_modules_strict or ())
        if tensor.is_floating_point() and not kept:
            tensor.data = tensor.data.to(target)
    return _placed(model, device)


def float32_twin(model: Model, most_parameters: int) -> Model:
    """The same model in float32, for examinations that rounding would blur.

    The model itself if it is too large, or quantized.
    """
    large = sum(parameter.numel() for parameter in model.parameters()) > most_parameters
    if model.dtype == torch.float32 or large or getattr(model, "is_quantized", False):
        return model
    twin: Model = copy.deepcopy(model).float()
    return twin


def load_model(source: str | Path, dtype: str = "float32", device: str = "cpu") -> Model:
    """A model from a local checkpoint: a directory with safetensors, or a .gguf file with its configuration inside.

    Never touches the network and never runs code from the checkpoint.
    Errors  CacheError(BAD_CHECKPOINT) naming what is missing; UNSUPPORTED_MODEL for a family that cannot generate text
    """
    target, path = _dtype(dtype), Path(source)
    _quiet()
    where = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    folder = path.parent if where else path
    if where:
        _require(path.is_file(), path, "the file")
    else:
        _check_folder(path)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=target, local_files_only=True, output_loading_info=True, **where
        )
    except (KeyError, ValueError, AttributeError, IndexError, NotImplementedError, ImportError) as bad:
        raise CacheError(Kind.UNSUPPORTED_MODEL, f"transformers cannot load {path.name}: {bad}") from bad
    except (OSError, RuntimeError, TypeError, SafetensorError, StrictDataclassError) as bad:
        raise CacheError(Kind.BAD_CHECKPOINT, f"{path.name} cannot be read: {bad}") from bad
    model, info = loaded
    absent = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    _require(not absent, path, f"{len(absent)} weights (first: {', '.join(absent[:3])})")
    if where:  # what a .gguf holds was dequantized while loading, yet the model is still marked
        model.hf_quantizer, model.is_quantized = None, False
    return _placed(model, device)


@dataclass(frozen=True, slots=True)
class PackedTokenizer:
    """What a .gguf file says about text: tokenizer.json's content, the chat template, and named tokens."""

    content: str
    template: str
    names: Mapping[str, str]


def read_packed_tokenizer(file: Path) -> PackedTokenizer:
    """The tokenizer inside a .gguf file. Errors: CacheError(BAD_CHECKPOINT)."""
    _quiet()
    try:
        packed: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    except (*FORWARD_FAILURES, OSError, KeyError, ImportError) as bad:
        raise CacheError(Kind.BAD_CHECKPOINT, f"cannot read the tokenizer in {file.name}: {bad}") from bad
    names = {
        name: str(getattr(packed, name) or "")
        for name in ("bos_token", "eos_token", "pad_token", "unk_token")
    }
    return PackedTokenizer(packed.backend_tokenizer.to_str(), str(packed.chat_template or ""), names)


def _quiet() -> None:
    """Neither warnings nor progress bars of transformers: stderr is our log."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _placed(model: Any, device: str) -> Model:
    """Errors: CacheError(BAD_CONFIG) for a device that is not there, or is too small."""
    try:
        placed: Model = model.to(device).eval()
    except (RuntimeError, AssertionError) as bad:  # torch without CUDA asserts
        why = (str(bad).splitlines() or [""])[0]
        raise CacheError(Kind.BAD_CONFIG, f"the model cannot be put on {device}: {why}") from bad
    return placed


def _check_folder(folder: Path) -> None:
    """A checkpoint directory is complete: a configuration, and every file of weights that it names."""
    _require(folder.is_dir(), folder, "the directory")
    config = _read_json(folder, "config.json")
    family = config.get("model_type")
    if family not in CONFIG_MAPPING:
        raise CacheError(
            Kind.UNSUPPORTED_MODEL, f"transformers has no model family {family!r}", model=folder.name
        )
    if (folder / "model.safetensors").is_file():
        return
    index = "model.safetensors.index.json"
    _require((folder / index).is_file(), folder, "model.safetensors (or its index)")
    shards = sorted(set(_read_json(folder, index).get("weight_map", {}).values()))
    absent = [shard for shard in shards if not (folder / shard).is_file()]
    _require(bool(shards) and not absent, folder, ", ".join(absent) or "its weight map")


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    _require((folder / name).is_file(), folder, name)
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except ValueError as bad:
        raise CacheError(Kind.BAD_CHECKPOINT, f"{name} is not valid JSON: {bad}", model=folder.name) from bad
    _require(isinstance(content, dict), folder, f"an object in {name}")
    return dict(content)


def _require(present: bool, where: Path, what: str) -> None:
    if not present:
        raise CacheError(Kind.BAD_CHECKPOINT, f"{where.name} lacks {what}", model=where.name)


def _dtype(name: str) -> torch.dtype:
    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in kinds:
        raise CacheError(Kind.BAD_CONFIG, f"dtype must be one of {', '.join(kinds)}", given=name)
    return kinds[name]
