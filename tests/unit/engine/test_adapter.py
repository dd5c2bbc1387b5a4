"""Reading layers, building and loading models: local only, and one clear error for each thing that can be wrong."""

import json
from pathlib import Path

import pytest
import torch

from agentcache.engine.adapter import build_random, float32_twin, load_model, make_config, read_layers
from agentcache.errors import CacheError, Kind
from tests.zoo import WINDOW, ZOO


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    ZOO["gemma3"].build().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def refusal(path: Path | str, dtype: str = "float32") -> CacheError:
    with pytest.raises(CacheError) as refused:
        load_model(path, dtype)
    return refused.value


def test_layers_of_every_kind_are_told_apart() -> None:
    kinds = {
        name: [(plan.full, plan.window, plan.states) for plan in read_layers(family.build().config)]
        for name, family in ZOO.items()
        if name in ("lara_mini", "falcon_h1", "inkling", "llama4", "nemotron_h")
    }
    recurrent, full, window = (False, 0, 1), (True, 0, 0), (False, WINDOW, 0)
    assert kinds["lara_mini"] == [recurrent, window, recurrent, full, window]
    assert kinds["falcon_h1"] == [(True, 0, 1)] * 3
    assert kinds["inkling"][0] == (False, WINDOW, 4)
    assert kinds["inkling"][2] == (True, 0, 4)
    assert kinds["llama4"] == [window, window, window, full]
    assert kinds["nemotron_h"][1] == (False, 0, 0), "an mlp layer keeps nothing"


def test_an_unknown_cache_layer_is_named() -> None:
    config = make_config("deepseek_v32", {"num_hidden_layers": 2})
    with pytest.raises(CacheError, match="DynamicIndexedLayer") as refused:
        read_layers(config)
    assert refused.value.kind is Kind.UNSUPPORTED_MODEL


def test_an_unknown_layer_type_is_named() -> None:
    config = make_config("qwen3", ZOO["qwen3"].fields)
    config.layer_types = ["telepathy"] * 4
    with pytest.raises(CacheError, match="telepathy") as refused:
        read_layers(config)
    assert refused.value.kind is Kind.UNSUPPORTED_MODEL


def test_random_weights_depend_on_the_seed_only() -> None:
    config = make_config("llama", ZOO["llama"].fields)
    state = torch.random.get_rng_state()
    one, same, other = (build_random(config, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_low_precision_model_has_a_float32_twin_unless_it_is_too_large() -> None:
    model = ZOO["llama"].build("bfloat16")
    twin = float32_twin(model, 1 << 28)
    assert (model.dtype, twin.dtype) == (torch.bfloat16, torch.float32)
    assert float32_twin(model, 10) is model
    assert float32_twin(twin, 1 << 28) is twin


def test_a_checkpoint_loads_with_the_weights_it_was_saved_with(checkpoint: Path) -> None:
    saved = ZOO["gemma3"].build()
    loaded = load_model(checkpoint)
    assert all(torch.equal(a, b) for a, b in zip(saved.parameters(), loaded.parameters(), strict=True))
    assert load_model(str(checkpoint), "bfloat16").dtype == torch.bfloat16


def test_a_sharded_checkpoint_loads_and_a_lost_shard_is_named(tmp_path: Path) -> None:
    ZOO["gemma3"].build().save_pretrained(tmp_path, max_shard_size="100KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 2
    load_model(tmp_path)
    shards[1].unlink()
    error = refusal(tmp_path)
    assert error.kind is Kind.BAD_CHECKPOINT
    assert shards[1].name in error.message


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(checkpoint: Path, name: str) -> None:
    (checkpoint / name).unlink()
    error = refusal(checkpoint)
    assert error.kind is Kind.BAD_CHECKPOINT
    assert name in error.message


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nowhere")
    assert (error.kind, "nowhere" in error.message) == (Kind.BAD_CHECKPOINT, True)


def test_a_missing_gguf_file_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path / "model.gguf")
    assert (error.kind, "model.gguf" in error.message) == (Kind.BAD_CHECKPOINT, True)


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_configuration_that_is_no_object_is_refused(checkpoint: Path, content: str) -> None:
    (checkpoint / "config.json").write_text(content)
    error = refusal(checkpoint)
    assert (error.kind, "config.json" in error.message) == (Kind.BAD_CHECKPOINT, True)


def test_weights_that_are_cut_short_are_refused(checkpoint: Path) -> None:
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    assert refusal(checkpoint).kind is Kind.BAD_CHECKPOINT


def test_weights_of_another_size_are_refused(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps(config | {"intermediate_size": 64}))
    assert refusal(checkpoint).kind is Kind.BAD_CHECKPOINT


def test_weights_that_lack_a_layer_are_refused_rather_than_made_up(checkpoint: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text())
    longer = {"num_hidden_layers": 7, "layer_types": [*config["layer_types"], "full_attention"]}
    (checkpoint / "config.json").write_text(json.dumps(config | longer))
    error = refusal(checkpoint)
    assert error.kind is Kind.BAD_CHECKPOINT
    assert "layers.6" in error.message


def test_an_unknown_family_is_named(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text('{"model_type": "perceptron9"}')
    error = refusal(checkpoint)
    assert (error.kind, "perceptron9" in error.message) == (Kind.UNSUPPORTED_MODEL, True)


def test_a_family_that_does_not_generate_text_is_refused(checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text('{"model_type": "vit"}')
    assert refusal(checkpoint).kind is Kind.UNSUPPORTED_MODEL


def test_an_unknown_dtype_names_the_known_ones(checkpoint: Path) -> None:
    error = refusal(checkpoint, "int3")
    assert (error.kind, "bfloat16" in error.message) == (Kind.BAD_CONFIG, True)


def test_an_unknown_model_type_or_field_value_is_refused() -> None:
    with pytest.raises(CacheError) as unknown:
        make_config("perceptron9", {})
    assert unknown.value.kind is Kind.UNSUPPORTED_MODEL
    with pytest.raises(CacheError) as refused:
        make_config("gemma3_text", {"num_hidden_layers": 2, "layer_types": ["telepathy"] * 2})
    assert refused.value.kind is Kind.BAD_CONFIG
